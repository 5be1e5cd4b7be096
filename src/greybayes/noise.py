"""What a model's three methods may return, beyond NumPyro's distributions.

`Known` has no noise, `Channels` mixes channels of different kinds, `Sampler` has no density. All
three are NumPyro distributions, so that nothing downstream needs to tell them apart to draw.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.random as jr
import numpyro.distributions as dist
from jaxtyping import Array, Float, Key
from numpyro.distributions import constraints

from greybayes.errors import ModelError


class Known(dist.Delta):
    """A value without noise: `Known(0.0)` as an initial state, `Known(A @ x)` as a transition.

    >>> Known(0.5).sample(jr.key(0))
    Array(0.5, dtype=float32)
    """

    def __init__(self, value) -> None:
        super().__init__(jnp.asarray(value, float), validate_args=False)


class Channels(dist.Distribution):
    """One distribution for each channel, by name, independent of one another.

    >>> noisy_second = Channels(position=Known(1.0), speed=dist.Normal(0.0, 1.0))
    >>> noisy_second.sample(jr.key(0)).shape
    (2,)
    """

    support = constraints.real_vector  # pyright: ignore[reportAssignmentType]
    pytree_data_fields = ("parts",)
    pytree_aux_fields = ("names",)

    def __init__(self, **channels: dist.Distribution) -> None:
        for name, part in channels.items():
            if not isinstance(part, dist.Distribution) or isinstance(part, Sampler):
                raise ModelError(
                    f"Channels: {name} is {type(part).__name__}, expected a distribution with a "
                    "density, or Known; a Sampler gives all channels at once."
                )
            if part.event_shape or part.batch_shape not in ((), (1,)):
                raise ModelError(
                    f"Channels: {name} has shape {part.batch_shape + part.event_shape}, expected a "
                    "scalar; index the state (x[0]) where a channel is made."
                )
        self.names = tuple(channels)
        self.parts = tuple(channels.values())
        super().__init__((), (len(channels),), validate_args=False)

    def sample(
        self, key: Key[Array, ""] | None, sample_shape: tuple[int, ...] = ()
    ) -> Float[Array, "*shape channel"]:
        assert key is not None
        # Only noisy channels take a key: hashing one for each is not free.
        noisy = [part for part in self.parts if not isinstance(part, Known)]
        keys = iter(jr.split(key, len(noisy)) if len(noisy) > 1 else [key])
        draws = [
            part.sample(key if isinstance(part, Known) else next(keys), sample_shape)
            for part in self.parts
        ]
        return jnp.stack(
            [jnp.asarray(draw, float).reshape(sample_shape) for draw in draws], axis=-1
        )

    def log_prob(self, value: Float[Array, "*shape channel"]) -> Float[Array, "*shape"]:
        return sum(self.log_prob_each(value), jnp.zeros(()))

    def log_prob_each(self, value: Float[Array, "*shape channel"]) -> list[Array]:
        """The log-density of each channel: missing ones can be left out."""
        batch = value.shape[:-1]
        return [
            jnp.reshape(part.log_prob(value[..., index].reshape(batch + part.batch_shape)), batch)
            for index, part in enumerate(self.parts)
        ]

    @property
    def mean(self) -> Float[Array, " channel"]:
        return jnp.stack([jnp.reshape(part.mean, ()) for part in self.parts])

    @property
    def variance(self) -> Float[Array, " channel"]:
        return jnp.stack([jnp.reshape(part.variance, ()) for part in self.parts])


class Sampler(dist.Distribution):
    """A distribution with no density: `fn(key)` draws the whole vector.

    For the general x_{k+1} = f(x_k, u_k, w_k; theta). Methods that simulate work; methods that
    need a density say so.

    >>> Sampler(lambda key: jnp.exp(jr.normal(key, (2,)))).sample(jr.key(0)).shape
    (2,)
    """

    support = constraints.real_vector  # pyright: ignore[reportAssignmentType]

    def __init__(self, fn: Callable[[Key[Array, ""]], Array]) -> None:
        if not callable(fn):
            raise ModelError(f"Sampler got {type(fn).__name__}, expected a function of a key.")
        self.fn = fn
        super().__init__((), (), validate_args=False)

    def sample(self, key: Key[Array, ""] | None, sample_shape: tuple[int, ...] = ()) -> Array:
        assert key is not None
        if not sample_shape:
            return jnp.asarray(self.fn(key))
        keys = jr.split(key, sample_shape)
        draw = self.fn
        for _ in sample_shape:
            draw = jax.vmap(draw)
        return draw(keys)

    def log_prob(self, value: Array) -> Array:
        raise ModelError("a Sampler has no density; return a distribution where one is needed.")


def as_channels(returned: object, names: tuple[str, ...], where: str) -> dist.Distribution:
    """The distribution a method returned, as one over the vector of named channels.

    Scalars broadcast, a last batch axis counts as independent channels, and `Channels` are put in
    the order of the names. `where` names the method in the message of an error.
    """
    if not isinstance(returned, dist.Distribution):
        raise ModelError(
            f"{where} returned {type(returned).__name__}, expected a distribution: "
            "numpyro.distributions, or gb.Known(value) where there is no noise."
        )
    if isinstance(returned, Sampler):
        return returned
    if isinstance(returned, Channels):
        if sorted(returned.names) != sorted(names):
            raise ModelError(
                f"{where} returned channels {', '.join(returned.names)}, "
                f"expected {', '.join(names)}."
            )
        parts = dict(zip(returned.names, returned.parts, strict=True))
        return Channels(**{name: parts[name] for name in names})
    size = (len(names),)
    if not returned.event_shape and returned.batch_shape in ((), size):
        if isinstance(returned, Known):
            return Known(jnp.broadcast_to(returned.v, size)).to_event(1)
        return returned.expand(size).to_event(1)
    if returned.event_shape == size and not returned.batch_shape:
        return returned
    came = returned.batch_shape + returned.event_shape
    raise ModelError(
        f"{where} returned a distribution of shape {came}, expected {size}: one value for each of "
        f"{', '.join(names) or 'no channels'}."
    )
