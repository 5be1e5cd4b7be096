"""What is affine is found in the program, through calls and loops, and never guessed."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

from greybayes.affine import depends, is_affine

X, P = jnp.ones(2), jnp.ones(2)
MATRIX = jnp.arange(4.0).reshape(2, 2)


def loop(x, p):
    """x_{k+1} = p x_k + k: affine in x, not in p."""
    return jax.lax.scan(lambda x, k: (p * x + k, x), x, jnp.arange(5.0))


def fir(theta, u):
    """A register of inputs, and an output linear in theta."""

    def step(register, u):
        register = jnp.roll(register, 1).at[0].set(u)
        return register, register @ theta

    return jax.lax.scan(step, jnp.zeros(2), u)[1]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, p: p * x + jnp.exp(p),
        lambda x, p: MATRIX @ x / p,
        lambda x, p: jnp.stack([x[1], -p[0] * x[0]]),
        lambda x, p: jnp.where(p > 0, x, 2 * x),
        lambda x, p: jax.jit(lambda x: 3 * x)(x) + p,
        lambda x, p: dist.Normal(p * x, 1.0).mean,
        lambda x, p: loop(x, p)[1],
        lambda x, p: fir(x, jnp.arange(6.0)),
        lambda x, p: p,
    ],
    ids=["formula", "matrix", "stack", "where", "jit", "numpyro", "loop", "fir", "constant"],
)
def test_what_is_affine(function):
    assert is_affine(function, X, P)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, p: x * x,
        lambda x, p: jnp.sin(x),
        lambda x, p: jnp.abs(x),
        lambda x, p: jnp.where(x > 0, x, 2 * x),
        lambda x, p: jax.jit(lambda x: x**2)(x),
        lambda x, p: loop(p, x)[1],
        lambda x, p: x[0] * x,
        lambda x, p: x + 1e-9 * x**2,
    ],
    ids=["square", "sine", "kink", "where", "jit", "loop", "product", "nearly"],
)
def test_what_is_not(function):
    assert not is_affine(function, X, P)


def test_a_value_depends_on_what_it_is_computed_from_and_not_on_shapes():
    assert depends(lambda x: jnp.exp(x), X)
    assert not depends(lambda x: jnp.zeros_like(x), X)
    assert not depends(lambda x, p: p * x.size, X, P)
    # A carried value that depends on x only after some turns of the loop.
    shift = lambda c, _: (jnp.roll(c, 1), c[2])  # noqa: E731
    assert depends(lambda x: jax.lax.scan(shift, jnp.zeros(3).at[0].set(x), None, 3)[1], 1.0)
