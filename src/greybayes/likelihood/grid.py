"""The likelihood of models with one state by quadrature, on nodes that are placed for a record.

A particle filter shows, for thetas near the answer, where the state can be at each sample. Nodes
are placed there: dense where the state is, and nowhere much farther apart than next door. A pass
then sums what each node predicts for all nodes of the next sample. That is the square of the number
of nodes in densities, and no noise: 32 nodes are worth thousands of particles where a record is
easy. How many are needed is measured, by doubling them.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from greybayes._devices import over_devices, to_power_of_two
from greybayes._lanes import as_key
from greybayes._types import Seed
from greybayes.drawing import clock, delayed
from greybayes.errors import GreybayesError, ModelError
from greybayes.likelihood.density import log_density, moments, observed, without_density
from greybayes.likelihood.measured import Measured, measured
from greybayes.likelihood.particle import Batch, Filter, batch_passes
from greybayes.likelihood.proposals import has_gaussian_transition
from greybayes.model import Model
from greybayes.record import Record
from greybayes.structure import Kind, distribution
from greybayes.zoo import get_model

FEWEST, MOST = 32, 512
# What twice as many nodes may change in the log-likelihood: its standard deviation over thetas,
# which moves a posterior, and its mean, which moves the evidence.
_TOLERANCE, _SHIFT = 0.03, 0.1
# And where the most nodes have to do: particles would have to be tens of thousands for as little.
_AT_MOST = 0.2
# Thetas whose log-likelihood is farther below the best are not asked: their weights are nothing.
_FAR = 12.0
PLACED, NEAR = 64, 80
"""Thetas for which nodes are placed, and with those on which they are tried.

Little noise draws the particles of each theta to a place of its own: few thetas leave gaps, into
which others fall.
"""
# Particles of all thetas together.
_PARTICLES = 8192
# Cells of a histogram in which nodes are placed, and over how many it is smoothed, three times.
_CELLS, _SMOOTH = 4096, 4
# Nodes lie as dense as this power of the density (the cube root is best for smooth functions), and
# the distance of neighbours grows by at most this share of it.
_POWER, _GROWTH = 1 / 3, 0.1
# A function is flat that turns less than this often over the range of the state.
_LEVEL = 0.1
# Room beyond the particles, as a share of their range.
_ROOM = 0.15
# Pairs of nodes whose densities one device computes together: they stay in the cache of a core.
_TOGETHER = 2**16


class Nodes(NamedTuple):
    """Where the state is looked at, and the widths that turn sums to integrals."""

    x: Float[np.ndarray, "*records steps node"]
    width: Float[np.ndarray, "*records steps node"]


def without_grid(model: Model) -> str | None:
    """What a model lacks for it, as a clause.

    >>> import greybayes as gb
    >>> without_grid(gb.get_model("growth2")) is None
    True
    >>> without_grid(gb.get_model("van-der-pol"))
    'it has 2 states, and nodes can be placed for one'
    """
    if len(model.states) != 1:
        return f"it has {len(model.states)} states, and nodes can be placed for one"
    if model.structure.initial is not Kind.known:
        lacks = without_density(model, "initial")
        if lacks:
            return lacks
    return without_density(model, "transition", "observation") or _discrete(model)


@functools.cache
def _discrete(model: Model) -> str | None:
    """Whether the state has a density or counts."""

    def transition(theta, x, u):
        t = jax.tree.map(lambda a: a[0], clock(model, 1))
        return distribution(model, "transition", x, u, model.p(theta), t)

    zeros = (jnp.zeros(n) for n in (model.prior.size, 1, len(model.inputs)))
    found: list[bool] = []
    jax.eval_shape(lambda *given: found.append(transition(*given).is_discrete), *zeros)
    return "its state counts, and a density is needed there" if found[0] else None


def grid_log_lik(
    model: Model | str,
    thetas: Float[np.ndarray, "batch param"],
    record: Record,
    *,
    key: Seed = 0,
) -> Float[np.ndarray, " batch"]:
    """The log-likelihood of a record for each of many thetas, for a model with one state.

    Nodes are placed near the thetas, which should be of one neighbourhood, such as draws of a
    posterior.

    >>> import greybayes as gb
    >>> record = gb.simulate("growth2", np.array([0.7, 1.0, 0.1, 0.5]), key=1)[0]
    >>> thetas = np.array([[0.7, 1.0, 0.1, 0.5], [0.6, 1.0, 0.1, 0.5]])
    >>> grid_log_lik("growth2", thetas, record).shape
    (2,)
    """
    model = get_model(model)
    lacks = without_grid(model)
    if lacks:
        raise ModelError(f"a grid cannot serve {type(model).__name__}: {lacks}.")
    signals, thetas = measured(model, record), np.asarray(thetas, float)
    nodes = choose_nodes(model, thetas, signals, as_key(key), Filter.looking_ahead(model))
    if nodes is None:
        raise GreybayesError(
            f"the state of {type(model).__name__} moves too finely in this record for {MOST} "
            "nodes; use particle_log_lik."
        )
    batch = Measured(*(a[None] for a in signals))
    return grid_log_liks(model, thetas, batch, stacked([nodes]), np.zeros(len(thetas), int))


def choose_nodes(
    model: Model,
    thetas: Float[np.ndarray, "place param"],
    signals: Measured,
    key: Key[Array, ""],
    settings: Filter,
) -> Nodes | None:
    """Nodes for one record, as many as it needs near these thetas; None where too many.

    For the first of the thetas they are placed, with the rest it is measured whether they suffice;
    `NEAR` are enough.
    """
    y, u = (np.asarray(a, np.float32) for a in signals)
    placing = thetas[:PLACED]
    asked = thetas[PLACED:] if len(thetas) > PLACED else thetas
    many = [np.repeat(a[None], len(placing), axis=0) for a in (y, u)]
    keys = jr.split(key, len(placing))
    batch = Batch(placing.astype(np.float32), many[0], many[1], keys)
    passed = jax.device_get(batch_passes(model, _PARTICLES // len(placing), settings, True, batch))
    spread = _spread(passed.history.x[:, :, 0], np.exp(passed.history.log_w))
    if has_gaussian_transition(model):
        steepness = _steepness(model, placing[0], u, spread.middles)
        spread = spread.finer_where_steep(np.asarray(steepness))
    rows = np.zeros(len(asked), int)

    def found(nodes: Nodes) -> np.ndarray:
        return grid_log_liks(model, asked, Measured(y[None], u[None]), stacked([nodes]), rows)

    nodes = spread.nodes(FEWEST)
    now = found(nodes)
    while True:
        finer = spread.nodes(2 * nodes.x.shape[1])
        then = found(finer)
        near = then > then.max() - _FAR
        with np.errstate(invalid="ignore"):  # -inf less -inf.
            change = (now - then)[near]
        moves, shifts = (change.std(), abs(change.mean())) if len(change) else (np.inf, np.inf)
        if moves < _TOLERANCE and shifts < _SHIFT:
            return nodes
        if nodes.x.shape[1] == MOST:
            return nodes if max(moves, shifts) < _AT_MOST else None
        nodes, now = finer, then


class _Spread(NamedTuple):
    """How far apart nodes should be, in cells and up to a factor; where cells begin; their size."""

    distance: Float[np.ndarray, "steps cell"]
    low: Float[np.ndarray, " steps"]
    size: Float[np.ndarray, " steps"]

    @property
    def middles(self) -> Float[np.ndarray, "steps cell"]:
        """Of the cells."""
        cells = np.arange(self.distance.shape[1]) + 0.5
        return self.low[:, None] + self.size[:, None] * cells

    def finer_where_steep(self, steepness: Float[np.ndarray, "steps cell"]) -> "_Spread":
        """Denser where a small step of the state is a large one, in deviations, of the next."""
        range_ = self.size[:, None] * self.distance.shape[1]
        turns = np.nan_to_num(steepness) * range_ * _LEVEL
        return self._replace(distance=self.distance * (1 + turns**2) ** (-_POWER))

    def nodes(self, count: int) -> Nodes:
        """So many nodes at each sample."""
        steps, cells = self.distance.shape
        # As given by the density, then no farther apart than growth from a neighbour allows.
        distance = self.distance * (1 / self.distance).sum(1, keepdims=True) / count
        slope = _GROWTH * np.arange(cells)
        for _ in range(2):
            distance = slope + np.minimum.accumulate(distance - slope, axis=1)
            distance = distance[:, ::-1]
        # Nodes passed before each edge of a cell; the growth asked for more than `count`.
        passed = np.concatenate([np.zeros((steps, 1)), np.cumsum(1 / distance, axis=1)], axis=1)
        scale = passed[:, -1:] / count
        places = (np.arange(count) + 0.5) * scale
        edges, middles = np.arange(cells + 1.0), np.arange(cells) + 0.5
        at = np.stack([np.interp(*each, edges) for each in zip(places, passed, strict=True)])
        width = np.stack([np.interp(a, middles, d) for a, d in zip(at, distance, strict=True)])
        size = self.size[:, None]
        return Nodes(self.low[:, None] + size * at, size * scale * width)


@functools.partial(jax.jit, static_argnums=0)
def _steepness(model: Model, theta, u, x) -> Float[Array, "steps cell"]:
    """By how many standard deviations the next state moves, for each unit of this one."""
    p, late = model.p(jnp.asarray(theta, jnp.float32)), delayed(model, jnp.asarray(u))

    def at(x, u, t):
        def mean(x):
            return moments(distribution(model, "transition", x[None], u, p, t))[0][0]

        _, covariance = moments(distribution(model, "transition", x[None], u, p, t))
        return jnp.abs(jax.grad(mean)(x)) / jnp.sqrt(covariance[0, 0])

    along = jax.vmap(at, in_axes=(0, None, None))
    return jax.vmap(along)(jnp.asarray(x, jnp.float32), late, clock(model, len(late)))


def _spread(
    x: Float[np.ndarray, "theta steps particle"], weights: Float[np.ndarray, "theta steps particle"]
) -> _Spread:
    """Of weighted particles, of all thetas together."""
    x, weights = (np.moveaxis(a, 1, 0).reshape(a.shape[1], -1).astype(float) for a in (x, weights))
    weights = np.where(np.isfinite(x), weights, 0.0)
    x = np.where(weights > 0, x, x[np.arange(len(x)), weights.argmax(1)][:, None])
    low, high = x.min(1), x.max(1)
    room = _ROOM * (high - low) + 1e-6 * (1 + np.abs(low))
    low, size = low - room, (high - low + 2 * room) / _CELLS
    cell = np.clip((x - low[:, None]) / size[:, None], 0, _CELLS - 1).astype(int)
    cell += _CELLS * np.arange(len(x))[:, None]
    counted = np.bincount(cell.ravel(), weights.ravel(), len(x) * _CELLS)
    density = counted.reshape(len(x), _CELLS)
    for _ in range(3):
        sums = np.cumsum(np.pad(density, ((0, 0), (_SMOOTH + 1, _SMOOTH))), axis=1)
        density = sums[:, 2 * _SMOOTH + 1 :] - sums[:, : -2 * _SMOOTH - 1]
    top = density.max(1, keepdims=True)
    return _Spread(np.maximum(density / top, 1e-30) ** -_POWER, low, size)


def stacked(nodes: list[Nodes]) -> Nodes:
    """The nodes of several records, as many for each, as one batch."""
    return Nodes(*(np.stack(each).astype(np.float32) for each in zip(*nodes, strict=True)))


def grid_log_liks(
    model: Model,
    thetas: Float[np.ndarray, "batch param"],
    signals: Measured,
    nodes: Nodes,
    rows: Int[np.ndarray, " batch"],
) -> Float[np.ndarray, " batch"]:
    """Log-likelihoods of thetas, each for the record of its row; nodes are those of the records."""
    thetas, y, u = (np.asarray(a, np.float32) for a in (thetas, *signals))
    filled = to_power_of_two(len(thetas))
    given = _Lanes(thetas[filled], rows[filled])
    increments = _batch(model, given, (y, u, *nodes))
    return np.asarray(increments, float).sum(1)[: len(thetas)]


class _Lanes(NamedTuple):
    theta: Float[Array, "batch param"] | Float[np.ndarray, "batch param"]
    row: Int[Array, " batch"] | Int[np.ndarray, " batch"]


@functools.partial(jax.jit, static_argnums=0)
def _batch(model: Model, lanes: _Lanes, signals) -> Float[Array, "batch steps"]:
    """The increments of many passes, split over all devices."""

    def one(lane: _Lanes, signals):
        y, u, x, width = (a[lane.row] for a in signals)
        p = model.p(jnp.asarray(lane.theta))
        return _increments(model, p, y, delayed(model, u), x, width)

    n_nodes = signals[2].shape[-1]
    return over_devices(one, _TOGETHER // n_nodes**2, lanes, signals)


def _increments(model: Model, p, y, u, x, width) -> Float[Array, " steps"]:
    """log p(y_k | y_1 ... y_{k-1}) of one record; -inf where no node can have made the sample."""
    times = clock(model, len(y))
    n_nodes = x.shape[1]

    def seen(x, masses, y, u, t):
        """Masses of the nodes after a sample, summing to one, and the log of their sum before."""
        log_seen = observed(model, x[None], y, u, p, t)
        log_seen = jnp.where(jnp.isnan(log_seen), -jnp.inf, log_seen)
        top = jnp.where(jnp.isfinite(log_seen.max()), log_seen.max(), 0.0)
        masses = masses * jnp.exp(log_seen - top)
        total = masses.sum()
        return masses / jnp.where(total > 0, total, 1.0), top + jnp.log(total)

    def step(carried, given):
        before, masses = carried
        x, width, y, u, t, u_before, t_before = given

        def predicted(before):
            d = distribution(model, "transition", before[None], u_before, p, t_before)
            return jax.vmap(lambda x: _density(d, x))(x)

        masses = (masses @ jax.vmap(predicted)(before)) * width
        masses, gained = seen(x, masses, y, u, t)
        return (x, masses), gained

    initial = distribution(model, "initial", u[0], p)
    if model.structure.initial is Kind.known:
        first = jnp.broadcast_to(initial.sample(jr.key(0)), (n_nodes,)).astype(x.dtype)
        masses = jnp.full(n_nodes, 1 / n_nodes, x.dtype)
    else:
        first = x[0]
        masses = jax.vmap(lambda x: _density(initial, x))(first) * width[0]
    masses, gained = seen(first, masses, *jax.tree.map(lambda a: a[0], (y, u, times)))
    later = jax.tree.map(lambda a: a[1:], (x, width, y, u, times))
    before = jax.tree.map(lambda a: a[:-1], (u, times))
    _, rest = jax.lax.scan(step, (first, masses), (*later, *before))
    return jnp.concatenate([gained[None], rest])


def _density(d, x) -> Float[Array, ""]:
    """Of a state; 0 where the distribution has none."""
    density = jnp.exp(log_density(d, x[None], None))
    return jnp.where(jnp.isnan(density), 0.0, density)
