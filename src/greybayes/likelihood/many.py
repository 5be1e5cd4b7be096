"""Log-likelihoods of many thetas for each of many records: exact where a model has it.

Without process noise it is a closed form, for linear-Gaussian models it is Kalman's, for others
with one state a quadrature on nodes that are placed for each record. For all the rest, and for
records that would need too many nodes, it is a particle filter's, each record with as many
particles as its noise asks for.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from greybayes._devices import to_power_of_two
from greybayes.likelihood import kalman, output_error
from greybayes.likelihood.density import without_density
from greybayes.likelihood.grid import Nodes, choose_nodes, grid_log_liks, stacked, without_grid
from greybayes.likelihood.measured import Measured
from greybayes.likelihood.monte_carlo import choose_for, log_liks
from greybayes.likelihood.particle import Batch, Filter
from greybayes.model import Model

# Filters that are compiled, and told of, together.
_TOGETHER = 2048


def kind_of(model: Model) -> str:
    """Which likelihood a model has: `closed form`, `kalman`, `grid` or `particle`.

    >>> import greybayes as gb
    >>> names = "fir", "linear-gaussian", "growth2", "van-der-pol"
    >>> [kind_of(gb.get_model(name)) for name in names]
    ['closed form', 'kalman', 'grid', 'particle']
    """
    if output_error.not_output_error(model) is None:
        return "closed form"
    if kalman.is_linear_gaussian(model):
        return "kalman"
    return "particle" if without_grid(model) else "grid"


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
        kind = kind_of(model)
        self.kind = "particle" if kind == "grid" and n_particles is not None else kind
        self.filter = settings or (Filter.looking_ahead(model) if self.is_drawn else Filter())
        self._given = n_particles
        self.n_particles = np.full(len(signals.y), n_particles or 0)
        self._variances = np.full(len(signals.y), np.nan)
        self._nodes: list[Nodes | None] = [None] * len(signals.y)

    @property
    def is_drawn(self) -> bool:
        """Whether particles are needed, if only to place nodes."""
        return self.kind in ("grid", "particle")

    @staticmethod
    def missing(model: Model) -> str | None:
        """What a model lacks to have any of them, as a clause."""
        return without_density(model, "observation")

    def choose(
        self,
        thetas: Float[np.ndarray, "record place param"],
        key: Key[Array, ""],
        variance: float,
        rows: Int[np.ndarray, " record"] | None = None,
        tell: Callable[[int], None] = lambda done: None,
        *,
        keep: bool = False,
    ) -> None:
        """Choose what each record needs near some thetas: nodes, or particles for this variance.

        Particles are chosen at the first of the thetas, unless they were given. `rows` are the
        records of the thetas, where those are not of all; `tell` hears how many have nodes. With
        `keep` a record that has nodes keeps them where no others are found.
        """
        if not self.is_drawn:
            return
        rows = np.arange(len(self.signals.y)) if rows is None else rows
        key_nodes, key_particles = jr.split(key)
        if self.kind == "grid":
            keys = jr.split(key_nodes, len(rows))
            for done, (row, near, each) in enumerate(zip(rows, thetas, keys, strict=True), 1):
                signals = Measured(*(a[row] for a in self.signals))
                found = choose_nodes(self.model, near, signals, each, self.filter)
                self._nodes[row] = self._nodes[row] if keep and found is None else found
                tell(done)
        without = self.n_nodes[rows] == 0
        if self._given is None and without.any():
            signals = Measured(*(a[rows[without]] for a in self.signals))
            self.n_particles[rows[without]], self._variances[rows[without]] = choose_for(
                self.model, thetas[without, 0], signals, key_particles, self.filter, variance
            )

    @property
    def n_nodes(self) -> Int[np.ndarray, " record"]:
        """Of each record; 0 where it has particles."""
        return np.array([0 if nodes is None else nodes.x.shape[1] for nodes in self._nodes])

    def told(self, row: int) -> dict[str, Any]:
        """For diagnostics: the likelihood of a record, and its size."""
        if not self.is_drawn:
            return {"likelihood": self.kind}
        nodes = int(self.n_nodes[row])
        if nodes:
            return {"likelihood": "grid", "n_nodes": nodes}
        told = {"likelihood": "particle", "n_particles": int(self.n_particles[row])}
        # Where the number was given, nobody measured it.
        variance = float(self._variances[row])
        return told if np.isnan(variance) else {**told, "log_lik_variance": variance}

    def at(
        self,
        thetas: Float[np.ndarray, "record draw param"],
        rows: Int[np.ndarray, " record"],
        key: Key[Array, ""],
        tell: Callable[[int], None] = lambda done: None,
    ) -> Float[np.ndarray, "record draw"]:
        """Of the thetas of some records, given by their rows; `tell` hears how many are done."""
        if not self.is_drawn:
            return self._exact(thetas, rows, tell)
        n_draws = thetas.shape[1]
        found = np.empty(thetas.shape[:2]).reshape(-1)
        flat, records = thetas.reshape(-1, thetas.shape[2]), np.repeat(rows, n_draws)
        keys = jr.split(key, len(flat))
        done = 0
        # Records with as many nodes, or else as many particles, go together.
        sizes = np.stack([self.n_nodes, self.n_particles * (self.n_nodes == 0)], axis=1)[records]
        for n_nodes, n in np.unique(sizes, axis=0):
            here = np.flatnonzero((sizes == (n_nodes, n)).all(1))
            for part in np.split(here, range(_TOGETHER, len(here), _TOGETHER)):
                if n_nodes:
                    found[part] = self._on_nodes(flat[part], records[part])
                else:
                    found[part] = self._with_particles(
                        int(n), flat[part], records[part], keys[part]
                    )
                done += len(part)
                tell(done)
        return found.reshape(thetas.shape[:2])

    def _with_particles(self, n, thetas, records, keys) -> Float[np.ndarray, " draw"]:
        filled = to_power_of_two(len(thetas))
        y, u = (a[records[filled]] for a in self.signals)
        batch = Batch(thetas[filled], y, u, keys[filled])
        some = log_liks(self.model, n, self.filter, batch)
        return some[: len(thetas)]

    def _on_nodes(self, thetas, records) -> Float[np.ndarray, " draw"]:
        several, rows = np.unique(records, return_inverse=True)
        filled = several[to_power_of_two(len(several))]
        nodes = stacked([nodes for row in filled if (nodes := self._nodes[row]) is not None])
        signals = Measured(*(a[filled] for a in self.signals))
        return grid_log_liks(self.model, thetas, signals, nodes, rows)

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
