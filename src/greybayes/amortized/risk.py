"""The yardstick: Bayes risk, one function for every estimator and every table."""

from typing import NamedTuple

import jax.random as jr
import numpy as np

from greybayes._types import Seed
from greybayes.amortized.estimator import Estimator
from greybayes.inputs import from_dict
from greybayes.simulation import simulate


class Risk(NamedTuple):
    """A Bayes risk, its standard error, and that of each parameter."""

    mean: float
    standard_error: float
    per_parameter: dict[str, float]
    n_draws: int


def bayes_risk(estimator: Estimator, n_draws: int = 20_000, key: Seed = 987654321) -> Risk:
    """Mean squared error over the prior variance, averaged over parameters and prior draws.

    1 is the risk of always answering the prior mean; the conditional mean has the least. Diverged
    draws are left out. The draws are the same for every estimator of one model.
    """
    model = estimator.model
    design = from_dict(estimator.header["input"])
    errors = []
    block = 2000
    for start in range(0, n_draws, block):
        paths = simulate(
            model,
            inputs=design,
            n_steps=estimator.n_steps,
            count=min(block, n_draws - start),
            key=jr.fold_in(jr.key(key) if isinstance(key, int) else key, start),
        )
        ok = ~paths.diverged
        u = paths.u[ok] if estimator.input is None else None
        means = estimator.means(paths.y[ok], u)
        errors.append((means - paths.theta[ok]) ** 2 / model.prior.variance)
    each = np.concatenate(errors)
    rows = each.mean(1)
    return Risk(
        float(rows.mean()),
        float(rows.std() / np.sqrt(len(rows))),
        dict(zip(model.prior.names, each.mean(0).tolist(), strict=True)),
        len(rows),
    )
