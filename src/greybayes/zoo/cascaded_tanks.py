"""Two cascaded tanks with overflow: water is pumped into the upper one and runs through both.

    dx1/dt = k4 u - k1 sqrt(x1)
    dx2/dt = k2 sqrt(x1) - k3 sqrt(x2) + [x1 >= height] (k4 u - k1 sqrt(x1))+ overflow
    0 <= x1, x2 <= height,   process noise of intensity q on both levels
    y_k = x2 + v_k,   v_k ~ N(0, r^2),   both levels start at N(start, 0.5^2)

While the upper tank is full, the share `overflow` of what it cannot take falls into the lower one.
The structure is that of the cascaded-tanks benchmark (Schoukens and Noel 2017), levels in volts.
"""

import jax.numpy as jnp
import numpyro.distributions as dist

from greybayes.continuous import rk4
from greybayes.inputs import Multisine
from greybayes.model import Model
from greybayes.prior import Fixed, Parameter


class CascadedTanks(Model):
    """Two cascaded tanks with overflow and process noise."""

    k1 = Parameter(dist.Uniform(0.02, 0.1), doc="outflow of the upper tank")
    k2 = Parameter(dist.Uniform(0.02, 0.1), doc="inflow of the lower tank")
    k3 = Parameter(dist.Uniform(0.02, 0.1), doc="outflow of the lower tank")
    k4 = Parameter(dist.Uniform(0.02, 0.1), doc="gain of the pump")
    overflow = Parameter(dist.Uniform(0.0, 1.0), doc="share of the overflow that is caught")
    q = Parameter(dist.LogUniform(1e-3, 3e-2), doc="intensity of the process noise")
    r = Parameter(dist.LogUniform(1e-2, 2e-1), unit="V", doc="measurement noise, std")
    height = Fixed(10.0, unit="V", doc="height of both tanks")
    start = Fixed(5.0, unit="V", doc="level of both tanks at the start (mean)")
    states, inputs, outputs = ("upper", "lower"), ("pump",), ("level",)
    units = {"upper": "V", "lower": "V", "pump": "V", "level": "V"}
    dt = 4.0
    n_steps = 500
    substeps: int = 4
    design = Multisine(lines=20, rms=1.2, offset=3.5, band=(0.0005, 0.0125)).fixed(1, 500, 4.0)

    def initial(self, u, p):
        return dist.Normal(p.start, 0.5)

    def transition(self, x, u, p, t):
        def rate(x):
            upper, lower = jnp.sqrt(jnp.clip(x, 0.0, p.height))
            net = p.k4 * u[0] - p.k1 * upper
            spill = jnp.where(x[0] >= p.height, jnp.maximum(net, 0.0), 0.0)
            return jnp.stack([net - spill, p.k2 * upper - p.k3 * lower + p.overflow * spill])

        # Noise may have left a level outside its tank; water does not stay there.
        level = rk4(rate, jnp.clip(x, 0.0, p.height), t.dt, self.substeps)
        level = jnp.clip(level, 0.0, p.height)
        return dist.Normal(level, p.q * jnp.sqrt(t.dt))

    def observation(self, x, u, p, t):
        return dist.Normal(jnp.clip(x[1], 0.0, p.height), p.r)
