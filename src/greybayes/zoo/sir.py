"""An epidemic: susceptible, infected, removed, as shares of a population, with noisy contagion.

    new = min(S, beta S I dt exp(sigma w_k - sigma^2 / 2)),   w_k ~ N(0, 1)
    S_1 = 1 - infected0,   I_1 = infected0
    S' = S - new,   I' = I + new - gamma I dt
    y_k ~ Binomial(tests, I_k)

Of `tests` people tested at every sample, y are positive.
"""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist

from greybayes.model import Model
from greybayes.noise import Known, Sampler
from greybayes.prior import Parameter


class Tested(dist.BinomialProbs):
    """How many of the tested are positive, drawn by counting them.

    NumPyro's own sampler is a loop that ends by chance; compiled for many paths at once, it was
    seen not to end at all.
    """

    def sample(self, key, sample_shape=()):
        assert key is not None
        probs, count = jnp.asarray(self.probs), int(np.asarray(self.total_count))
        drawn = jr.uniform(key, (*sample_shape, *self.batch_shape, count))
        return (drawn < probs[..., None]).sum(-1)


class Sir(Model):
    """SIR epidemic with noisy contagion and binomial observations of the infected."""

    beta = Parameter(dist.Uniform(0.2, 1.0), unit="1/day", doc="contagion")
    gamma = Parameter(dist.Uniform(0.05, 0.3), unit="1/day", doc="recovery")
    sigma = Parameter(dist.HalfNormal(0.3), doc="standard deviation of the log-contagion")
    infected0 = Parameter(dist.LogUniform(1e-3, 2e-2), doc="share infected at the start")
    states, inputs, outputs = ("susceptible", "infected"), (), ("positive",)
    n_steps = 100
    tests: int = 500
    """People tested at every sample."""

    def initial(self, u, p):
        return Known(jnp.stack([1 - p.infected0, p.infected0]))

    def transition(self, x, u, p, t):
        susceptible, infected = x

        def draw(key):
            noise = jnp.exp(p.sigma * jr.normal(key) - p.sigma**2 / 2)
            new = jnp.minimum(susceptible, p.beta * susceptible * infected * t.dt * noise)
            return jnp.stack([susceptible - new, infected + new - p.gamma * infected * t.dt])

        return Sampler(draw)

    def observation(self, x, u, p, t):
        return Tested(jnp.clip(x[1], 0.0, 1.0), total_count=self.tests)
