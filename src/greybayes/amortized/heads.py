"""Heads: from the summary of a record to theta, and to its posterior."""

import abc
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from greybayes.amortized.forward import FARTHEST
from greybayes.amortized.layers import Dense
from greybayes.amortized.line import Line
from greybayes.amortized.mixture import log_density, n_raw, unpack
from greybayes.errors import ModelError
from greybayes.prior import Prior

Summary = Float[Array, "batch summary"]
Thetas = Float[Array, "batch param"]


class Head(eqx.Module):
    """Gives theta, and the loss it is trained with."""

    @abc.abstractmethod
    def theta(self, summary: Summary) -> Thetas:
        """The estimate for each summary."""

    @abc.abstractmethod
    def loss(self, summary: Summary, theta: Thetas) -> Float[Array, " batch"]:
        """What training makes small, for each record."""


class Unconstrained(eqx.Module):
    """Where the prior lies on the unconstrained line: location and spread of each entry."""

    location: tuple[float, ...] = eqx.field(static=True)
    spread: tuple[float, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, prior: Prior, n_draws: int = 10_000) -> "Unconstrained":
        """Measured on fixed draws of the prior."""
        thetas = prior.sample(jr.key(0), jnp.arange(n_draws, dtype=jnp.uint32))
        free = np.asarray(jax.vmap(prior.unconstrain)(thetas), float)
        # float32 puts a draw on the bound itself now and then, and its image at infinity.
        free = np.where(np.isfinite(free), free, np.nan)
        return cls(
            tuple(np.nanmedian(free, axis=0).tolist()), tuple(np.nanstd(free, axis=0).tolist())
        )


class Lines(NamedTuple):
    """Where a prior lies on the lines of the heads: that of the mean, and that of the density."""

    mean: Unconstrained
    density: Line | None

    @classmethod
    def of(cls, prior: Prior) -> "Lines":
        """Measured on fixed draws of the prior."""
        return cls(Unconstrained.of(prior), line_of(prior))


class BoundedMean(Head):
    """Our default: a mean that cannot leave the support of its prior.

    The network's output is the standardised position on the unconstrained line; the prior's own
    bijection takes it into the support. So scales of parameters do not matter, and neither do
    those of their priors. The loss is the squared error over the prior variance.
    """

    usual: ClassVar[dict[str, int]] = {"dense": 128}
    hidden: list[Dense]
    out: Dense
    line: Unconstrained
    prior: Prior = eqx.field(static=True)

    def __init__(
        self,
        n_summary: int,
        prior: Prior,
        key: Key[Array, ""],
        *,
        dense: int = usual["dense"],
        lines: Lines | None = None,
    ) -> None:
        width = dense
        key_one, key_two, key_out = jr.split(key, 3)
        self.hidden = [Dense(n_summary, width, key_one), Dense(width, width, key_two)]
        self.line = (lines or Lines.of(prior)).mean
        # A small start: every first estimate is near the middle of the prior.
        self.out = Dense(width, len(self.line.location), key_out, gain=0.02)
        self.prior = prior

    def theta(self, summary: Summary) -> Thetas:
        for layer in self.hidden:
            summary = layer.relu(summary)
        return self._constrained(self.out(summary))

    def _constrained(self, out: Float[Array, "batch free"]) -> Thetas:
        out = jnp.clip(out, -FARTHEST, FARTHEST)
        free = jnp.array(self.line.location) + jnp.array(self.line.spread) * out
        theta = jax.vmap(lambda phi: self.prior.constrain(phi)[0])(free)
        # In float32 the bijection may round to the bound itself, which has no density.
        low, high = self.prior.bounds
        return jnp.clip(theta, np.nextafter(low, np.inf), np.nextafter(high, -np.inf))

    def loss(self, summary: Summary, theta: Thetas) -> Float[Array, " batch"]:
        return normalised_error(self.prior, self.theta(summary), theta)


class MeanAndPosterior(BoundedMean):
    """Our default: the bounded mean, and beside it a mixture of normals on the line.

    The mean is trained with the squared error as before, the mixture with its log-density at the
    true theta. They share the first layer.
    """

    usual: ClassVar[dict[str, int]] = {"dense": 128, "components": 8}
    own: Dense
    raw: Dense
    density_line: Line = eqx.field(static=True)
    n_components: int = eqx.field(static=True)

    def __init__(
        self,
        n_summary: int,
        prior: Prior,
        key: Key[Array, ""],
        *,
        dense: int = usual["dense"],
        components: int = usual["components"],
        lines: Lines | None = None,
    ) -> None:
        lines = lines or Lines.of(prior)
        key_mean, key_own, key_raw, key_centre = jr.split(key, 4)
        super().__init__(n_summary, prior, key_mean, dense=dense, lines=lines)
        if lines.density is None:
            raise ModelError(
                "the posterior head knows parameters that are real, bounded below or in an "
                "interval; for other supports train the mean alone: head=bounded."
            )
        self.density_line, self.n_components = lines.density, components
        self.own = Dense(dense, dense, key_own)
        raw = Dense(dense, n_raw(components, prior.size), key_raw, gain=0.02)
        # Centres apart, over the prior: components that start alike stay alike.
        apart = 0.7 * jr.normal(key_centre, (components * prior.size,))
        bias = raw.bias.at[components : components * (1 + prior.size)].set(apart)
        self.raw = eqx.tree_at(lambda layer: layer.bias, raw, bias)

    def mixture(self, summary: Summary) -> Float[Array, "batch raw"]:
        """The raw numbers of the mixture of each record."""
        return self.raw(self.own.relu(self.hidden[0].relu(summary)))

    def loss(self, summary: Summary, theta: Thetas) -> Float[Array, " batch"]:
        first = self.hidden[0].relu(summary)
        mean = self._constrained(self.out(self.hidden[1].relu(first)))
        raw = self.raw(self.own.relu(first))
        parts = unpack(jnp, raw, self.n_components, self.prior.size)
        log_prob = log_density(jnp, parts, self.density_line.to_line(jnp, theta))
        shared = SHARE_OF_POSTERIOR / self.prior.size
        return normalised_error(self.prior, mean, theta) - shared * log_prob


SHARE_OF_POSTERIOR = 0.1
"""What the log-density of one parameter counts in the loss, beside the squared error."""


def line_of(prior: Prior, n_draws: int = 10_000) -> Line | None:
    """The line of a prior, measured on fixed draws of it; None for supports of other kinds."""
    supports, bounds = zip(*prior.supports, strict=True)
    if None in supports:
        return None
    line = Line(supports, bounds, (0.0,) * prior.size, (1.0,) * prior.size)
    thetas = prior.sample(jr.key(0), jnp.arange(n_draws, dtype=jnp.uint32))
    return line.standardised(np.asarray(thetas, float))


class PaperMean(Head):
    """The paper's: a ReLU layer of n_z units and a linear map; variances as standard deviations.

    The loss is the mean squared error in the units it regresses, as the paper's code has it.
    """

    usual: ClassVar[dict[str, int]] = {"dense": 32}
    dense: Dense
    out: Dense
    prior: Prior = eqx.field(static=True)

    def __init__(
        self,
        n_summary: int,
        prior: Prior,
        key: Key[Array, ""],
        *,
        dense: int = usual["dense"],
        lines: Lines | None = None,
    ) -> None:
        del lines  # It regresses theta as it is.
        key_dense, key_out = jr.split(key)
        self.dense = _torch_start(Dense(n_summary, dense, key_dense), key_dense)
        self.out = _torch_start(Dense(dense, prior.size, key_out), key_out)
        self.prior = prior

    def _regressed(self, summary: Summary) -> Thetas:
        return self.out(self.dense.relu(summary))

    def theta(self, summary: Summary) -> Thetas:
        out = self._regressed(summary)
        return jnp.where(self.prior.is_variance, out**2, out)

    def loss(self, summary: Summary, theta: Thetas) -> Float[Array, " batch"]:
        target = jnp.where(self.prior.is_variance, jnp.sqrt(jnp.maximum(theta, 0.0)), theta)
        return ((self._regressed(summary) - target) ** 2).mean(-1)


def _torch_start(layer: Dense, key: Key[Array, ""]) -> Dense:
    """PyTorch's start of a linear layer, uniform within 1 / sqrt(n_in)."""
    key_weight, key_bias = jr.split(key)
    bound = layer.weight.shape[0] ** -0.5
    start = (
        jr.uniform(key_weight, layer.weight.shape, minval=-bound, maxval=bound),
        jr.uniform(key_bias, layer.bias.shape, minval=-bound, maxval=bound),
    )
    return eqx.tree_at(lambda d: (d.weight, d.bias), layer, start)


def normalised_error(
    prior: Prior, estimate: Thetas | np.ndarray, theta: Thetas | np.ndarray
) -> Float[Array, " batch"]:
    """Squared error over the prior variance, averaged over parameters: its mean is the risk."""
    return ((estimate - theta) ** 2 / jnp.asarray(prior.variance, jnp.float32)).mean(-1)


HEADS: dict[str, type[BoundedMean] | type[PaperMean]] = {
    "posterior": MeanAndPosterior,
    "bounded": BoundedMean,
    "paper": PaperMean,
}
