"""Log-likelihoods of many thetas for each of many records: exact where a model has it.

Without process noise it is a closed form, for linear-Gaussian models it is Kalman's, and for all
others a particle filter's, each record with as many particles as its noise asks for.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from greybayes.likelihood import kalman, output_error
from greybayes.likelihood.density import without_density
from greybayes.likelihood.measured import Measured
from greybayes.likelihood.monte_carlo import choose_for, log_liks
from greybayes.likelihood.particle import Filter
from greybayes.likelihood.proposals import has_gaussian_transition
from greybayes.model import Model

# Filters that are compiled, and told of, together.
_TOGETHER = 2048


def kind_of(model: Model) -> str:
    """Which likelihood a model has: `closed form`, `kalman` or `particle`.

    >>> import greybayes as gb
    >>> [kind_of(gb.get_model(name)) for name in ("fir", "linear-gaussian", "growth2")]
    ['closed form', 'kalman', 'particle']
    """
    if output_error.not_output_error(model) is None:
        return "closed form"
    return "kalman" if kalman.is_linear_gaussian(model) else "particle"


class ManyLogLiks:
    """Log-likelihoods of a batch of records, for whatever thetas are asked."""

    def __init__(
        self,
        model: Model,
        signals: Measured,
        settings: Filter | None = None,
        n_particles: int | None = None,
    ) -> None:
        self.model, self.signals = model, signals
        self.kind = kind_of(model)
        # Looking ahead pays for itself wherever it can be done.
        guided = self.kind == "particle" and has_gaussian_transition(model)
        self.filter = settings or Filter("guided" if guided else "bootstrap")
        self._given = n_particles
        self.n_particles = np.full(len(signals.y), n_particles or 0)

    @staticmethod
    def missing(model: Model) -> str | None:
        """What a model lacks to have any of them, as a clause."""
        return without_density(model, "observation")

    def choose(
        self, thetas: Float[np.ndarray, "record param"], key: Key[Array, ""], variance: float
    ) -> None:
        """Choose each record's particles, unless they were given: so many for this variance."""
        if self.kind == "particle" and self._given is None:
            self.n_particles = choose_for(
                self.model, thetas, self.signals, key, self.filter, variance
            )

    def at(
        self,
        thetas: Float[np.ndarray, "record draw param"],
        rows: Int[np.ndarray, " record"],
        key: Key[Array, ""],
        tell: Callable[[int], None] = lambda done: None,
    ) -> Float[np.ndarray, "record draw"]:
        """Of the thetas of some records, given by their rows; `tell` hears how many are done."""
        if self.kind != "particle":
            return self._exact(thetas, rows, tell)
        n_draws = thetas.shape[1]
        found = np.empty(thetas.shape[:2]).reshape(-1)
        flat, records = thetas.reshape(-1, thetas.shape[2]), np.repeat(rows, n_draws)
        keys = jr.split(key, len(flat))
        done = 0
        for n in np.unique(self.n_particles[rows]):
            here = np.flatnonzero(self.n_particles[records] == n)
            for part in np.split(here, range(_TOGETHER, len(here), _TOGETHER)):
                # A power of two, so that few numbers are compiled.
                filled = np.resize(part, 1 << (len(part) - 1).bit_length())
                y, u = (a[records[filled]] for a in self.signals)
                some = log_liks(self.model, int(n), self.filter, flat[filled], y, u, keys[filled])
                found[part] = some[: len(part)]
                done += len(part)
                tell(done)
        return found.reshape(thetas.shape[:2])

    def _exact(self, thetas, rows, tell) -> Float[np.ndarray, "record draw"]:
        exact = {"closed form": output_error._log_liks, "kalman": kalman._log_liks}[self.kind]
        found = np.empty(thetas.shape[:2])
        with jax.enable_x64(True):
            for i, row in enumerate(rows):
                y, u = (a[row] for a in self.signals)
                given = (jnp.asarray(a, jnp.float64) for a in (thetas[i], y, u))
                found[i] = np.asarray(exact(self.model, *given))
                tell((i + 1) * thetas.shape[1])
        return found
