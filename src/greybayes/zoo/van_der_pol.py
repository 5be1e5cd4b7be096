"""The van der Pol oscillator, driven by noise: a limit cycle with noise on its speed only.

    d position = speed dt
    d speed    = (mu (1 - position^2) speed - stiffness position) dt + sigma dW
    position ~ N(1, 0.5^2) and speed ~ N(0, 0.5^2) at the start
    y_k = position(t_k) + v_k,   v_k ~ N(0, r^2)

One Euler-Maruyama step for each sample.
"""

import jax.numpy as jnp
import numpyro.distributions as dist

from greybayes.model import Model
from greybayes.noise import Channels, Known
from greybayes.prior import Parameter


class VanDerPol(Model):
    """Van der Pol oscillator as an SDE with noise on one state only."""

    mu = Parameter(dist.Uniform(0.2, 3.0), doc="strength of the nonlinear damping")
    stiffness = Parameter(dist.Uniform(0.5, 2.0), unit="1/s^2")
    sigma = Parameter(dist.Uniform(0.05, 1.0), doc="intensity of the process noise")
    r = Parameter(dist.LogUniform(0.02, 0.5), doc="standard deviation of the measurement noise")
    states, inputs, outputs = ("position", "speed"), (), ("y",)
    dt = 0.05
    n_steps = 400

    def initial(self, u, p):
        return dist.Normal(jnp.array([1.0, 0.0]), jnp.array([0.5, 0.5]))

    def transition(self, x, u, p, t):
        position, speed = x
        acceleration = p.mu * (1 - position**2) * speed - p.stiffness * position
        return Channels(
            position=Known(position + t.dt * speed),
            speed=dist.Normal(speed + t.dt * acceleration, p.sigma * jnp.sqrt(t.dt)),
        )

    def observation(self, x, u, p, t):
        return dist.Normal(x[0], p.r)
