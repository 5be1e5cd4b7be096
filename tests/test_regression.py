"""Regressions in a box against scipy's."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.optimize import lsq_linear

import greybayes as gb
from greybayes.regression import Moments, moments, regress

RNG = np.random.default_rng(0)
TERMS = RNG.normal(size=(40, 3)) @ np.array([[1.0, 0.9, 0.3], [0.0, 0.4, 0.5], [0.0, 0.0, 0.2]])
TARGET = TERMS @ [0.5, -0.2, 1.5] + 0.3 * RNG.normal(size=40)


class Line(gb.Model):
    """Three gains and a noise, of which no method of the model makes use."""

    a = gb.Parameter(dist.Uniform(0.0, 1.0))
    b = gb.Parameter(dist.Uniform(-1.0, 1.0))
    c = gb.Parameter(dist.Normal(0.0, 1.0))
    noise = gb.Parameter(dist.HalfNormal(1.0))


def summed(rows) -> Moments:
    with jax.enable_x64(True):
        return jax.tree.map(lambda a: a.sum(0), jax.vmap(moments)(*jnp.asarray(rows).T))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"a": dist.Uniform(0.0, 0.2)},
        {"a": dist.Uniform(2.0, 3.0), "b": dist.Uniform(0.5, 1.0)},
        {"a": dist.HalfNormal(1.0), "b": dist.Uniform(-5.0, -4.0), "c": dist.Uniform(0.0, 1.0)},
        {"a": 0.3},
        {"b": -0.7, "c": dist.Uniform(0.0, 1.0)},
        {"a": 0.3, "b": -0.7, "c": 0.1},
    ],
)
def test_the_sum_of_squares_is_the_least_in_the_box(changes):
    fixed = {name: value for name, value in changes.items() if isinstance(value, float)}
    model = Line().fix(**fixed)
    model = model.free(**{name: value for name, value in changes.items() if name not in fixed})
    free = [i for i, name in enumerate("abc") if name not in fixed]
    held = np.array([fixed.get(name, 0.0) for name in "abc"])
    expected, left = held.copy(), TARGET - TERMS @ held
    if free:
        bounds = [end[:-1] for end in model.prior.bounds]
        expected[free] = lsq_linear(TERMS[:, free], left, bounds, tol=1e-14).x
    with jax.enable_x64(True):
        rows, p = summed(np.column_stack([TERMS, TARGET])), types.SimpleNamespace(**fixed)
        gains, variance = regress(model, rows, p, "a", "b", "c")
    np.testing.assert_allclose([gains[name] for name in "abc"], expected, atol=1e-6)
    np.testing.assert_allclose(variance, np.mean((TARGET - TERMS @ expected) ** 2), rtol=1e-6)


def test_a_row_with_a_gap_counts_for_nothing():
    rows = np.column_stack([TERMS, TARGET])
    gappy = rows.copy()
    gappy[3, -1] = gappy[5, 0] = np.nan
    whole = summed(np.delete(rows, [3, 5], axis=0))
    for ours, expected in zip(summed(gappy), whole, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-12)


def test_no_rows_and_no_gains_are_no_division_by_zero():
    gains, variance = regress(Line(), Moments(jnp.zeros((1, 1)), jnp.zeros(())), None)
    assert gains == {}
    assert float(variance) == 0.0
