"""A finite impulse response, linear in its parameters: the paper's toy model.

    y_k = sum_{l=1}^{order} theta_l u_{k-l+1} + v_k,   v_k ~ N(0, noise_variance)
    theta ~ N(prior_mean, prior_covariance),   u_k = 0 for k < 1

The state holds the inputs of the last order - 1 samples.
"""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from greybayes.errors import ModelError
from greybayes.inputs import Design, WhiteNoise
from greybayes.model import Model
from greybayes.noise import Known
from greybayes.prior import Fixed, Parameter


class Fir(Model):
    """Finite impulse response of any order with a Gaussian prior (the paper's linear toy)."""

    order: int = 2
    prior_mean: tuple[float, ...] | float = 1.0
    prior_covariance: tuple[tuple[float, ...], ...] | float = 1.0 / 3.0
    """A matrix, or one variance for all taps."""
    n_steps: int = 500
    design: Design | None = WhiteNoise(low=0.0, high=1.0)

    def __post_init__(self) -> None:
        if self.order < 1:
            raise ModelError(f"Fir got order {self.order}, expected 1 or more.")

    def declare(self):
        mean = np.asarray(self.prior_mean, float)
        if mean.shape not in ((), (self.order,)):
            raise ModelError(
                f"Fir got a prior mean of shape {mean.shape}, expected ({self.order},) or a number."
            )
        mean = np.broadcast_to(mean, (self.order,))
        covariance = np.asarray(self.prior_covariance, float)
        if covariance.ndim == 0:
            covariance = covariance * np.eye(self.order)
        if covariance.shape != (self.order, self.order):
            raise ModelError(
                f"Fir got a prior covariance of shape {covariance.shape}, "
                f"expected ({self.order}, {self.order})."
            )
        if not (covariance == covariance.T).all() or np.linalg.eigvalsh(covariance)[0] <= 0:
            raise ModelError("Fir got a prior covariance that is not positive definite.")
        return {
            "theta": Parameter(
                dist.MultivariateNormal(jnp.array(mean), jnp.array(covariance)),
                doc="impulse response",
            ),
            "noise_variance": Fixed(0.09, doc="variance of the measurement noise"),
        }

    @property
    def states(self):
        return tuple(f"u{lag}" for lag in range(1, self.order))

    def initial(self, u, p):
        return Known(jnp.zeros(self.order - 1))

    def transition(self, x, u, p, t):
        return Known(jnp.concatenate([u, x])[: self.order - 1])

    def observation(self, x, u, p, t):
        return dist.Normal(
            (p.theta * jnp.concatenate([u, x])).sum(keepdims=True), jnp.sqrt(p.noise_variance)
        )
