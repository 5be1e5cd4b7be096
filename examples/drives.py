"""Two models of the coupled electric drives, to be reported on: without and with an input delay.

With the measured records (DATAPRBS.MAT of nonlinearbenchmark.org) in this folder:

    greybayes fit map examples/drives.py:Drives DATAPRBS.MAT:y=z1,u=u1,dt=0.02 \
        --validate DATAPRBS.MAT:y=z2,u=u2,dt=0.02 DATAPRBS.MAT:y=z3,u=u3,dt=0.02 \
        --report drives.html

and the same with `DelayedDrives`. The first report says that the input comes later than the model
thinks, the second that it does not any more, and both that the gain depends on the amplitude.
"""

import numpyro.distributions as dist

import greybayes as gb
from greybayes.zoo.coupled_drives import CoupledDrives


class Drives(CoupledDrives):
    """Coupled electric drives, with priors wide enough for the measured ones."""

    K = gb.Parameter(dist.Uniform(0.2, 10.0), doc="static gain")
    alpha = gb.Parameter(dist.Uniform(1.0, 30.0), unit="1/s", doc="inverse time constant")
    omega0 = gb.Parameter(dist.Uniform(5.0, 60.0), unit="rad/s", doc="resonance of spring and belt")
    xi = gb.Parameter(dist.Uniform(0.01, 0.9), doc="damping of spring and belt")
    noise_variance = gb.Parameter(
        dist.Uniform(0.0, 10.0), unit="V^2", doc="variance of the measurement noise", variance=True
    )


class DelayedDrives(Drives):
    """The same drives, with an input that arrives one sample later."""

    input_delay = 1
