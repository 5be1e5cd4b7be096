"""Stochastic volatility: the log-variance of a return wanders around its mean.

    x_{k+1} = mu + phi (x_k - mu) + sigma w_k,   w_k ~ N(0, 1)
    y_k     = exp(x_k / 2) v_k,                  v_k ~ N(0, 1)
    x_1 ~ N(mu, sigma^2 / (1 - phi^2))

(Taylor 1982; priors after Kim, Shephard and Chib 1998.)
"""

import jax.numpy as jnp
import numpyro.distributions as dist

from greybayes.model import Model
from greybayes.prior import Parameter


class StochasticVolatility(Model):
    """Stochastic volatility of a financial return; no input, noise that multiplies."""

    mu = Parameter(dist.Normal(0.0, 1.0), doc="mean of the log-variance")
    phi = Parameter(dist.Beta(20.0, 1.5), doc="persistence")
    sigma = Parameter(dist.Gamma(2.5, 10.0), doc="standard deviation of the log-variance's steps")
    states, inputs, outputs = ("log_variance",), (), ("y",)
    n_steps = 500

    def initial(self, u, p):
        return dist.Normal(p.mu, p.sigma / jnp.sqrt(1 - p.phi**2))

    def transition(self, x, u, p, t):
        return dist.Normal(p.mu + p.phi * (x - p.mu), p.sigma)

    def observation(self, x, u, p, t):
        return dist.Normal(0.0, jnp.exp(x / 2))
