"""The posterior of each record of a batch, on the real line, with the likelihood of a setting."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from greybayes._devices import to_power_of_two
from greybayes.classical.metropolis import Points
from greybayes.classical.starts import check_names, inside, prior_draws, spread
from greybayes.estimate import Estimate
from greybayes.likelihood.many import ManyLogLiks
from greybayes.likelihood.measured import Measured
from greybayes.likelihood.monte_carlo import MOST_PARTICLES, choose_for, log_liks, scores
from greybayes.likelihood.particle import Batch
from greybayes.model import Model

if TYPE_CHECKING:
    from greybayes.classical.cme_mh import CmeMh

# Where the number of particles is to be chosen and nothing is known yet.
_FIRST_GUESS = 128
# Passes by which it is told whether particles lose a record.
_TRIALS = 8


class Posterior:
    """Log-priors and log-likelihoods of whatever is asked; each record has its own particles."""

    def __init__(
        self, model: Model, signals: Measured, settings: "CmeMh", key: Key[Array, ""]
    ) -> None:
        self.model, self.signals, self.settings = model, signals, settings
        self.n_records = len(signals.y)
        first = settings.n_particles or _FIRST_GUESS
        # Without process noise all particles are one, and the likelihood is exact.
        self.fixed = settings.n_particles is not None or model.structure.output_error
        self.n_particles = np.full(self.n_records, 1 if model.structure.output_error else first)
        self._key, self._asked = key, 0
        self.exact: ManyLogLiks | None = None

    def _new_key(self) -> Key[Array, ""]:
        self._asked += 1
        return jr.fold_in(self._key, self._asked)

    @functools.cached_property
    def spread(self) -> Float[np.ndarray, " free"]:
        """How wide the prior is in each unconstrained coordinate."""
        draws = inside(self.model.prior, prior_draws(self.model.prior))
        return spread(self.unconstrain(draws))

    def constrain(
        self, z: Float[np.ndarray, "*lanes free"]
    ) -> tuple[Float[np.ndarray, "*lanes param"], Float[np.ndarray, "*lanes"]]:
        """Theta, and the log-prior of z."""
        thetas, log_prior, _ = self.whole(z)
        return thetas, log_prior

    def whole(
        self, z: Float[np.ndarray, "*lanes free"]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Theta, the log-prior of z, and the log of the Jacobian's determinant that is in it."""
        flat = z.reshape(-1, z.shape[-1])
        filled = flat[to_power_of_two(len(flat))]
        with jax.enable_x64(True):
            found = jax.device_get(
                _constrained(self.model, self.settings.variances == "std", filled)
            )
        thetas, *rest = (part[: len(flat)] for part in found)
        lanes = z.shape[:-1]
        return thetas.reshape(*lanes, -1), *(part.reshape(lanes) for part in rest)

    def unconstrain(self, thetas: Float[np.ndarray, "*lanes param"]) -> np.ndarray:
        """The inverse: z of theta."""
        flat = thetas.reshape(-1, thetas.shape[-1])
        with jax.enable_x64(True):
            filled = flat[to_power_of_two(len(flat))]
            z = np.asarray(_unconstrained(self.model, jnp.asarray(filled, jnp.float64)))
        return z[: len(flat)].reshape(*thetas.shape[:-1], -1)

    def choose(self, thetas: Float[np.ndarray, "record place param"]) -> None:
        """Choose the number of particles of each record, unless it was given.

        The most that any of the places asks for: a chain sticks where its noise is greatest. For an
        exact likelihood the places are those near which it is made ready.
        """
        if self.settings.likelihood == "exact":
            self.exact = ManyLogLiks(self.model, self.signals)
            self.exact.choose(thetas, self._new_key(), 1.0)
            return
        if self.fixed:
            return
        chosen = [
            choose_for(self.model, place, self.signals, self._new_key(), self.settings.filter)[0]
            for place in np.moveaxis(thetas, 1, 0)
        ]
        self.n_particles = np.max(chosen, axis=0)

    def add_particles(self, rows: Int[np.ndarray, " record"]) -> bool:
        """Four times as many for these records, unless they were given; whether there are more."""
        before = self.n_particles[rows]
        if not self.fixed and self.exact is None:
            self.n_particles[rows] = np.minimum(4 * before, MOST_PARTICLES)
        return bool((self.n_particles[rows] > before).any())

    def is_lost(self, row: int, theta: Float[np.ndarray, " param"]) -> bool:
        """Whether even as many particles as a record has lose it at this theta, mostly."""
        if self.exact is not None or self.model.structure.output_error:
            return False
        many = np.full(_TRIALS, row)
        y, u = (a[many] for a in self.signals)
        n, keys = int(self.n_particles[row]), jr.split(self._new_key(), _TRIALS)
        thetas = np.broadcast_to(theta, (_TRIALS, len(theta)))
        _, lost = scores(self.model, n, self.settings.filter, Batch(thetas, y, u, keys))
        return bool(lost.mean() > 0.5)

    def told(self, row: int) -> dict[str, Any]:
        """For diagnostics: the size of a record's likelihood."""
        if self.exact is not None:
            return self.exact.told(row)
        return {"n_particles": int(self.n_particles[row])}

    def at(
        self,
        z: Float[np.ndarray, "record chain free"],
        rows: Int[np.ndarray, " record"] | None = None,
    ) -> Points:
        """The points z of all records, or of some of them."""
        rows = np.arange(self.n_records) if rows is None else rows
        thetas, log_prior = self.constrain(z)
        if self.exact is not None:
            return Points(z, log_prior, self.exact.at(thetas, rows, self._new_key()))
        log_lik = np.empty(log_prior.shape)
        numbers = self.n_particles[rows]
        for n in np.unique(numbers):
            here = np.flatnonzero(numbers == n)
            filled = np.resize(here, _rounded(len(here)))
            log_lik[here] = self._log_liks(int(n), thetas[filled], rows[filled])[: len(here)]
        return Points(z, log_prior, log_lik)

    def _log_liks(self, n_particles: int, thetas: np.ndarray, rows: np.ndarray) -> np.ndarray:
        records, chains, size = thetas.shape
        y, u = (np.repeat(a[rows], chains, axis=0) for a in self.signals)
        keys = jr.split(self._new_key(), records * chains)
        flat = thetas.reshape(-1, size)
        batch = Batch(flat, y, u, keys)
        found = log_liks(self.model, n_particles, self.settings.filter, batch)
        return found.reshape(records, chains)


class Guides:
    """The densities that estimates brought, on the real line, for some rows of a batch."""

    def __init__(
        self, posterior: Posterior, estimates: Sequence[Estimate], rows: Int[np.ndarray, " record"]
    ) -> None:
        self.posterior, self.estimates, self.rows = posterior, estimates, rows

    @classmethod
    def of(cls, posterior: Posterior, start: Any) -> "Guides | None":
        """Of estimates that have a density each; None where what is given is something else."""
        if isinstance(start, Estimate):
            start = [start] * posterior.n_records
        if not isinstance(start, Sequence) or len(start) != posterior.n_records:
            return None
        dense = all(isinstance(each, Estimate) and each.posterior is not None for each in start)
        if not dense:
            return None
        check_names(posterior.model.prior, start)
        return cls(posterior, start, np.arange(len(start)))

    def keep(self, rows: Int[np.ndarray, " record"]) -> "Guides":
        """Of these rows only."""
        return Guides(self.posterior, self.estimates, rows)

    def draw(
        self, rng: np.random.Generator, n_chains: int
    ) -> Float[np.ndarray, "record chain free"]:
        """A draw for each chain."""
        thetas = [self.estimates[row].posterior.sample(n_chains, rng) for row in self.rows]  # pyright: ignore
        return self.posterior.unconstrain(inside(self.posterior.model.prior, np.stack(thetas)))

    def log_density(
        self, z: Float[np.ndarray, "record chain free"]
    ) -> Float[np.ndarray, "record chain"]:
        """With the Jacobian of the way to theta."""
        thetas, _, log_det = self.posterior.whole(z)
        found = [
            self.estimates[row].log_prob(each) for row, each in zip(self.rows, thetas, strict=True)
        ]
        return np.stack(found) + log_det


def _rounded(count: int) -> int:
    """A size not far above: 1, 2, 3, 4, 6, 8, 12, ...; each one is compiled once."""
    power = 1 << (count - 1).bit_length()
    return power * 3 // 4 if power >= 4 and count <= power * 3 // 4 else power


@functools.partial(jax.jit, static_argnums=(0, 1))
def _constrained(model: Model, on_std: bool, z):
    def one(z):
        theta, log_det = model.prior.constrain(z)
        log_prior = model.prior.log_prob(theta) + log_det
        if on_std:
            # d std = d variance / (2 std): what is uniform in one is this in the other.
            log_prior -= jnp.where(model.prior.is_variance, 0.5 * jnp.log(theta), 0.0).sum()
        return theta, log_prior, log_det

    return jax.vmap(one)(z)


@functools.partial(jax.jit, static_argnums=0)
def _unconstrained(model: Model, thetas):
    return jax.vmap(model.prior.unconstrain)(thetas)
