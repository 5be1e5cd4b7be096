"""The order in which the gated network reads a record, for JAX and for plain NumPy alike.

    windows of a few samples ─▶ first ─▶ steps ─▶ pool ─▶ near ─▶ pairs[0] ─▶ pool ─▶ pairs[1] ...

Every layer is told what the whole record looks like so far: the mean features of all layers before
it. The layers themselves come from outside, as functions (features, context) -> features.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

Layer = Callable[[Any, Any], Any]
# Features of records of the model are far smaller. Gates multiply, layer after layer: without an
# end to it, a record that is nothing like the model's would come out as infinity.
_LARGEST = 1e4


class Pyramid(NamedTuple):
    """The layers of a gated network, with the sizes that say how they are joined."""

    first: Callable[[Any], Any]
    """At every sample, on its window: `(rows, channels of a window)` to features."""
    steps: Sequence[Layer]
    """At every sample."""
    near: Layer
    """On pairs of neighbours, after the first pool: what four samples do not show."""
    pairs: Sequence[Layer]
    """On pairs of neighbours, one on each level; before all but the first there is a pool."""
    window: int
    pool: int

    def summarise(self, xp: Any, channels: Any) -> Any:
        """Mean features of every layer from the last of the steps on, and the last one's last."""
        batch, n_steps, _ = channels.shape
        total = n_steps + -n_steps % self.pool
        # Time first: a position is then one contiguous slice, and pools are sums of slices.
        c = xp.swapaxes(channels, 0, 1)
        c = xp.pad(c, ((self.window - 1 + total - n_steps, 0), (0, 0), (0, 0)))
        windows = xp.concatenate([c[i : i + total] for i in range(self.window)], axis=-1)
        f = self.first(windows.reshape(total * batch, -1)).reshape(total, batch, -1)
        f = xp.minimum(f, _LARGEST)
        means = [f.mean(0)]

        def read(layer: Layer, x: Any) -> Any:
            found = xp.minimum(layer(x, xp.concatenate(means, axis=-1)), _LARGEST)
            means.append(found.mean(0))
            return found

        for layer in self.steps:
            f = read(layer, f)
        f = read(self.near, _with_neighbour(xp, _pooled(xp, f, self.pool)))
        for level, layer in enumerate(self.pairs):
            f = f if level == 0 else _pooled(xp, f, self.pool)
            f = read(layer, _with_neighbour(xp, f))
        # Earlier means are in the later ones already, through the contexts.
        return xp.concatenate([*means[len(self.steps) :], f[-1]], axis=-1)


def _with_neighbour(xp: Any, f: Any) -> Any:
    """Each position's features beside those of the position before."""
    return xp.concatenate([f, xp.pad(f[:-1], ((1, 0), (0, 0), (0, 0)))], axis=-1)


def _pooled(xp: Any, f: Any, by: int) -> Any:
    """Means of `by` neighbours; zeros fill up the front."""
    f = xp.pad(f, ((-f.shape[0] % by, 0), (0, 0), (0, 0)))
    return f.reshape(-1, by, *f.shape[1:]).mean(1)
