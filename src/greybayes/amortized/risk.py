"""The yardstick: Bayes risk, one function for every estimator and every table."""

from collections.abc import Iterator
from typing import NamedTuple

import jax.random as jr
import numpy as np

from greybayes._lanes import as_key
from greybayes._types import Seed
from greybayes.amortized.estimator import Estimator, load
from greybayes.errors import EstimatorError
from greybayes.inputs import from_dict
from greybayes.simulation import Paths, simulate

_SEED = 987654321
# Draws that are simulated together.
_BLOCK = 2000


class Risk(NamedTuple):
    """A Bayes risk, its standard error, and that of each parameter."""

    mean: float
    standard_error: float
    per_parameter: dict[str, float]
    n_draws: int


def bayes_risk(estimator: Estimator | str, n_draws: int = 20_000, key: Seed = _SEED) -> Risk:
    """Mean squared error over the prior variance, averaged over parameters and prior draws.

    1 is the risk of always answering the prior mean; the conditional mean has the least. Diverged
    draws are left out. The draws are the same for every estimator of one model, which may be given
    by its name.

    >>> bayes_risk("growth2", n_draws=200).mean < 0.3
    True
    """
    if n_draws < 2:
        raise EstimatorError(f"n_draws is {n_draws}, expected 2 or more.")
    estimator = load(estimator) if isinstance(estimator, str) else estimator
    prior = estimator.model.prior
    errors = []
    for paths in risk_draws(estimator, n_draws, key):
        ok = ~paths.diverged
        u = paths.u[ok] if estimator.input is None else None
        means = estimator.means(paths.y[ok], u)
        errors.append((means - paths.theta[ok]) ** 2 / prior.variance)
    each = np.concatenate(errors)
    rows = each.mean(1)
    return Risk(
        float(rows.mean()),
        float(rows.std() / np.sqrt(len(rows))),
        dict(zip(prior.names, each.mean(0).tolist(), strict=True)),
        len(rows),
    )


def risk_draws(estimator: Estimator, n_draws: int, key: Seed = _SEED) -> Iterator[Paths]:
    """The records on which a Bayes risk is measured, in blocks."""
    for start in range(0, n_draws, _BLOCK):
        yield simulate(
            estimator.model,
            inputs=from_dict(estimator.header["input"]),
            n_steps=estimator.n_steps,
            count=min(_BLOCK, n_draws - start),
            key=jr.fold_in(as_key(key), start),
        )
