"""A sweep over all that is unknown of growth records: states one by one, a common scale, gains.

Every step is one of Metropolis's, and leaves p(theta, x | y) as it is. The batch is the last axis
throughout: channels are then contiguous, and vectorise.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from greybayes._lanes import threefry

if TYPE_CHECKING:
    from greybayes.model import Model

Lane = Float[Array, " batch"]
Path = Float[Array, "steps batch"]
Thetas = Float[Array, "param batch"]

# How far a step goes: a state against its own spread, a scale in logarithms, a parameter against
# its spread once the states are known. About a quarter to a half of such steps is accepted.
_STATE, _MIRRORED, _SCALE, _PARAMETER = 3.5, 2.0, 0.09, 2.0
# Where no spread is known steps of all sizes are tried, down to exp(-4) prior standard deviations.
_SMALLEST = 4.0


class Known(NamedTuple):
    """What is not drawn: one model, and records of it."""

    model: "Model"
    y: Path
    u: Float[Array, "steps #batch"]


def sweep(
    model: "Model",
    key: Key[Array, ""],
    theta: Thetas,
    x: Float[Array, "steps 1 batch"],
    y: Float[Array, "steps 1 batch"],
    u: Float[Array, "steps 1"] | Float[Array, "steps 1 batch"],
) -> tuple[Thetas, Float[Array, "steps 1 batch"]]:
    """Draws of theta and the states, given a draw of both for each record. x_1 stays."""
    known = Known(model, y.reshape(len(y), -1), u.reshape(len(u), -1))
    keys = jr.split(key, 4)
    # The output hides the sign of a state: some sweeps propose the other one.
    mirrored = jr.bernoulli(keys[0], 0.25)
    path = states(known, keys[1], theta, x.reshape(len(x), -1), mirrored)
    if "theta6" in model.prior.parameters:
        theta, path = rescaled(known, keys[2], theta, path)
    return parameters(known, keys[3], theta, path), path.reshape(x.shape)


def states(
    known: Known, key: Key[Array, ""], theta: Thetas, x: Path, mirrored: Bool[Array, ""]
) -> Path:
    """Every second state given its neighbours, then the others: all of a half are independent."""
    p = values(known.model, theta)
    inputs = jnp.broadcast_to(p.theta5 * known.u, x.shape)
    # How far a state may be off, were it as large as its output says.
    informed = 4 * p.theta6 / p.theta8 * jnp.maximum(known.y, jnp.sqrt(p.theta8))
    spread = jax.lax.rsqrt((1 + (p.theta1 + p.theta2 / p.theta4) ** 2) / p.theta7 + informed)
    size = jnp.where(mirrored, _MIRRORED, _STATE) * spread

    def drawn(x, before, after, has_after, half, words):
        y, size_here, u = known.y[half::2], size[half::2], inputs[half::2]

        def misfit(x):
            transitions = (x - before) ** 2 + has_after * (after - u - feedback(p, x)) ** 2
            return transitions / p.theta7 + (y - p.theta6 * x**2) ** 2 / p.theta8

        step, surprise = halves(words)
        new = jnp.where(mirrored, -x, x) + size_here * (2 * step - 1)
        return jnp.where(2 * jnp.log(surprise) < misfit(x) - misfit(new), new, x)

    first, second = x[::2], x[1::2]
    n_steps, n_first, n_second = len(x), len(first), len(second)
    of_first, of_second = random_words(key, n_first, x.shape[1])
    has_after = jnp.arange(n_steps)[:, None] < n_steps - 1
    nothing = jnp.zeros_like(x[:1])

    before = feedback(p, first[:n_second]) + inputs[::2][:n_second]
    after = jnp.concatenate([first[1:], nothing])[:n_second]
    second = drawn(second, before, after, has_after[1::2], 1, of_second[:n_second])
    before = feedback(p, second) + inputs[1::2]
    before = jnp.concatenate([nothing, before])[:n_first]
    after = jnp.concatenate([second, nothing])[:n_first]
    new = drawn(first, before, after, has_after[::2], 0, of_first)
    return interleaved(jnp.concatenate([first[:1], new[1:]]), second)


def rescaled(known: Known, key: Key[Array, ""], theta: Thetas, x: Path) -> tuple[Thetas, Path]:
    """The states times a factor, theta6 over its square: the outputs stay. theta7 now and then."""
    key_scale, key_with = jr.split(key)
    step, surprise = (uniform(words[0]) for words in random_words(key_scale, 1, theta.shape[1]))
    by = _SCALE * symmetric(step)
    names = known.model.prior.names
    powers = np.zeros((2, len(names), 1), np.float32)
    powers[:, names.index("theta6")] = -2
    if "theta7" in names:
        powers[1, names.index("theta7")] = 2
    power = jnp.asarray(powers)[jr.bernoulli(key_with).astype(int)]
    new_theta = theta * jnp.exp(power * by)
    moving = jnp.arange(len(x))[:, None] > 0
    new_x = jnp.where(moving, x * jnp.exp(by), x)
    gain = log_density(known, new_theta, new_x) - log_density(known, theta, x)
    # The volume grows with every state but the first, and with each parameter that is scaled.
    gain += (len(x) - 1 + power.sum()) * by
    by = jnp.where(jnp.log(surprise) < gain, by, 0.0)
    factor = jnp.exp(by)
    theta, (factor,) = settled(theta * jnp.exp(power * by), factor)
    return theta, jnp.where(moving, x * factor, x)


def parameters(known: Known, key: Key[Array, ""], theta: Thetas, x: Path) -> Thetas:
    """One parameter after another, the states given."""
    prior = known.model.prior
    p = values(known.model, theta)
    off = x[1:] - (feedback(p, x) + p.theta5 * known.u)[:-1]
    missed = known.y - p.theta6 * x**2
    steps, surprises = random_words(key, 2 * prior.size, theta.shape[1])
    for j, name in enumerate(prior.names):
        p = values(known.model, theta)
        step = symmetric(uniform(steps[j]))
        of_output = name in ("theta6", "theta8")
        errors, variance = (missed, p.theta8) if of_output else (off, p.theta7)
        term = jnp.zeros(())
        if name in ("theta7", "theta8"):
            step = theta[j] * jnp.expm1(_PARAMETER * np.sqrt(2 / len(errors)) * step)
            grown = jnp.log1p(step / theta[j])
            # The step is one in logarithms: its own volume, and the normalising constants.
            gain = grown * (1 - len(errors) / 2)
            gain += 0.5 * (errors**2).sum(0) * (1 / theta[j] - 1 / (theta[j] + step))
        elif name in ("theta3", "theta4"):
            step *= np.sqrt(prior.variance[j]) * jnp.exp(
                -_SMALLEST * uniform(steps[prior.size + j])
            )
            other = values(
                known.model, jnp.where(np.arange(prior.size)[:, None] == j, theta + step, theta)
            )
            moved = off + (feedback(p, x) - feedback(other, x))[:-1]
            gain = 0.5 * ((off**2).sum(0) - (moved**2).sum(0)) / variance
        else:
            term = {
                "theta1": x,
                "theta2": x / (p.theta3 * x**2 + p.theta4),
                "theta5": jnp.broadcast_to(known.u, x.shape),
                "theta6": x**2,
            }[name][: len(errors)]
            power = (term**2).sum(0)
            step *= _PARAMETER * jnp.sqrt(variance / power)
            gain = step * ((errors * term).sum(0) - 0.5 * step * power) / variance
        new = jnp.where(np.arange(prior.size)[:, None] == j, theta + step, theta)
        gain += log_prior(known.model, new) - log_prior(known.model, theta)
        step = jnp.where(jnp.log(uniform(surprises[j])) < gain, step, 0.0)
        theta, (step,) = settled((*theta[:j], theta[j] + step, *theta[j + 1 :]), step)
        if name in ("theta3", "theta4"):
            off = off + (feedback(p, x) - feedback(values(known.model, theta), x))[:-1]
        elif name == "theta6":
            missed = missed - step * term
        elif name not in ("theta7", "theta8"):
            off = off - step * term
    return theta


def settled(theta: Thetas | tuple[Lane, ...], *rows: Lane) -> tuple[Thetas, tuple[Lane, ...]]:
    """The same, computed once: what is fused with a path is computed for each of its steps."""
    together = jnp.stack([*theta, *rows])
    return together[: len(theta)], tuple(together[len(theta) :])


def log_density(known: Known, theta: Thetas, x: Path) -> Lane:
    """log p(theta, x, y), but for a constant."""
    p = values(known.model, theta)
    off = x[1:] - (feedback(p, x) + p.theta5 * known.u)[:-1]
    missed = known.y - p.theta6 * x**2
    of_states = (off**2).sum(0) / p.theta7 + len(off) * jnp.log(p.theta7)
    of_outputs = (missed**2).sum(0) / p.theta8 + len(missed) * jnp.log(p.theta8)
    return log_prior(known.model, theta) - 0.5 * (of_states + of_outputs)


def log_prior(model: "Model", theta: Thetas) -> Lane:
    """Minus infinity outside the support."""
    return jax.vmap(model.prior.log_prob, -1)(theta)


def values(model: "Model", theta: Thetas) -> Any:
    """All parameters by name, one value for each lane."""
    return jax.vmap(model.p, -1, -1)(theta)


def feedback(p: Any, x: Path) -> Path:
    """What the next state has of this one."""
    return x * (p.theta1 + p.theta2 / (p.theta3 * x**2 + p.theta4))


def interleaved(first: Float[Array, "first batch"], second: Float[Array, "second batch"]) -> Path:
    """Rows of both by turns; the first may have one more."""
    odd = len(first) - len(second)
    second = jnp.pad(second, ((0, odd), (0, 0)))
    rows = jnp.stack([first, second], axis=1).reshape(-1, first.shape[1])
    return rows[: len(rows) - odd]


def random_words(key: Key[Array, ""], count: int, n_lanes: int) -> tuple[Array, Array]:
    """Two random words for each lane, so many times."""
    rows = jnp.arange(count, dtype=jnp.uint32)[:, None]
    parent = jr.key_data(key)
    return threefry((parent[0], parent[1]), (rows, jnp.arange(n_lanes, dtype=jnp.uint32)))


def uniform(word: Array) -> Array:
    """A number between 0 and 1, both left out."""
    return ((word >> np.uint32(8)).astype(jnp.float32) + 0.5) * np.float32(2**-24)


def halves(word: Array) -> tuple[Array, Array]:
    """Two such numbers, coarser: enough for a step, and for whether it is taken."""

    def number(part: Array) -> Array:
        return (part.astype(jnp.float32) + 0.5) * np.float32(2**-16)

    return number(word >> np.uint32(16)), number(word & np.uint32(0xFFFF))


def symmetric(number: Array) -> Array:
    """About 0 with unit variance."""
    return (2 * number - 1) * np.sqrt(3.0)
