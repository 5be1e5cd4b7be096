"""The line: there and back, its Jacobian, and NumPy beside JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.stats import kstest

from greybayes.amortized.heads import line_of
from greybayes.amortized.line import Line
from greybayes.prior import Parameter, Prior

PRIOR = Prior(
    {
        "share": Parameter(dist.Uniform(0.1, 2.0)),
        "rate": Parameter(dist.LogNormal(-3.5, 0.3)),
        "pair": Parameter(dist.Normal(jnp.array([5.0, -1.0]), jnp.array([2.0, 1.0]))),
    }
)


@pytest.fixture(scope="module")
def line() -> Line:
    found = line_of(PRIOR)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def thetas() -> np.ndarray:
    return np.asarray(PRIOR.sample(jax.random.key(1), jnp.arange(2000, dtype=jnp.uint32)), float)


def test_there_and_back(line, thetas):
    back, _ = line.from_line(np, line.to_line(np, thetas))
    np.testing.assert_allclose(back, thetas, rtol=1e-6)


def test_the_prior_has_unit_spread_and_a_uniform_one_is_a_standard_normal(line, thetas):
    z = line.to_line(np, thetas)
    np.testing.assert_allclose(z.mean(0), 0, atol=0.1)
    np.testing.assert_allclose(z.std(0), 1, atol=0.1)
    assert kstest(z[:, 0], "norm").pvalue > 1e-3


def test_the_jacobian_is_that_of_the_way_back(line):
    z = np.array([0.3, -0.7, 0.2, 1.1])
    with jax.enable_x64(True):
        jacobian = jax.jacfwd(lambda z: line.from_line(jnp, z)[0])(jnp.asarray(z))
    _, log_det = line.from_line(np, z)
    assert log_det == pytest.approx(np.linalg.slogdet(np.asarray(jacobian))[1], abs=1e-5)


def test_numpy_and_jax_agree(line, thetas):
    ours, theirs = line.to_line(np, thetas), line.to_line(jnp, jnp.asarray(thetas, jnp.float32))
    np.testing.assert_allclose(ours, theirs, atol=2e-3)


def test_what_is_inside(line):
    assert line.inside(np.array([1.0, 0.1, 0.0, 0.0]))
    assert not line.inside(np.array([2.1, 0.1, 0.0, 0.0]))
    assert not line.inside(np.array([1.0, -0.1, 0.0, 0.0]))


def test_far_out_on_the_line_is_still_inside(line):
    theta, _ = line.from_line(np, np.array([[30.0] * 4, [-30.0, -30.0, 0.0, 0.0]]))
    assert line.inside(theta).all()


def test_a_support_of_another_kind_has_no_line():
    simplex = Prior({"p": Parameter(dist.Dirichlet(jnp.ones(3)))})
    assert line_of(simplex) is None
