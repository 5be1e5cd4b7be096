"""Posterior-predictive checks: do records drawn from an estimate look like the measured one?

Theta is drawn from the estimate, a record is simulated from each theta with the measured record's
own input and gaps, and a handful of statistics are compared. Their p-values are two-sided, and a
little cautious, because the estimate has seen the record before.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from greybayes.diagnose.checks import MAX_LAG, Check
from greybayes.errors import GreybayesError, Status
from greybayes.estimate import Estimate
from greybayes.model import Model
from greybayes.simulation import simulate

# Numbers that one block of simulated records may have.
_MOST = 2**26
FEWEST = 20
"""Records with which one can be compared."""
# Statistics of an output alone.
_OF_OUTPUT = 6


def n_checks(model: Model) -> int:
    """How many statistics are compared, at most."""
    return len(model.outputs) * (_OF_OUTPUT + len(model.inputs))


def drawn_thetas(
    model: Model, estimate: Estimate, n: int, key: Key[Array, ""]
) -> Float[np.ndarray, "n param"]:
    """Draws of theta from all that an estimate knows, within the support of the prior.

    From its density or samples; from a normal where there is a covariance; else the mean, n times.
    """
    seed = int(np.asarray(jr.key_data(key)).ravel()[-1])
    rng = np.random.default_rng(seed)
    if estimate.posterior is not None or estimate.samples is not None:
        thetas = estimate.sample(n, seed)
    elif estimate.covariance is not None and np.isfinite(estimate.covariance).all():
        thetas = rng.multivariate_normal(estimate.mean, estimate.covariance, n, method="eigh")
    else:
        return np.tile(estimate.mean, (n, 1))
    inside = np.asarray(jax.vmap(model.prior.in_support)(jnp.asarray(thetas, jnp.float32)))
    if not inside.any():
        return np.tile(estimate.mean, (n, 1))
    return np.where(inside[:, None], thetas, thetas[rng.choice(np.flatnonzero(inside), n)])


def predictive_checks(
    model: Model,
    thetas: Float[np.ndarray, "path param"],
    y: Float[np.ndarray, "steps output"],
    u: Float[np.ndarray, "steps input"],
    key: Key[Array, ""],
) -> list[Check]:
    """The statistics of a record among those of one simulated record for each theta."""
    n_steps = len(y)
    block = max(1, _MOST // (n_steps * (len(model.states) + len(model.outputs))))
    parts: list[dict[tuple[str, str, str], np.ndarray]] = []
    for start in range(0, len(thetas), block):
        some = thetas[start : start + block]
        paths = simulate(
            model,
            some,
            inputs=u if model.inputs else None,
            n_steps=n_steps,
            count=len(some),
            key=jr.fold_in(key, start),
        )
        parts.append(_statistics(model, paths.y[~paths.diverged], y, u))
    found = []
    for name, value in _statistics(model, y[None], y, u).items():
        drawn = np.concatenate([part[name] for part in parts])
        if len(drawn) < FEWEST:
            raise GreybayesError(
                f"of {len(thetas)} records drawn from the estimate only {len(drawn)} are finite: "
                f"{Status.diverged.sentence}"
            )
        low, high = np.quantile(drawn, [0.025, 0.975])
        found.append(
            Check(
                name[0],
                output=name[1],
                input=name[2],
                value=float(value[0]),
                p=_p_value(float(value[0]), drawn),
                expected=(float(low), float(high)),
            )
        )
    return found


def _p_value(value: float, drawn: Float[np.ndarray, " path"]) -> float:
    less, more = (drawn <= value).sum(), (drawn >= value).sum()
    return float(min(1.0, 2 * (1 + min(less, more)) / (1 + len(drawn))))


def _statistics(
    model: Model,
    paths: Float[np.ndarray, "path steps output"],
    y: Float[np.ndarray, "steps output"],
    u: Float[np.ndarray, "steps input"],
) -> dict[tuple[str, str, str], Float[np.ndarray, " path"]]:
    """By name, output and input, of records with the gaps of the measured one."""
    found = {}
    for channel, output in enumerate(model.outputs):
        seen = ~np.isnan(y[:, channel])
        values = np.ascontiguousarray(paths[:, seen, channel], dtype=float)
        centred = np.zeros(paths.shape[:2])
        centred[:, seen] = values - values.mean(1, keepdims=True)
        energy = np.einsum("ij,ij->i", centred, centred)
        own = {
            "mean": values.mean(1),
            "std": np.sqrt(energy / seen.sum()),
            **{f"lag {lag}": _autocorrelation(centred, energy, lag) for lag in (1, 5)},
            "largest": np.maximum(values.max(1), -values.min(1)),
            "run": _longest_run(np.round(values / _resolution(y[seen, channel]))),
        }
        found |= {(name, output, ""): value for name, value in own.items()}
        for index, source in enumerate(model.inputs):
            if np.ptp(u[:, index]) > 0:
                found["follows", output, source] = _follows(centred, energy, u[:, index])
    return found


def _autocorrelation(centred: np.ndarray, energy: np.ndarray, lag: int) -> np.ndarray:
    products = np.einsum("ij,ij->i", centred[:, lag:], centred[:, :-lag])
    return _ratio(products, energy)


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def _resolution(values: Float[np.ndarray, " seen"]) -> float:
    """The least step between values of a record: a coarse converter makes short runs by itself."""
    scale = float(np.abs(values).max(initial=0.0)) or 1.0
    steps = np.diff(np.sort(values))
    steps = steps[steps > 1e-7 * scale]
    # Of a record that never moves nothing is known, least of all that its converter is coarse.
    return float(steps.min(initial=scale)) if len(steps) else 1e-7 * scale


def _longest_run(
    values: Float[np.ndarray, "path seen"],
) -> Float[np.ndarray, " path"]:
    """How many samples in a row are the same."""
    longest = run = np.ones(len(values))
    for same in np.ascontiguousarray((values[:, 1:] == values[:, :-1]).T):
        run = np.where(same, run + 1, 1.0)
        longest = np.maximum(longest, run)
    return longest


def _follows(
    centred: np.ndarray, energy: np.ndarray, u: Float[np.ndarray, " steps"]
) -> Float[np.ndarray, " path"]:
    """The largest correlation with an input, over lags; before the record u is as at its start."""
    lags = np.arange(1 + min(MAX_LAG, len(u) // 10))
    late = u[np.maximum(np.arange(len(u))[:, None] - lags, 0)]
    late = late - late.mean(0)
    norms = np.sqrt(energy)[:, None] * np.linalg.norm(late, axis=0)
    return np.abs(_ratio(centred @ late, norms)).max(1)
