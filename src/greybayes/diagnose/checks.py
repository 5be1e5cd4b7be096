"""Tests of residuals: are they white, standard normal, and free of the input?

Every p-value is right for white normal residuals of any length, with any input and with missing
samples (NaN); they are taken together by Holm's rule.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

MAX_LAG = 20


@dataclass(frozen=True)
class Check:
    """One question put to a record: what was measured, and how seldom the model does as much."""

    name: str
    output: str
    value: float
    p: float
    input: str = ""
    at: int | None = None
    """The lag, or the sample (from 1), at which it shows most."""
    expected: tuple[float, float] | None = None
    """The middle 95 % of records drawn from the estimate; None where it is a test of residuals."""

    @property
    def label(self) -> str:
        """The check in words."""
        what = _LABELS[self.name] + (f" {self.input}" if self.input else "")
        lag = f" (lag {self.at})" if self.at is not None and self.name != "tails" else ""
        return what + lag


_LABELS = {
    "offset": "residuals: mean",
    "variance": "residuals: variance",
    "whiteness": "residuals: autocorrelation",
    "tails": "residuals: largest",
    "input": "residuals: correlation with",
    "delay": "residuals: delay of the input",
    "mean": "mean",
    "std": "standard deviation",
    "lag 1": "autocorrelation at lag 1",
    "lag 5": "autocorrelation at lag 5",
    "largest": "largest absolute value",
    "run": "longest constant run",
    "follows": "largest correlation with",
}


def residual_checks(
    e: Float[np.ndarray, "steps output"],
    u: Float[np.ndarray, "steps input"] | None,
    outputs: tuple[str, ...],
    inputs: tuple[str, ...],
) -> list[Check]:
    """Tests of residuals, for each output, and with each input that varies.

    Those for which a record is too short are left out.

    >>> e = np.random.default_rng(0).standard_normal((200, 1))
    >>> [check.name for check in residual_checks(e, None, ("y",), ())]
    ['offset', 'variance', 'whiteness', 'tails']
    """
    found = []
    for name, column in zip(outputs, e.T, strict=True):
        for test in (offset, variance, whiteness, tails):
            answer = test(column)
            if answer is not None:
                found.append(Check(test.__name__, name, *answer[:2], at=answer[2]))
        for source, signal in zip(inputs, [] if u is None else u.T, strict=True):
            answer = follows_input(column, signal)
            if answer is not None:
                found.append(Check("input", name, *answer[:2], source, answer[2]))
    return found


Answer = tuple[float, float, int | None] | None
"""What was measured, its p-value, and where it shows most."""


def offset(e: Float[np.ndarray, " steps"]) -> Answer:
    """The mean, by Student's test: right also where the variance is not 1."""
    from scipy.stats import t

    e = e[~np.isnan(e)]
    if len(e) < 3 or not e.std():
        return None
    mean, scale = e.mean(), e.std(ddof=1) / np.sqrt(len(e))
    return float(mean), float(2 * t.sf(abs(mean) / scale, len(e) - 1)), None


def variance(e: Float[np.ndarray, " steps"]) -> Answer:
    """The variance around the mean, against 1 on both sides (chi-square)."""
    from scipy.stats import chi2

    e = e[~np.isnan(e)]
    if len(e) < 3:
        return None
    found, df = e.var(ddof=1), len(e) - 1
    less = chi2.cdf(df * found, df), chi2.sf(df * found, df)
    return float(found), float(min(1.0, 2 * min(less))), None


def autocorrelation(e: Float[np.ndarray, " steps"], n_lags: int) -> Float[np.ndarray, " lags"]:
    """The correlation of e_k with e_{k-h} at the lags 0 to `n_lags`; missing samples add nothing.

    >>> autocorrelation(np.array([1.0, -1.0, 1.0, -1.0]), 2)
    array([ 1.  , -0.75,  0.5 ])
    """
    seen = ~np.isnan(e)
    centred = np.where(seen, e - e[seen].mean(), 0.0)
    r = np.array([centred[h:] @ centred[: len(e) - h] for h in range(n_lags + 1)])
    return r / r[0]


def cross_correlation(
    e: Float[np.ndarray, " steps"], u: Float[np.ndarray, " steps"], n_lags: int
) -> Float[np.ndarray, " lags"]:
    """The correlation of e_k with u_{k-h} at the lags -`n_lags` to `n_lags`.

    What is positive at a positive lag was done by the past of u; at a negative one, u follows e.

    >>> u = np.array([0.0, 0.0, 1.0, 0.0, 0.0])
    >>> cross_correlation(np.roll(u, 1), u, 1).round(2)
    array([-0.3 , -0.25,  0.95])
    """
    seen = ~np.isnan(e)
    centred, late = np.where(seen, e - e[seen].mean(), 0.0), u - u.mean()
    size = np.linalg.norm(centred) * np.linalg.norm(late)
    n = len(e)
    products = [
        centred[max(h, 0) : n + min(h, 0)] @ late[max(-h, 0) : n - max(h, 0)]
        for h in range(-n_lags, n_lags + 1)
    ]
    return np.divide(products, size, out=np.zeros(2 * n_lags + 1), where=size > 0)


def band(e: Float[np.ndarray, " steps"], level: float = 0.99) -> float:
    """Where correlations of white residuals stay, each with this probability.

    >>> round(band(np.zeros(400)), 4)
    0.1288
    """
    from scipy.special import ndtri

    return float(ndtri((1 + level) / 2) / np.sqrt(max((~np.isnan(e)).sum(), 1)))


def whiteness(e: Float[np.ndarray, " steps"]) -> Answer:
    """Ljung and Box's sum over lags, of partial autocorrelations (Monti 1994).

    With plain autocorrelations, 200 samples and 20 lags, the sum is beyond its 0.2 % point three
    times too often; with partial ones, which hardly depend on one another, it is right.
    """
    from scipy.stats import chi2

    seen = ~np.isnan(e)
    n = int(seen.sum())
    n_lags = min(MAX_LAG, n // 5)
    if n_lags < 2 or not np.nanstd(e):
        return None
    pairs = np.array([(seen[h:] & seen[: len(e) - h]).sum() for h in range(1, n_lags + 1)])
    r = autocorrelation(e, n_lags)
    partial, phi, rest = [], np.zeros(0), 1.0
    for lag in range(1, n_lags + 1):  # Levinson and Durbin.
        last = (r[lag] - phi @ r[1:lag][::-1]) / rest
        phi = np.append(phi - last * phi[::-1], last)
        rest *= 1 - last**2
        partial.append(last)
    used = pairs > n // 10
    squares = n * (n + 2) * np.array(partial) ** 2 / np.maximum(pairs, 1)
    # All lags together, and the first alone, where most colours show: the better of the two.
    p = 2 * min(chi2.sf(squares[used].sum(), used.sum()), chi2.sf(squares[0], 1))
    lag = 1 + int(np.abs(r[1:]).argmax())
    return float(r[lag]), float(min(1.0, p)), lag


def tails(e: Float[np.ndarray, " steps"]) -> Answer:
    """The fourth moment (Anscombe and Glynn 1983); the value is the largest residual."""
    from scipy.stats import kurtosistest

    seen = np.flatnonzero(~np.isnan(e))
    if len(seen) < 20 or not np.nanstd(e):
        return None
    farthest = int(seen[np.abs(e[seen]).argmax()])
    return float(e[farthest]), float(kurtosistest(e[seen]).pvalue), farthest + 1


def follows_input(e: Float[np.ndarray, " steps"], u: Float[np.ndarray, " steps"]) -> Answer:
    """Correlations of e_k with u_k, u_{k-1}, ... together: the F-test of a regression on them.

    Inputs are seldom white, so their correlations with white residuals depend on one another; the
    regression allows for it. The value is the largest correlation, with its lag.
    """
    from scipy.stats import f

    n_lags = min(MAX_LAG, len(e) // 10)
    late = np.stack([np.roll(u, h) for h in range(n_lags + 1)], axis=1)[n_lags:]
    now = e[n_lags:]
    late, now = late[~np.isnan(now)], now[~np.isnan(now)]
    if len(now) < 20 or not now.std():
        return None
    late, now = late - late.mean(0), now - now.mean()
    left, sizes, _ = np.linalg.svd(late, full_matrices=False)
    # A sine has two directions only, however many lags there are.
    kept = sizes > 1e-4 * max(float(sizes[0]), 1e-12)
    rank, df = int(kept.sum()), len(now) - 1 - int(kept.sum())
    if not rank or df < 5:
        return None
    explained = ((left[:, kept].T @ now) ** 2).sum() / (now @ now)
    ratio = explained / rank / max((1 - explained) / df, 1e-300)
    norms = np.linalg.norm(late, axis=0) * np.linalg.norm(now)
    correlation = np.divide(late.T @ now, norms, out=np.zeros(n_lags + 1), where=norms > 0)
    lag = int(np.abs(correlation).argmax())
    return float(correlation[lag]), float(f.sf(ratio, rank, df)), lag


def arrives_late(
    e: Float[np.ndarray, "steps output"],
    shift: Float[np.ndarray, "steps output"],
    slopes: Float[np.ndarray, "param steps output"],
) -> Answer:
    """By how many samples the input comes later than the model says; Student's test of none.

    `shift` is what an input one sample later adds to the residuals, `slopes` what theta does: where
    another theta would do as well as a delay, or an offset, that says nothing (a Lagrange
    multiplier test).
    """
    from scipy.stats import t

    seen = ~np.isnan(e)
    now, along = e[seen], shift[seen]
    constants = np.zeros((e.shape[1], *e.shape))
    constants[range(e.shape[1]), :, range(e.shape[1])] = 1.0
    columns = np.concatenate([constants, slopes])[:, seen].T
    sizes = np.linalg.norm(columns, axis=0)
    columns = columns[:, sizes > 0] / sizes[sizes > 0]
    left, strengths, _ = np.linalg.svd(columns, full_matrices=False)
    left = left[:, strengths > 1e-6]
    size = np.linalg.norm(along)
    now, along = (a - left @ (left.T @ a) for a in (now, along))
    df = len(now) - 1 - left.shape[1]
    if df < 5 or np.linalg.norm(along) <= 1e-4 * size:
        return None
    size = np.linalg.norm(along)
    common = along @ now / size
    rest = max(now @ now - common**2, 1e-300) / df
    return float(-common / size), float(2 * t.sf(abs(common) / np.sqrt(rest), df)), None


def holm(p: Float[np.ndarray, " check"]) -> Float[np.ndarray, " check"]:
    """p-values adjusted for how many there are (Holm 1979).

    >>> holm(np.array([0.01, 0.04, 0.03]))
    array([0.03, 0.06, 0.06])
    """
    order = np.argsort(p)
    grown = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(grown, 1.0)
    return adjusted
