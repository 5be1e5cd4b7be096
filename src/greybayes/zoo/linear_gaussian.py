"""A first-order linear system in Gaussian noise: the case in which everything is known exactly.

    x_{k+1} = a x_k + b u_k + w_k,   w_k ~ N(0, q),   x_1 = 0
    y_k     = x_k + v_k,             v_k ~ N(0, r)

q and r are variances.
"""

import jax.numpy as jnp
import numpyro.distributions as dist

from greybayes.inputs import PRBS
from greybayes.model import Model
from greybayes.noise import Known
from greybayes.prior import Parameter
from greybayes.regression import moments, regress


class LinearGaussian(Model):
    """First-order linear system with process and measurement noise; Kalman's formulas hold."""

    a = Parameter(dist.Uniform(0.0, 0.98), doc="pole")
    b = Parameter(dist.Uniform(0.0, 2.0), doc="gain of the input")
    q = Parameter(dist.Uniform(0.01, 1.0), doc="variance of the process noise", variance=True)
    r = Parameter(dist.Uniform(0.01, 1.0), doc="variance of the measurement noise", variance=True)
    states, inputs, outputs = ("x",), ("u",), ("y",)
    # One experiment, the same in every simulation, as the paper's estimators need.
    design = PRBS(amplitude=1.0, hold=4).fixed(1, 200)

    def initial(self, u, p):
        return Known(0.0)

    def transition(self, x, u, p, t):
        return dist.Normal(p.a * x + p.b * u, jnp.sqrt(p.q))

    def observation(self, x, u, p, t):
        return dist.Normal(x, jnp.sqrt(p.r))

    def statistics(self, x, after, y, u, p, t):
        return moments(x, u, after), moments(y - x)

    def maximise(self, sums, p):
        gains, q = regress(self, sums[0], p, "a", "b")
        _, r = regress(self, sums[1], p)
        return {**gains, "q": q, "r": r}
