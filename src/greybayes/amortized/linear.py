"""The paper's linear estimator theta_hat = A y + b: trained on Z(P, M), and its limit.

The section "Linear Toy Model" of the paper. y is the whole record as one vector of N entries,
time-major: all outputs of the first sample, then all of the second. u does not enter, so the
estimator holds for the one input it was trained with. Everything here is float64.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float
from scipy import linalg

from greybayes._types import Seed
from greybayes.affine import depends, is_affine
from greybayes.drawing import clock, delayed
from greybayes.errors import GreybayesError, InputError, ModelError, RecordError
from greybayes.estimate import Estimate
from greybayes.inputs import Design
from greybayes.model import Model
from greybayes.noise import Channels
from greybayes.record import Record
from greybayes.simulation import CHUNK, Paths, offline_blocks, resolve_inputs
from greybayes.structure import distribution
from greybayes.zoo import get_model


@dataclass(frozen=True, eq=False)
class LinearEstimator:
    """theta_hat = A y + b, eq. (optimized_Ab_hat) of the paper. Made by `fit_linear`."""

    A: Float[np.ndarray, "param samples"]
    b: Float[np.ndarray, " param"]
    names: tuple[str, ...]
    n_outputs: int = 1
    covariance: Float[np.ndarray, "param param"] | None = None
    """Of theta - theta_hat, averaged over the prior; None where no paths were left to tell."""
    u: Float[np.ndarray, "steps input"] | None = None
    """The input of the training paths, where known: a record with another one is refused."""
    model: str = ""
    n_paths: int = 0
    n_diverged: int = 0
    """Paths left out of the fit, because a number in them was not finite."""

    def __call__(self, y: Float[np.ndarray | Array, "*shape"]) -> Float[np.ndarray, "*out param"]:
        """Estimates `(..., param)` of outputs `(..., steps, output)` or `(..., N)`."""
        y, size = np.asarray(y, float), self.A.shape[1]
        if y.shape[-2:] == (size // self.n_outputs, self.n_outputs):
            y = y.reshape(*y.shape[:-2], size)
        if y.shape[-1:] != (size,):
            shape = f"{size // self.n_outputs} samples of {self.n_outputs} outputs"
            raise RecordError(f"y has shape {y.shape}; this estimator was fitted for {shape}.")
        return y @ self.A.T + self.b

    def estimate(self, records: Record | Iterable[Record]) -> Estimate | list[Estimate]:
        """An estimate of one record, or a list of them, one for each record."""
        if not isinstance(records, Record):
            return [self._one(record) for record in records]
        return self._one(records)

    def _one(self, record: Record) -> Estimate:
        if record.n_missing:
            missing = f"{record.n_missing} samples are missing"
            raise RecordError(f"{missing}; the linear estimator needs every one.")
        mean = self(record.y)
        if self.u is not None and record.u is not None and not _same(record.u, self.u):
            raise RecordError(
                "the record's u is not the one of the fit, and A holds for that one only; fit "
                "again with inputs=record.u."
            )
        settings = {"n_paths": self.n_paths, "n_diverged": self.n_diverged}
        rest: dict[str, Any] = {"method": "linear", "model": self.model, "settings": settings}
        return Estimate(self.names, mean, self.covariance, **rest)


def _same(u: np.ndarray, other: np.ndarray) -> bool:
    # Files round: what differs by less than this is the same signal.
    near = 1e-4 * np.abs(other).max(initial=0)
    return u.shape == other.shape and bool((np.abs(u - other) <= near).all())


def fit_linear(
    source: Model | str | Paths | Iterable,
    n_thetas: int = 0,
    n_paths: int = 0,
    *,
    inputs: Design | np.ndarray | Array | str | None = None,
    n_steps: int | None = None,
    key: Seed = 0,
    names: Sequence[str] = (),
) -> LinearEstimator:
    """The least-squares A and b from Z(P, M): alpha_hat of the paper, eq. (lssolution).

    `source` is a model, whose paths are then those of `gb.offline_set` with the same arguments
    but simulated block by block and never all in memory; or `Paths`; or an iterable of blocks
    `(theta, y)` of shapes `(count, param)` and `(count, N)` or `(count, steps, output)`.

    The paper's Q_(p,m) = y' ⊗ I makes its normal equations d equal systems of N unknowns, so one
    Cholesky factor of the N × N scatter of y, about its mean, serves them all. Where it is
    singular (fewer paths than samples, repeated or constant samples) A is the smallest of the
    best, each sample of y measured in its standard deviation.

    >>> from greybayes.zoo.fir import Fir
    >>> u = Fir.design.fixed(0, n_steps=20)
    >>> estimator = fit_linear(Fir(), 100, 10, inputs=u)
    >>> estimator.A.shape, estimator.n_paths
    ((2, 20), 1000)
    """
    model, u = None, None
    if isinstance(source, Paths):
        model, u = source.model, source.u[0]
        if not (source.u == u).all():
            raise _random_input()
        blocks = [(_marked(source.theta, source.diverged), source.y)]
    elif isinstance(source, Model | str):
        model = get_model(source)
        if min(n_thetas, n_paths) < 1:
            raise InputError(f"Z(P, M) needs P and M of 1 or more, got {n_thetas} and {n_paths}.")
        u = _one_input(model, inputs, n_steps)
        paths = offline_blocks(model, n_thetas, n_paths, inputs=np.asarray(u), key=key)
        blocks = ((_marked(part.theta, part.diverged), part.y) for part in paths)
    else:
        blocks = source
    n, n_diverged, n_outputs, d, mean, scatter = _moments(blocks)
    y_y, theta_y, theta_theta = scatter[:-d, :-d], scatter[-d:, :-d], scatter[-d:, -d:]
    A, rank = _solve(y_y, theta_y, mean[:-d])
    spare = n - 1 - rank
    names = model.prior.names if model else tuple(names) or tuple(f"theta[{i}]" for i in range(d))
    return LinearEstimator(
        A=A,
        b=mean[-d:] - A @ mean[:-d],
        names=names,
        n_outputs=n_outputs,
        covariance=(theta_theta - A @ theta_y.T) / spare if spare > 0 else None,
        u=None if u is None else np.asarray(u),
        model=type(model).__name__ if model else "",
        n_paths=n,
        n_diverged=n_diverged,
    )


def _solve(y_y: np.ndarray, theta_y: np.ndarray, mean: np.ndarray) -> tuple[np.ndarray, int]:
    """A with A y_y = theta_y, and the rank of y_y. `mean` tells what is constant but for rounding.

    The data are float32, so that singular values of y below 1e-7 are rounding: a scatter in
    float64, which loses those below 1e-8, loses nothing, and no QR of the data is needed.
    """
    std = np.sqrt(np.diag(y_y))
    std = np.where(std > 1e-12 * np.abs(mean), std, np.inf)
    correlation, right = y_y / np.outer(std, std), theta_y / std
    too_small = len(std) * np.finfo(float).eps
    try:
        factor = linalg.cho_factor(correlation, lower=True)
        if np.diag(factor[0]).min() ** 2 > too_small:
            return linalg.cho_solve(factor, right.T).T / std, len(std)
    except linalg.LinAlgError:
        pass
    inverse, rank = linalg.pinvh(correlation, rtol=too_small, return_rank=True)
    return right @ inverse / std, int(rank)


def _moments(blocks: Iterable):
    """Mean and scatter of (y, theta), merged block by block (Chan, Golub and LeVeque 1983)."""
    n, n_diverged, n_outputs, d, mean, scatter = 0, 0, 1, 0, np.zeros(()), np.zeros(())
    for block in blocks:
        theta, y = block if isinstance(block, tuple | list) and len(block) == 2 else (0, 0)
        theta, y = np.asarray(theta), np.asarray(y)
        if theta.ndim != 2 or y.ndim not in (2, 3) or len(theta) != len(y):
            raise InputError(
                f"a block has shapes {theta.shape} and {y.shape}, expected (theta, y) of shapes "
                "(count, param) and (count, steps, output); a single block is [(theta, y)]."
            )
        d, n_outputs = theta.shape[1], y.shape[2] if y.ndim == 3 else 1
        for start in range(0, len(y), CHUNK):
            rows = slice(start, start + CHUNK)
            flat = y[rows].reshape(len(y[rows]), -1)
            z = np.concatenate([flat, theta[rows]], axis=1, dtype=np.float64)
            finite = np.isfinite(z).all(axis=1)
            n_diverged += int((~finite).sum())
            z = z[finite]
            if not len(z):
                continue
            centre = z.mean(axis=0)
            z -= centre
            step, share = centre - mean, len(z) / (n + len(z))
            mean = mean + share * step
            scatter = scatter + z.T @ z + n * share * np.outer(step, step)
            n += len(z)
    if not n:
        raise InputError(f"no finite path to fit to; {n_diverged} diverged.")
    return n, n_diverged, n_outputs, d, mean, scatter


def _marked(theta: np.ndarray, diverged: np.ndarray) -> np.ndarray:
    """Theta, NaN where the path diverged: a state may, while its output is still finite."""
    return np.where(diverged[:, None], np.nan, theta)


def _one_input(model: Model, inputs: Any, n_steps: int | None) -> Float[Array, "steps input"]:
    design, n_steps = resolve_inputs(model, inputs, n_steps)
    if design.is_random:
        raise _random_input()
    return design.draw(jr.key(0), n_steps, model.dt)


def _random_input() -> InputError:
    return InputError(
        "the linear estimator sees y only, so all paths must have one input; freeze the design "
        "with inputs=design.fixed(0, n_steps)."
    )


class Regression(NamedTuple):
    """A model that is linear in theta, for one input: y = phi theta + offset + v."""

    phi: Float[np.ndarray, "samples param"]
    offset: Float[np.ndarray, " samples"]
    noise_variance: Float[np.ndarray, " samples"]


def regression(
    model: Model | str, u: Design | np.ndarray | Array | str | None = None
) -> Regression:
    """The paper's matrix Phi, eq. (LM_Input_Matrix), of any model that is linear in theta.

    Phi is the derivative of the mean output, u is zero before the record (or `input_before`). The
    model must have noise in its output only, independent between channels, of known variance.

    >>> regression("fir", np.array([1.0, 2.0, 3.0])).phi
    array([[1., 0.],
           [2., 1.],
           [3., 2.]])
    """
    model = get_model(model)
    if not model.structure.output_error:
        raise _no_regression(model, "has noise in its state")
    signal = np.asarray(_one_input(model, u, None), float)

    def output(theta):
        p, u = model.p(theta), delayed(model, jnp.asarray(signal))

        def step(x, arguments):
            y = distribution(model, "observation", x, arguments[0], p, arguments[1])
            if not isinstance(y, dist.Independent | Channels):
                raise _no_regression(model, "has outputs with dependent noises")
            x_next = distribution(model, "transition", x, arguments[0], p, arguments[1]).mean
            return jnp.asarray(x_next, float), (y.mean, y.variance)

        x_1 = jnp.asarray(distribution(model, "initial", u[0], p).mean, float)
        return jax.lax.scan(step, x_1, (u, clock(model, len(u))))[1]

    with jax.enable_x64(True):
        theta = jnp.asarray(model.prior.mean, float)
        if not is_affine(lambda theta: output(theta)[0], theta):
            raise _no_regression(model, "is not linear in theta")
        if depends(lambda theta: output(theta)[1], theta):
            raise _no_regression(model, "has a noise that depends on theta")
        mean, variance = map(np.asarray, output(theta))
        phi = np.asarray(jax.jacfwd(lambda theta: output(theta)[0])(theta))
    phi = phi.reshape(mean.size, -1)
    return Regression(phi, mean.ravel() - phi @ np.asarray(theta), variance.ravel())


def _no_regression(model: Model, why: str) -> ModelError:
    return ModelError(f"{type(model).__name__} {why}; a regression is y = phi theta + offset + v.")


def linear_limit(
    phi: Float[np.ndarray, "samples param"],
    prior_mean: Float[np.ndarray, " param"],
    prior_covariance: Float[np.ndarray, "param param"],
    noise_variance: float | Float[np.ndarray, " samples"],
    offset: float | Float[np.ndarray, " samples"] = 0.0,
) -> tuple[Float[np.ndarray, "param samples"], Float[np.ndarray, " param"]]:
    """A_inf and b_inf, eq. (asymp_estimates_bias) of the paper, for y = phi theta + offset + v.

    With R = L L', lambda the noise variance and the QR factors (Q1; Q2) T of (phi L / sqrt(lambda);
    I), A = L T^-1 Q1' / sqrt(lambda). That equals R phi' (phi R phi' + lambda I)^-1 and
    (phi' phi / lambda + R^-1)^-1 phi' / lambda, but has no N × N matrix, allows a singular R, and
    squares no condition number.

    >>> A, b = linear_limit(np.ones((3, 1)), np.ones(1), np.eye(1), 1.0)
    >>> A.round(12), b.round(12)
    (array([[0.25, 0.25, 0.25]]), array([0.25]))
    """
    A, _ = _gain(phi, prior_covariance, noise_variance)
    return A, prior_mean - A @ (phi @ prior_mean + offset)


def linear_posterior(
    phi: Float[np.ndarray, "samples param"],
    y: Float[np.ndarray, "*shape"],
    prior_mean: Float[np.ndarray, " param"],
    prior_covariance: Float[np.ndarray, "param param"],
    noise_variance: float | Float[np.ndarray, " samples"],
    offset: float | Float[np.ndarray, " samples"] = 0.0,
) -> tuple[Float[np.ndarray, " param"], Float[np.ndarray, "param param"]]:
    """Mean and covariance of theta given y, exact where prior and noise are Gaussian.

    NaN in y is a missing sample, and is left out.

    >>> linear_posterior(np.ones((3, 1)), np.array([2.0, np.nan, 2.0]), np.zeros(1), np.eye(1), 1.0)
    (array([1.33333333]), array([[0.33333333]]))
    """
    innovation = np.ravel(y) - phi @ prior_mean - offset
    seen = ~np.isnan(innovation)
    noise_variance = np.broadcast_to(noise_variance, len(phi))[seen]
    A, half = _gain(phi[seen], prior_covariance, noise_variance)
    return prior_mean + A @ innovation[seen], half @ half.T


def _gain(phi, prior_covariance, noise_variance) -> tuple[np.ndarray, np.ndarray]:
    """A_inf, and a square root L T^-1 of the posterior covariance."""
    phi, noise = np.asarray(phi, float), np.broadcast_to(noise_variance, len(phi))
    values, vectors = np.linalg.eigh(prior_covariance)
    if not (noise > 0).all() or values.min() < -1e-6 * values.max():
        raise GreybayesError(
            "the noise variance must be positive and the prior covariance positive semidefinite."
        )
    root, std = vectors * np.sqrt(values.clip(0)), np.sqrt(noise)
    stacked = np.concatenate([phi @ root / std[:, None], np.eye(len(root))])
    q, t = np.linalg.qr(stacked)
    half = linalg.solve_triangular(t.T, root.T, lower=True).T
    return half @ q[: len(phi)].T / std, half
