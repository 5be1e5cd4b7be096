"""Newton's steps in a box on functions whose minima are known."""

import jax
import numpy as np
import pytest
import scipy.optimize

import greybayes as gb
from greybayes.classical import newton
from greybayes.classical.box import Box
from greybayes.classical.newton import Limits, descend
from greybayes.errors import Status

MODEL = gb.get_model("growth2")  # It has no part in these functions.
WIDE = Box(np.full(2, -np.inf), np.full(2, np.inf), np.ones(2))


def banana(z, shift):
    """Rosenbrock's valley, with its minimum 0 at (shift, shift^2); bent the other way in places."""
    return (shift - z[0]) ** 2 + 100.0 * (z[1] - z[0] ** 2) ** 2


def evaluate(model, z, shift):
    value = banana(z, shift)
    return value, jax.grad(banana)(z, shift), jax.hessian(banana)(z, shift), ()


def run(z, shifts, box=WIDE, watch=None, **limits):
    ends = Limits(**{"iterations": 200, "tolerance": 1e-14, **limits})
    with jax.enable_x64(True):
        return descend(evaluate, MODEL, z, shifts, box, ends, watch, lambda best: f"{best.max():g}")


@pytest.fixture(scope="module")
def many():
    """Starts all over the plane, for records with minima of their own."""
    rng = np.random.default_rng(2)
    return rng.normal(0, 3, size=(65, 8, 2)), np.linspace(-1.5, 2.0, 65)


def test_every_start_reaches_the_minimum_of_its_record(many):
    told = []
    descent = run(*many, watch=told.append)
    shifts = many[1]
    assert descent.converged.all()
    np.testing.assert_allclose(descent.z[..., 0], np.repeat(shifts[:, None], 8, 1), atol=1e-5)
    np.testing.assert_allclose(descent.z[..., 1], np.repeat(shifts[:, None] ** 2, 8, 1), atol=1e-4)
    assert descent.status(3) is Status.ok
    assert descent.counts(3) == {"n_starts": 8, "n_converged": 8, "n_agree": 8}
    assert told[0].iteration == 5
    assert float(told[-1].note) < 1e-10 < float(told[0].note)


def test_lanes_that_go_on_alone_end_where_they_would_have(many, monkeypatch):
    alone = run(*many)
    sizes = []
    original = newton._with_few

    def counted(go_on, few, state, *rest):
        sizes.append(int((~state.ended).sum()))
        return original(go_on, few, state, *rest)

    monkeypatch.setattr(newton, "_with_few", counted)
    run(*many)
    assert sizes, "this many lanes must part at some time"
    assert max(sizes) <= 65
    monkeypatch.setattr(newton, "_WORTH", 10**9)
    together = run(*many)
    np.testing.assert_allclose(alone.z, together.z, atol=1e-9)
    np.testing.assert_array_equal(alone.converged, together.converged)


@pytest.mark.parametrize("high", [(0.5, 3.0), (2.0, 0.5)])
def test_at_a_bound_it_is_scipys_minimum(high):
    box = Box(np.array([-1.0, -1.0]), np.array(high), np.ones(2))
    z = np.array([[[-0.9, 0.4], [0.4, -0.9], [0.0, 0.0]]])
    descent = run(z, np.ones(1), box)
    theirs = scipy.optimize.minimize(
        lambda z: float(banana(z, 1.0)),
        [0.4, 0.4],
        method="L-BFGS-B",
        bounds=list(zip(box.low, box.high, strict=True)),
        options={"ftol": 1e-15, "gtol": 1e-10},
    )
    best = descent.z[0, descent.best()[0]]
    np.testing.assert_allclose(best, theirs.x, atol=1e-5)
    held = newton.outward(box, best, descent.gradient[0, descent.best()[0]])
    np.testing.assert_array_equal(held, best >= np.array(high))
    assert held.any()
    assert descent.status(0) is Status.ok


def test_no_step_is_longer_than_allowed():
    far = np.full((1, 1, 2), 50.0)
    descent = run(far, np.zeros(1), longest=2.0, iterations=4)
    # The first of the four evaluates the start.
    assert 0 < np.abs(descent.z - far).max() <= 6.0
    assert descent.status(0) is Status.unconverged


def test_where_there_is_no_number_it_ends_at_once():
    told = []
    descent = run(np.zeros((2, 1, 2)), np.array([np.nan, np.nan]), watch=told.append)
    assert [progress.iteration for progress in told] == [5]
    assert descent.ended.all()
    assert not descent.converged.any()
    assert descent.status(1) is Status.diverged
    assert descent.counts(1) == {"n_starts": 1, "n_converged": 0, "n_agree": 0}
