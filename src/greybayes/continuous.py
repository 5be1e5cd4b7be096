"""From rates to a step: a model given by dx/dt becomes a `transition`.

The input is held between samples (zero-order hold), as a digital controller applies it.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpyro.distributions as dist
from jaxtyping import Array, Float

from greybayes.errors import ModelError
from greybayes.noise import Sampler

State = Float[Array, " state"]
Rate = Callable[[State], State]
"""dx/dt as a function of x, with input and parameters already in it."""


class HeldLinear(NamedTuple):
    """x(t + dt) = a x(t) + b u: the exact step of a linear system whose input is held."""

    a: Float[Array, "state state"]
    b: Float[Array, "state input"]

    def step(self, x: State, u: Float[Array, " input"]) -> State:
        """The next state."""
        # Written out: for a batch of small matrices XLA's products are slower.
        from_x = sum(self.a[:, j] * x[j] for j in range(x.shape[0]))
        from_u = sum(self.b[:, j] * u[j] for j in range(u.shape[0]))
        return jnp.asarray(from_x + from_u)


def zero_order_hold(
    a: Float[Array, "state state"], b: Float[Array, "state input"], dt: float
) -> HeldLinear:
    """The exact discretisation of dx/dt = a x + b u for an input held over dt.

    Both matrices come from one exponential, exp([[a, b], [0, 0]] dt) = [[A, B], [0, I]]. Call it
    in `prepare`, once for each theta.

    >>> held = zero_order_hold(jnp.array([[-1.0]]), jnp.array([[1.0]]), 0.5)
    >>> [round(float(m[0, 0]), 4) for m in held]
    [0.6065, 0.3935]
    """
    n_states, n_inputs = b.shape
    top = jnp.concatenate([a, b], axis=1) * dt
    block = jnp.concatenate([top, jnp.zeros((n_inputs, n_states + n_inputs))], axis=0)
    exponential = _expm(block)
    return HeldLinear(exponential[:n_states, :n_states], exponential[:n_states, n_states:])


def _expm(a: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The matrix exponential by scaling, Taylor's series and squaring.

    `jax.scipy.linalg.expm` solves linear systems; for a batch that is far slower than these
    products, and a batch of 16,384 on two CPU devices was seen to hang (JAX 0.10.2).
    """

    def product(left, right):
        return (left[:, :, None] * right[None]).sum(1)

    identity = jnp.eye(a.shape[0], dtype=a.dtype)
    norm = jnp.abs(a).sum(0).max()
    # After scaling the norm is at most 1, and the series of order 12 is exact to 1e-10.
    squarings = jnp.ceil(jnp.log2(jnp.maximum(norm, 1.0))).astype(jnp.int32)
    scaled = a * jnp.exp2(-squarings.astype(a.dtype))
    total = identity
    for order in range(12, 0, -1):
        total = identity + product(scaled, total) / order
    return jax.lax.fori_loop(0, squarings, lambda _, e: product(e, e), total)


def _checked(substeps: int) -> int:
    if substeps < 1:
        raise ModelError(f"substeps is {substeps}, expected 1 or more.")
    return substeps


def euler(rate: Rate, x: State, dt: float | Array, substeps: int = 1) -> State:
    """dx/dt = rate(x) over dt by the explicit Euler rule.

    >>> float(euler(lambda x: -x, jnp.ones(1), 0.5)[0])
    0.5
    """
    h = dt / _checked(substeps)
    return jax.lax.fori_loop(0, substeps, lambda _, x: x + h * rate(x), x, unroll=substeps <= 8)


def rk4(rate: Rate, x: State, dt: float | Array, substeps: int = 1) -> State:
    """dx/dt = rate(x) over dt by the classical Runge-Kutta rule of order four.

    >>> round(float(rk4(lambda x: -x, jnp.ones(1), 0.5)[0]), 4)
    0.6068
    """
    h = dt / _checked(substeps)

    def step(_, x):
        k1 = rate(x)
        k2 = rate(x + h / 2 * k1)
        k3 = rate(x + h / 2 * k2)
        k4 = rate(x + h * k3)
        return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    return jax.lax.fori_loop(0, substeps, step, x, unroll=substeps <= 8)


def euler_maruyama(
    drift: Rate,
    diffusion: Callable[[State], Float[Array, " state"]],
    x: State,
    dt: float | Array,
    substeps: int = 1,
) -> dist.Distribution:
    """dx = drift(x) dt + diffusion(x) dW over dt, with independent noise on each state.

    One step has a density, N(x + drift dt, diffusion^2 dt). Several draw new noise in each and
    have none: the result is then a `Sampler`, good for everything that simulates.

    >>> float(euler_maruyama(lambda x: -x, jnp.ones_like, jnp.ones(1), 0.25).variance[0])
    0.25
    """
    h = dt / _checked(substeps)

    def step(x):
        return x + h * drift(x), jnp.sqrt(h) * diffusion(x)

    if substeps == 1:
        return dist.Normal(*step(x))

    def draw(key):
        def substep(x, key):
            mean, std = step(x)
            return mean + std * jr.normal(key, x.shape), None

        return jax.lax.scan(substep, x, jr.split(key, substeps))[0]

    return Sampler(draw)
