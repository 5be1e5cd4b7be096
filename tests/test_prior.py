"""Priors and theta in its three forms, against scipy and against JAX's own Jacobians."""

import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats as st
from helpers import BOUND, assert_moments

from greybayes.errors import ModelError, ThetaError
from greybayes.prior import Fixed, Parameter, Prior, describe

N = 20_000
COVARIANCE = np.array([[1.0, 0.5], [0.5, 2.0]])


class Case(NamedTuple):
    parameter: Parameter
    oracle: Any
    text: str

    def points(self, count: int) -> np.ndarray:
        """Draws of scipy's, flat: `(count, param)`."""
        seed = np.random.default_rng(0)
        shape = () if hasattr(self.oracle, "cov") else self.parameter.shape
        return np.asarray(self.oracle.rvs((count, *shape), random_state=seed)).reshape(count, -1)

    def log_prob(self, points: np.ndarray) -> np.ndarray:
        if hasattr(self.oracle, "cov"):
            return self.oracle.logpdf(points)
        shaped = points.reshape(len(points), *self.parameter.shape)
        return self.oracle.logpdf(shaped).reshape(len(points), -1).sum(1)

    @property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        if hasattr(self.oracle, "cov"):
            return self.oracle.mean, np.diag(self.oracle.cov)
        shape = self.parameter.shape
        return tuple(
            np.broadcast_to(m(), shape).ravel() for m in (self.oracle.mean, self.oracle.var)
        )


CASES = {
    "uniform": Case(Parameter(dist.Uniform(0.1, 2.0)), st.uniform(0.1, 1.9), "Uniform(0.1, 2)"),
    "normal": Case(Parameter(dist.Normal(1.0, 2.0)), st.norm(1.0, 2.0), "Normal(1, 2)"),
    "lognormal": Case(
        Parameter(dist.LogNormal(0.2, 0.5)),
        st.lognorm(0.5, scale=np.exp(0.2)),
        "LogNormal(0.2, 0.5)",
    ),
    "halfnormal": Case(Parameter(dist.HalfNormal(2.0)), st.halfnorm(scale=2.0), "HalfNormal(2)"),
    "truncated": Case(
        Parameter(dist.TruncatedNormal(0.5, 1.0, low=0.0, high=2.0)),
        st.truncnorm(-0.5, 1.5, 0.5, 1.0),
        "Normal(0.5, 1) on (0, 2)",
    ),
    "positive": Case(
        Parameter(dist.TruncatedNormal(0.5, 2.0, low=0.0)),
        st.truncnorm(-0.25, np.inf, 0.5, 2.0),
        "Normal(0.5, 2) on (0, inf)",
    ),
    "gamma": Case(Parameter(dist.Gamma(2.0, 3.0)), st.gamma(2.0, scale=1 / 3), "Gamma(2, 3)"),
    "beta": Case(Parameter(dist.Beta(2.0, 3.0)), st.beta(2.0, 3.0), "Beta(2, 3)"),
    "loguniform": Case(
        Parameter(dist.LogUniform(0.1, 10.0)), st.loguniform(0.1, 10.0), "LogUniform(0.1, 10)"
    ),
    "multivariate": Case(
        Parameter(dist.MultivariateNormal(jnp.array([0.0, 1.0]), jnp.array(COVARIANCE))),
        st.multivariate_normal([0.0, 1.0], COVARIANCE),
        "MultivariateNormal([0., 1.], [[1. , 0.5], [0.5, 2. ]])",
    ),
    "normals": Case(
        Parameter(dist.Normal(jnp.array([0.0, 1.0]), jnp.array([1.0, 2.0]))),
        st.norm([0.0, 1.0], [1.0, 2.0]),
        "Normal([0., 1.], [1., 2.])",
    ),
    "matrix": Case(
        Parameter(dist.Uniform(-1.0, 1.0), shape=(2, 2)), st.uniform(-1.0, 2.0), "Uniform(-1, 1)"
    ),
}
MIXED = "all of them"
NAMES = {
    **{name: (name,) for name in CASES},
    "multivariate": ("multivariate[0]", "multivariate[1]"),
    "normals": ("normals[0]", "normals[1]"),
    "matrix": ("matrix[0][0]", "matrix[0][1]", "matrix[1][0]", "matrix[1][1]"),
}
NAMES[MIXED] = tuple(name for case in CASES for name in NAMES[case])
every_case = pytest.mark.parametrize("name", [*CASES, MIXED])


def cases(name: str) -> dict[str, Case]:
    return CASES if name == MIXED else {name: CASES[name]}


def make(name: str) -> Prior:
    return Prior({key: case.parameter for key, case in cases(name).items()})


def points(name: str, count: int = 5) -> np.ndarray:
    return np.concatenate([case.points(count) for case in cases(name).values()], axis=1)


@every_case
def test_entries_are_named_and_counted(name):
    prior = make(name)
    assert prior.names == NAMES[name]
    assert prior.size == len(NAMES[name])


@every_case
def test_theta_has_one_value_in_all_its_forms(name):
    prior, row = make(name), points(name)[0].astype(np.float32)
    theta = prior.vector(row)
    assert theta.dtype == jnp.float32
    np.testing.assert_array_equal(theta, row)
    np.testing.assert_array_equal(prior.pack(prior.unpack(theta)), row)
    assert list(prior.to_dict(theta)) == list(NAMES[name])
    assert list(prior.to_dict(theta).values()) == row.tolist()
    np.testing.assert_array_equal(prior.vector(prior.to_dict(theta)), row)
    shaped = {key: np.asarray(value) for key, value in prior.unpack(theta).items()}
    assert {k: v.shape for k, v in shaped.items()} == {
        k: case.parameter.shape for k, case in cases(name).items()
    }
    np.testing.assert_array_equal(prior.vector(dict(reversed(shaped.items()))), row)


class Evaluated(NamedTuple):
    log_prob: Any
    inside: Any
    back: Any
    log_det: Any
    slogdet: Any


@pytest.fixture(scope="module")
def evaluated():
    """Every formula of a prior at a few points, compiled once."""
    memory = {}

    def evaluate(name: str) -> Evaluated:
        if name not in memory:
            prior = make(name)

            def one(theta):
                free = prior.unconstrain(theta)
                back, log_det = prior.constrain(free)
                jacobian = jax.jacfwd(lambda v: prior.constrain(v)[0])(free)
                slogdet = jnp.linalg.slogdet(jacobian)[1]
                inside = prior.in_support(theta)
                return Evaluated(prior.log_prob(theta), inside, back, log_det, slogdet)

            theta = jnp.asarray(points(name), jnp.float32)
            memory[name] = jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(theta))
        return memory[name]

    return evaluate


@every_case
def test_log_prob_equals_scipy(evaluated, name):
    expected = sum(case.log_prob(case.points(5)) for case in cases(name).values())
    np.testing.assert_allclose(evaluated(name).log_prob, expected, rtol=2e-5, atol=2e-5)
    assert evaluated(name).inside.all()


@every_case
def test_constrain_inverts_unconstrain(evaluated, name):
    np.testing.assert_allclose(evaluated(name).back, points(name), rtol=2e-5, atol=2e-6)


@every_case
def test_log_det_is_that_of_the_jacobian(evaluated, name):
    np.testing.assert_allclose(evaluated(name).log_det, evaluated(name).slogdet, atol=1e-4)


@pytest.fixture(scope="module")
def sample():
    return jax.jit(make(MIXED).sample)


@pytest.fixture(scope="module")
def draws(sample) -> np.ndarray:
    return np.asarray(sample(jr.key(0), jnp.arange(N, dtype=jnp.uint32)))


def test_draws_have_the_moments_of_scipy(draws):
    mean, variance = map(np.concatenate, zip(*(c.moments for c in CASES.values()), strict=True))
    assert_moments(draws, mean, variance)
    np.testing.assert_allclose(make(MIXED).mean, mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(make(MIXED).variance, variance, rtol=1e-5)


def test_parameters_are_drawn_independently_of_one_another(draws):
    expected = np.eye(len(NAMES[MIXED]))
    i, j = map(NAMES[MIXED].index, NAMES["multivariate"])
    expected[i, j] = expected[j, i] = 0.5 / np.sqrt(2.0)
    error = np.abs(np.corrcoef(draws, rowvar=False) - expected) * np.sqrt(N)
    assert error.max() < BOUND, f"{error.max():.1f} standard errors"


def test_every_draw_is_inside_the_support(draws):
    prior = make(MIXED)
    assert jax.jit(jax.vmap(prior.in_support))(jnp.asarray(draws)).all()


def test_a_draw_depends_on_its_lane_alone(sample, draws):
    backwards = sample(jr.key(0), jnp.arange(N, dtype=jnp.uint32)[::-1])
    np.testing.assert_array_equal(backwards[::-1], draws)


def test_moments_without_a_formula_come_from_draws():
    # The density is 1.5 / a^2 on (1, 3), and NumPyro has no moments of it.
    prior = Prior({"a": Parameter(dist.DoublyTruncatedPowerLaw(-2.0, 1.0, 3.0), shape=(2,))})
    mean, square = 1.5 * np.log(3.0), 3.0
    error = np.sqrt((square - mean**2) / 1e6)
    assert np.abs(prior.mean - mean).max() < BOUND * error
    assert prior.variance == pytest.approx([square - mean**2] * 2, rel=0.01)


@pytest.mark.parametrize("prior", [dist.Cauchy(0.0, 1.0), dist.StudentT(2.0, 0.0, 1.0)])
def test_a_prior_without_a_variance_says_so(prior):
    with pytest.raises(ModelError, match="the prior of a has no finite mean and variance"):
        _ = Prior({"a": Parameter(prior)}).variance


@every_case
def test_a_prior_is_described_in_words(name):
    for case in cases(name).values():
        assert describe(case.parameter.prior) == case.text


PAIR = Prior({"a": Parameter(dist.Uniform(0.0, 2.0)), "b": Parameter(dist.Gamma(2.0, 3.0), (2,))})


@pytest.mark.parametrize(
    ("theta", "sentence"),
    [
        ({"a": 2.5, "b": [1, 2]}, "a = 2.5 is outside the support of its prior Uniform(0, 2)."),
        ({"a": 1, "b": [1, -2]}, "b = 1, -2 is outside the support of its prior Gamma(2, 3)."),
        ([np.nan, 1, 1], "a = nan is outside the support of its prior Uniform(0, 2)."),
        ([1, 1, np.inf], "b = 1, inf is outside the support of its prior Gamma(2, 3)."),
        ([1, 2], "theta has shape (2,), expected (3,): one value for each of a, b[0], b[1]."),
        ([[1, 2, 3]], "theta has shape (1, 3), expected (3,)"),
        ({"a": 1, "b": [1, 2, 3]}, "b has shape (3,), expected (2,)."),
        ({"a": [1, 2], "b": [1, 2]}, "a has shape (2,), expected ()"),
        ({"a": 1, "b[1]": 1}, "theta has a part of b; give all of b[0], b[1]."),
        ({"b": [1, 2]}, "theta has no value for a."),
        (
            {"a": 1, "b": [1, 2], "b[2]": 1},
            "b[2] is not a free parameter of this model; did you mean b[1] or b[0]?",
        ),
        ({"a": "one", "b": [1, 2]}, "expected numbers."),
        (["x", "y", "z"], "expected numbers."),
    ],
)
def test_a_wrong_theta_is_refused_with_what_was_expected(theta, sentence):
    with pytest.raises(ThetaError) as error:
        PAIR.vector(theta)
    assert sentence in str(error.value)


def test_outside_the_support_the_density_is_zero():
    outside = jnp.array([2.5, 1.0, 1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert PAIR.log_prob(outside) == -jnp.inf
    assert not PAIR.in_support(outside)


def test_entries_and_whole_parameters_can_be_mixed():
    np.testing.assert_array_equal(PAIR.vector({"b[1]": 3.0, "a": 1.0, "b[0]": 2.0}), [1, 2, 3])


def test_an_empty_prior_has_an_empty_theta():
    prior = Prior({})
    assert (prior.size, prior.to_dict(prior.vector([]))) == (0, {})
    assert prior.log_prob(jnp.zeros(0)) == 0


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: Parameter(dist.Normal(jnp.zeros(2), 1.0), shape=(3,)),
            "a Parameter of shape (3,) got a prior of shape (2,).",
        ),
        (lambda: Fixed("fast"), "a Fixed got 'fast', expected a number or an array"),
        (lambda: Fixed(dist.Normal(0.0, 1.0)), "an unknown is gb.Parameter(prior)."),
        (lambda: Parameter(dist.Uniform(2.0, 1.0)), "goes from 2.0 to 1.0: there is nothing"),
        (lambda: Parameter(dist.Uniform(1.0, 1.0), shape=(2,)), "goes from 1.0 to 1.0"),
        (lambda: Parameter(dist.TruncatedNormal(0.0, 1.0, low=3.0, high=1.0)), "goes from 3.0 to"),
        (lambda: Parameter(dist.Poisson(3.0)), "Poisson is not of real numbers"),
        (lambda: Parameter(dist.Binomial(3, 0.5)), "is not of real numbers"),
    ],
)
def test_a_wrong_declaration_is_refused(make, sentence):
    with pytest.raises(ModelError) as error:
        make()
    assert sentence in str(error.value)


def test_a_fixed_value_keeps_its_shape():
    assert (Fixed(2).shape, Fixed([1, 2]).shape) == ((), (2,))
