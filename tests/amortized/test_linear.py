"""The linear estimator against its limit, the exact posterior and brute force."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import greybayes as gb
from greybayes.amortized.linear import (
    LinearEstimator,
    fit_linear,
    linear_limit,
    linear_posterior,
    regression,
)
from greybayes.errors import InputError, ModelError, RecordError
from greybayes.zoo.fir import Fir

MEAN, COVARIANCE, NOISE = np.ones(2), np.eye(2) / 3, 0.09
TRUTH = np.full(2, 0.7)


def toy(n_steps, seed=0):
    """The input of the paper's toy model, its Phi by hand, and the limits."""
    u = np.random.default_rng(seed).uniform(size=n_steps).astype(np.float32).astype(float)
    phi = np.stack([u, np.concatenate([[0.0], u[:-1]])], axis=1)
    return u, phi, *linear_limit(phi, MEAN, COVARIANCE, NOISE)


def draw(phi, n_thetas, n_paths, rng):
    """Z(P, M) in plain NumPy."""
    theta = rng.multivariate_normal(MEAN, COVARIANCE, n_thetas).repeat(n_paths, axis=0)
    return theta, theta @ phi.T + np.sqrt(NOISE) * rng.standard_normal((len(theta), len(phi)))


def brute_force(theta, y):
    """The stacked least-squares problem of all paths, A and b together."""
    solution = np.linalg.lstsq(np.column_stack([y, np.ones(len(y))]), theta, rcond=None)[0]
    return solution[:-1].T, solution[-1]


def theory(phi, y, n_thetas, n_paths):
    """The mean of |theta_hat - theta_inf|^2 at y, to first order in 1/(P M).

    The regression has errors e = K (theta - mu) - A v with K = I - A phi, of covariance `posterior`
    (independent of y), times the leverage of y. Paths of one theta share theta, so that e and y are
    correlated between them: Isserlis' theorem gives the terms that do not fall with M.
    """
    A, _ = linear_limit(phi, MEAN, COVARIANCE, NOISE)
    _, posterior = linear_posterior(phi, y, MEAN, COVARIANCE, NOISE)
    K = np.eye(2) - A @ phi
    centred = y - phi @ MEAN
    w = np.linalg.solve(phi @ COVARIANCE @ phi.T + NOISE * np.eye(len(y)), centred)
    own = np.trace(posterior) * (w @ centred + 1)
    shared = np.trace(K @ COVARIANCE @ K.T) * (w @ phi @ COVARIANCE @ phi.T @ w + 1)
    shared += np.sum((K @ COVARIANCE @ phi.T @ w) ** 2)
    return (own / n_paths + (1 - 1 / n_paths) * shared) / n_thetas


# The limit and the exact posterior.


def test_the_limit_is_the_mean_of_the_joint_gaussian_given_y():
    _, phi, A, b = toy(40)
    rng = np.random.default_rng(1)
    y = draw(phi, 1, 1, rng)[1][0]
    joint = np.block(
        [
            [COVARIANCE, COVARIANCE @ phi.T],
            [phi @ COVARIANCE, phi @ COVARIANCE @ phi.T + NOISE * np.eye(40)],
        ]
    )
    gain = np.linalg.solve(joint[2:, 2:], joint[2:, :2]).T
    mean, covariance = linear_posterior(phi, y, MEAN, COVARIANCE, NOISE)
    np.testing.assert_allclose(A @ y + b, MEAN + gain @ (y - phi @ MEAN), atol=1e-10)
    np.testing.assert_allclose(mean, A @ y + b, atol=1e-10)
    np.testing.assert_allclose(covariance, joint[:2, :2] - gain @ joint[2:, :2], atol=1e-10)


@pytest.mark.parametrize("n", [1, 3, 30])
def test_both_printed_forms_give_the_limit(n):
    rng = np.random.default_rng(2)
    phi, root = rng.standard_normal((n, 4)), rng.standard_normal((4, 4))
    R, noise = root @ root.T, rng.uniform(0.1, 2.0, n)
    A, _ = linear_limit(phi, np.zeros(4), R, noise)
    data_form = R @ phi.T @ np.linalg.inv(phi @ R @ phi.T + np.diag(noise))
    information = phi.T @ (phi / noise[:, None]) + np.linalg.inv(R)
    np.testing.assert_allclose(A, data_form, atol=1e-10)
    np.testing.assert_allclose(A, np.linalg.solve(information, phi.T / noise), atol=1e-10)


def test_a_singular_prior_and_tiny_noise_are_no_trouble():
    _, phi, *_ = toy(30)
    direction = np.array([1.0, 2.0])
    R = np.outer(direction, direction)
    y = phi @ (MEAN + 0.3 * direction)
    mean, covariance = linear_posterior(phi, y, MEAN, R, 1e-20)
    np.testing.assert_allclose(mean, MEAN + 0.3 * direction, atol=1e-12)
    np.testing.assert_allclose(covariance, 0, atol=1e-18)


def test_missing_samples_are_left_out_of_the_posterior():
    _, phi, *_ = toy(30)
    y = draw(phi, 1, 1, np.random.default_rng(3))[1][0]
    seen = np.arange(30) % 3 > 0
    gaps = np.where(seen, y, np.nan)
    for ours, expected in zip(
        linear_posterior(phi, gaps, MEAN, COVARIANCE, NOISE),
        linear_posterior(phi[seen], y[seen], MEAN, COVARIANCE, NOISE),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, expected)


def test_a_noise_or_prior_that_is_no_covariance_is_refused():
    phi = np.ones((3, 2))
    with pytest.raises(gb.GreybayesError, match="must be positive"):
        linear_limit(phi, MEAN, COVARIANCE, 0.0)
    with pytest.raises(gb.GreybayesError, match="semidefinite"):
        linear_limit(phi, MEAN, -COVARIANCE, 0.1)


# Phi from a model.


@pytest.mark.parametrize("order", [1, 2, 5])
def test_the_regression_of_a_fir_is_the_paper_matrix(order):
    u = np.random.default_rng(4).uniform(size=12).astype(np.float32)
    phi = np.zeros((12, order))
    for k in range(12):
        for lag in range(min(order, k + 1)):
            phi[k, lag] = u[k - lag]
    found = regression(Fir(order=order), u)
    np.testing.assert_array_equal(found.phi, phi)
    np.testing.assert_array_equal(found.offset, np.zeros(12))
    np.testing.assert_allclose(found.noise_variance, np.full(12, NOISE), rtol=1e-6)


class Ramp(gb.Model):
    """Two outputs: level + slope times the sum of u, and 2 level beside a known sine."""

    level = gb.Parameter(dist.Normal(1.0, 2.0))
    slope = gb.Parameter(dist.Normal(0.0, 1.0))
    outputs = ("y1", "y2")
    n_steps = 15

    def initial(self, u, p):
        return gb.Known(0.5)

    def transition(self, x, u, p, t):
        return gb.Known(x + u * p.slope)

    def observation(self, x, u, p, t):
        mean = jnp.stack([p.level + x[0], 2 * p.level + jnp.sin(1.0 * t.k)])
        return dist.Normal(mean, jnp.array([0.1, 0.2]))


class Bent(Ramp):
    """Linear where the state stays small, and bent elsewhere: NaN alone would not find it."""

    def observation(self, x, u, p, t):
        return dist.Normal(jnp.clip(x, -1.0, 1.0) * jnp.ones(2), 0.1)


class Noisy(Ramp):
    def observation(self, x, u, p, t):
        return dist.Normal(x * jnp.ones(2), jnp.exp(p.level))


class Dependent(Ramp):
    def observation(self, x, u, p, t):
        return dist.MultivariateNormal(x * jnp.ones(2), jnp.eye(2))


def test_outputs_are_flattened_time_major_and_the_trained_estimator_agrees():
    u = np.random.default_rng(5).uniform(-1, 1, 15)
    phi, offset, variance = regression(Ramp(), u)
    driven = np.concatenate([[0.0], np.cumsum(u.astype(np.float32))[:-1]])
    ones = np.ones(15)
    expected = np.stack([np.stack([ones, driven], 1), np.stack([2 * ones, 0 * ones], 1)], axis=1)
    np.testing.assert_allclose(phi, expected.reshape(30, 2), atol=1e-6)
    np.testing.assert_allclose(offset[:4], [0.5, np.sin(1), 0.5, np.sin(2)], atol=1e-7)
    np.testing.assert_allclose(variance[:4], [0.01, 0.04, 0.01, 0.04], rtol=1e-6)
    A, b = linear_limit(phi, np.array([1.0, 0.0]), np.diag([4.0, 1.0]), variance, offset)
    estimator = fit_linear(Ramp(), 3000, 1, inputs=u)
    record = gb.simulate(Ramp(), {"level": 2.0, "slope": -0.5}, inputs=u, key=1)[0]
    estimate = estimator.estimate(record)
    assert isinstance(estimate, gb.Estimate)
    assert (estimate.method, estimate.model) == ("linear", "Ramp")
    assert estimate.names == ("level", "slope")
    _, posterior = linear_posterior(
        phi, record.y, np.array([1.0, 0.0]), np.diag([4.0, 1.0]), variance, offset
    )
    # Five standard errors of A y + b: posterior covariance times leverage over paths.
    error = np.abs(estimate.mean - (A @ record.y.ravel() + b))
    assert (error < 5 * np.sqrt(np.diag(posterior) * 31 / 3000)).all()
    assert estimate.covariance is not None
    np.testing.assert_allclose(estimate.covariance, posterior, atol=0.2 * posterior.max())


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (Bent(), "not linear in theta"),
        (Noisy(), "noise that depends on theta"),
        (Dependent(), "dependent noises"),
        ("growth2", "noise in its state"),
        ("coupled-drives", "not linear in theta"),
    ],
)
def test_what_is_no_regression_is_refused(model, sentence):
    u = np.full(15, 0.2)
    with pytest.raises(ModelError, match=sentence):
        regression(model, u)


def test_a_regression_leaves_float32_as_it_was():
    regression(Fir(), np.ones(4))
    assert jnp.ones(1).dtype == jnp.float32


# The fit.


def test_the_fit_is_the_brute_force_solution():
    _, phi, *_ = toy(12)
    theta, y = draw(phi, 20, 5, np.random.default_rng(6))
    estimator = fit_linear([(theta, y)])
    A, b = brute_force(theta, y)
    np.testing.assert_allclose(estimator.A, A, atol=1e-12)
    np.testing.assert_allclose(estimator.b, b, atol=1e-12)
    residual = theta - estimator(y)
    assert estimator.covariance is not None
    np.testing.assert_allclose(estimator.covariance, residual.T @ residual / 87, atol=1e-12)


def test_the_fit_is_the_paper_formula_with_its_kronecker_product():
    """Q = y' ⊗ I_d, and a one appended to y for b; I_N in the paper is a slip, d rows are meant."""
    _, phi, *_ = toy(4)
    theta, y = draw(phi, 6, 3, np.random.default_rng(7))
    left, right = np.zeros((10, 10)), np.zeros(10)
    for one, path in zip(theta, y, strict=True):
        Q = np.kron(np.append(path, 1.0)[None], np.eye(2))
        left, right = left + Q.T @ Q, right + Q.T @ one
    alpha = np.linalg.solve(left, right).reshape(2, 5, order="F")
    estimator = fit_linear([(theta, y)])
    np.testing.assert_allclose(estimator.A, alpha[:, :4], atol=1e-10)
    np.testing.assert_allclose(estimator.b, alpha[:, 4], atol=1e-10)


def test_blocks_of_any_size_give_what_the_whole_gives():
    _, phi, *_ = toy(10)
    # A large common level: uncentred sums would lose half the digits.
    theta, y = draw(phi, 300, 2, np.random.default_rng(8))
    y = y + 1e4
    whole = fit_linear([(theta, y)])
    blocks = ((theta[i:j], y[i:j, :, None]) for i, j in [(0, 1), (1, 200), (200, 200), (200, 600)])
    pieces = fit_linear(blocks)
    np.testing.assert_allclose(pieces.A, whole.A, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(pieces(y[:3]), whole(y[:3]), atol=1e-10)
    assert pieces.n_paths == whole.n_paths == 600


def test_simulated_blocks_are_the_offline_set(monkeypatch):
    monkeypatch.setattr("greybayes.amortized.linear.CHUNK", 16)
    u = np.random.default_rng(9).uniform(size=8)
    paths = gb.offline_set(Fir(), 25, 3, inputs=u, key=5)
    streamed = fit_linear(Fir(), 25, 3, inputs=u, key=5)
    A, b = brute_force(paths.theta.astype(float), paths.y[..., 0].astype(float))
    for estimator in (fit_linear(paths), streamed):
        np.testing.assert_allclose(estimator.A, A, atol=1e-10)
        np.testing.assert_allclose(estimator.b, b, atol=1e-10)
        assert estimator.n_paths == 75
        assert estimator.names == ("theta[0]", "theta[1]")


@pytest.mark.parametrize("n_paths", [1, 2, 20, 40, 41])
def test_with_few_paths_the_smallest_fit_is_taken(n_paths):
    _, phi, *_ = toy(40)
    theta, y = draw(phi, n_paths, 1, np.random.default_rng(10))
    estimator = fit_linear([(theta, y)])
    np.testing.assert_allclose(estimator(y), theta, atol=1e-8)
    std = np.where(y.std(0) > 0, y.std(0), 1.0)
    standard = (y - y.mean(0)) / std
    smallest = np.linalg.lstsq(standard, theta - theta.mean(0), rcond=1e-12)[0]
    np.testing.assert_allclose(estimator.A * std, smallest.T, atol=1e-8)
    assert estimator.covariance is None


def test_constant_repeated_and_ill_scaled_samples_change_nothing():
    _, phi, *_ = toy(6)
    theta, y = draw(phi, 200, 1, np.random.default_rng(11))
    plain = fit_linear([(theta, y)])
    odd = np.column_stack([y * 10.0 ** np.arange(-9, 9, 3), y[:, 0] * 1e5, np.full(200, 0.1)])
    other = fit_linear([(theta, odd)])
    np.testing.assert_allclose(other(odd), plain(y), atol=1e-10)
    np.testing.assert_array_equal(other.A[:, -1], 0)
    np.testing.assert_allclose(other.covariance, plain.covariance, rtol=1e-8)


def test_diverged_paths_are_left_out_and_counted():
    u = np.ones(5)
    paths = gb.offline_set(Fir(), 30, 1, inputs=u)
    y, diverged = paths.y.copy(), np.zeros(30, bool)
    y[3, 2], diverged[7] = np.inf, True
    broken = gb.Paths(paths.model, paths.theta, None, y, paths.u, diverged)
    kept = np.delete(np.arange(30), [3, 7])
    estimator = fit_linear(broken)
    assert (estimator.n_paths, estimator.n_diverged) == (28, 2)
    np.testing.assert_allclose(estimator.A, fit_linear([(paths.theta[kept], y[kept])]).A)
    with pytest.raises(InputError, match="no finite path to fit to; 2 diverged"):
        fit_linear([(np.ones((2, 1)), np.full((2, 3), np.nan))])


def test_a_random_input_is_refused():
    with pytest.raises(InputError, match="freeze the design"):
        fit_linear(Fir(), 10, 10)
    with pytest.raises(InputError, match="freeze the design"):
        fit_linear(gb.offline_set(Fir(n_steps=5), 4, 2))


@pytest.mark.parametrize("wrong", [(np.ones((4, 2)), np.ones((4, 3))), [(np.ones(4), np.ones(4))]])
def test_what_is_no_block_is_refused(wrong):
    with pytest.raises(InputError, match=r"a single block is \[\(theta, y\)\]"):
        fit_linear(wrong)


def test_a_model_needs_p_and_m():
    with pytest.raises(InputError, match="needs P and M"):
        fit_linear(Fir(), inputs=np.ones(3))


# Records in, estimates out.


def test_records_arrays_and_batches_agree():
    u = np.random.default_rng(12).uniform(size=7)
    estimator = fit_linear(Fir(), 50, 2, inputs=u)
    paths = gb.simulate(Fir(), TRUTH, inputs=u, count=3, key=2)
    estimates = estimator.estimate(paths)
    assert isinstance(estimates, list)
    means = np.stack([estimate.mean for estimate in estimates])
    np.testing.assert_allclose(estimator(paths.y), means, rtol=1e-12)
    np.testing.assert_allclose(estimator(paths.y[..., 0]), means, rtol=1e-12)
    assert estimator(jnp.asarray(paths.y[0])).shape == (2,)
    assert estimates[0].settings == {"n_paths": 100, "n_diverged": 0}


def test_a_record_that_does_not_fit_is_refused():
    u = np.linspace(0, 1, 4)
    estimator = fit_linear(Fir(), 50, 2, inputs=u)
    with pytest.raises(RecordError, match="fitted for 4 samples of 1 outputs"):
        estimator.estimate(gb.Record(y=np.ones(5)))
    with pytest.raises(RecordError, match="1 samples are missing"):
        estimator.estimate(gb.Record(y=[1.0, np.nan, 1.0, 1.0]))
    with pytest.raises(RecordError, match="u is not the one of the fit"):
        estimator.estimate(gb.Record(y=np.ones(4), u=u[::-1]))
    rounded = gb.Record(y=np.ones(4), u=u.round(5))
    assert isinstance(estimator.estimate(rounded), gb.Estimate)
    two = LinearEstimator(np.ones((1, 6)), np.zeros(1), ("a",), n_outputs=2)
    assert two(np.ones((5, 3, 2))).shape == (5, 1)
    with pytest.raises(RecordError, match="3 samples of 2 outputs"):
        two(np.ones((2, 3)))


# Convergence.


def test_the_trained_matrix_converges_at_the_rate_of_monte_carlo():
    _, phi, A, _ = toy(8)
    rng = np.random.default_rng(13)
    # Independent paths (M = 1): then log10 of the mean squared error has a known spread.
    sizes, repetitions = np.array([100, 1000, 10_000]), 40
    squared = np.array(
        [
            [np.sum((fit_linear([draw(phi, n, 1, rng)]).A - A) ** 2) for _ in range(repetitions)]
            for n in sizes
        ]
    )
    level = np.log(squared.mean(axis=1)) / 2
    spread = squared.std(axis=1) / squared.mean(axis=1) / np.sqrt(repetitions) / 2
    # A slope through the ends of two decades; (n - N - 2) for n is the exact finite-sample size.
    run = np.log((sizes[-1] - 10) / (sizes[0] - 10))
    slope = (level[-1] - level[0]) / run
    assert abs(slope + 0.5) < 4 * np.hypot(spread[0], spread[-1]) / run
    between = (level[1] - level[0]) / np.log((sizes[1] - 10) / (sizes[0] - 10))
    assert abs(between + 0.5) < 4 * np.hypot(spread[0], spread[1]) / (run / 2)


def squared_errors(n_steps, n_thetas, n_paths, repetitions, seed):
    """|theta_hat - theta_inf|^2 of the paper's Table 1, beside its theory, for fresh y and Z."""
    u, phi, A, b = toy(n_steps)
    rng = np.random.default_rng(seed)
    model, found, expected = Fir(), [], []  # One model: it is compiled once.
    for repetition in range(repetitions):
        y = phi @ TRUTH + np.sqrt(NOISE) * rng.standard_normal(n_steps)
        trained = fit_linear(model, n_thetas, n_paths, inputs=u, key=seed + repetition)
        found.append(np.sum((trained(y) - A @ y - b) ** 2))
        expected.append(theory(phi, y, n_thetas, n_paths))
    paths = n_thetas * n_paths
    # The mean of an inverse Wishart matrix: the leverage is n / (n - N - 2) times its limit.
    return np.array(found), np.array(expected) * paths / (paths - n_steps - 2)


def rough(n_steps, n_paths):
    """The theory in one line: tr(posterior covariance) N / (P M)."""
    _, phi, *_ = toy(n_steps)
    _, posterior = linear_posterior(phi, phi @ TRUTH, MEAN, COVARIANCE, NOISE)
    return np.trace(posterior) * n_steps / n_paths


def test_the_error_of_table_1_has_the_size_that_theory_gives():
    found, expected = squared_errors(30, n_thetas=60, n_paths=10, repetitions=100, seed=100)
    ratio = found / expected
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / np.sqrt(len(ratio))
    assert abs(expected.mean() / rough(30, 600) - 1) < 0.15


@pytest.mark.accuracy
def test_a_cell_of_table_1():
    """P = 400, M = 50: 5.47e-5 in the paper, whose u is not known."""
    found, expected = squared_errors(500, n_thetas=400, n_paths=50, repetitions=60, seed=1000)
    ratio = found / expected
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / np.sqrt(len(ratio))
    assert abs(expected.mean() / rough(500, 20_000) - 1) < 0.05
    # The input changes the trace by 5 % (std), a test record the leverage by 6 %; both are fixed
    # in the paper, whose sixteen cells lie 15 % below the mean over inputs.
    assert 0.7 < 5.47e-5 / found.mean() < 1.4
