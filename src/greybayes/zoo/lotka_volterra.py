"""Predators and prey: the Lotka-Volterra equations with noise, in logarithms.

    d log prey      = (alpha - beta predators - sigma^2 / 2) dt + sigma dW_1
    d log predators = (delta prey - gamma - sigma^2 / 2) dt + sigma dW_2
    log of both populations at the start ~ N(log start, 0.2^2)
    log y_k = log of both populations + v_k,   v_k ~ N(0, r^2)

The logarithms keep populations positive; -sigma^2 / 2 is Ito's correction, so that the noise
leaves the mean growth as it is. Euler-Maruyama with substeps.
"""

import jax.numpy as jnp
import numpyro.distributions as dist

from greybayes.continuous import euler_maruyama
from greybayes.model import Model
from greybayes.prior import Fixed, Parameter


class LotkaVolterra(Model):
    """Predator and prey as an SDE, both counted with log-normal errors."""

    alpha = Parameter(dist.LogNormal(-0.5, 0.3), unit="1/yr", doc="growth of the prey")
    beta = Parameter(dist.LogNormal(-3.5, 0.3), unit="1/yr", doc="predation")
    gamma = Parameter(dist.LogNormal(-0.2, 0.3), unit="1/yr", doc="death of the predators")
    delta = Parameter(dist.LogNormal(-3.7, 0.3), unit="1/yr", doc="growth of the predators")
    sigma = Parameter(dist.Uniform(0.02, 0.3), doc="intensity of the process noise")
    r = Parameter(dist.Uniform(0.05, 0.5), doc="standard deviation of the log-error")
    start = Fixed([30.0, 8.0], doc="prey and predators at the start (median)")
    states, inputs, outputs = ("log_prey", "log_predators"), (), ("prey", "predators")
    dt = 0.25
    n_steps = 100
    substeps: int = 4

    def initial(self, u, p):
        return dist.Normal(jnp.log(p.start), 0.2)

    def transition(self, x, u, p, t):
        def drift(x):
            prey, predators = jnp.exp(x)
            growth = jnp.stack([p.alpha - p.beta * predators, p.delta * prey - p.gamma])
            return growth - p.sigma**2 / 2

        def diffusion(x):
            return jnp.full_like(x, p.sigma)

        return euler_maruyama(drift, diffusion, x, t.dt, self.substeps)

    def observation(self, x, u, p, t):
        return dist.LogNormal(x, p.r)
