"""The order in which the gated network reads a record, for JAX and for plain NumPy alike.

    windows of a few samples ─▶ first ─▶ steps ─▶ pool ─▶ near ─▶ pairs[0] ─▶ pool ─▶ pairs[1] ...

Every layer is told what the whole record looks like so far: the mean features of all layers before
it. And, where there are cues, what the input was doing at each position. The layers themselves come
from outside, as functions (features, context, cues) -> features.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

Layer = Callable[[Any, Any, Any], Any]
# Features of records of the model are far smaller. Gates multiply, layer after layer: without an
# end to it, a record that is nothing like the model's would come out as infinity.
_LARGEST = 1e4


class Pyramid(NamedTuple):
    """The layers of a gated network, with the sizes that say how they are joined."""

    first: Callable[[Any, Any], Any]
    """At every sample, on its window, and the cues."""
    steps: Sequence[Layer]
    """At every sample."""
    near: Layer
    """On pairs of neighbours, after the first pool: what four samples do not show."""
    pairs: Sequence[Layer]
    """On pairs of neighbours, one on each level; before all but the first there is a pool."""
    window: int
    pool: int

    def windows(self, xp: Any, channels: Any, length: int) -> Any:
        """The last samples at each position, oldest first; zeros come before the record.

        Time first: a position is then one contiguous slice, and pools are sums of slices.
        """
        n_steps = channels.shape[1]
        total = n_steps + -n_steps % self.pool
        c = xp.swapaxes(channels, 0, 1)
        c = xp.pad(c, ((length - 1 + total - n_steps, 0), (0, 0), (0, 0)))
        return xp.concatenate([c[i : i + total] for i in range(length)], axis=-1)

    def summarise(self, xp: Any, channels: Any, cues: Any = None) -> Any:
        """Mean features of every layer from the last of the steps on, and the last one's last."""
        f = xp.minimum(self.first(self.windows(xp, channels, self.window), cues), _LARGEST)
        means = [f.mean(0)]

        def read(layer: Layer, x: Any) -> Any:
            found = xp.minimum(layer(x, xp.concatenate(means, axis=-1), cues), _LARGEST)
            means.append(found.mean(0))
            return found

        def pooled(x: Any) -> Any:
            return None if x is None else _pooled(xp, x, self.pool)

        for layer in self.steps:
            f = read(layer, f)
        cues = pooled(cues)
        f = read(self.near, _with_neighbour(xp, pooled(f)))
        for level, layer in enumerate(self.pairs):
            if level:
                f, cues = pooled(f), pooled(cues)
            f = read(layer, _with_neighbour(xp, f))
        # Earlier means are in the later ones already, through the contexts.
        return xp.concatenate([*means[len(self.steps) :], f[-1]], axis=-1)


def inputs_of(channels: Any, n_inputs: int, *, one: bool) -> Any:
    """The inputs among the channels: of each record, or of the first where all have the same."""
    return channels[: 1 if one else None, :, channels.shape[-1] - n_inputs :]


def _with_neighbour(xp: Any, f: Any) -> Any:
    """Each position's features beside those of the position before."""
    return xp.concatenate([f, xp.pad(f[:-1], ((1, 0), (0, 0), (0, 0)))], axis=-1)


def _pooled(xp: Any, f: Any, by: int) -> Any:
    """Means of `by` neighbours; zeros fill up the front."""
    f = xp.pad(f, ((-f.shape[0] % by, 0), (0, 0), (0, 0)))
    return f.reshape(-1, by, *f.shape[1:]).mean(1)
