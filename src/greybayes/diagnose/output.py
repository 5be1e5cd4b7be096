"""Measured against simulated: what the estimate says that y should have been, given u alone.

MATLAB's `compare`, with uncertainty. The simulated output is the noise-free one at the mean of the
estimate where the model has no process noise, and the mean of simulated records elsewhere; the band
holds 95 % of records that are drawn from the estimate, noise and all.
"""

import functools
from dataclasses import dataclass
from typing import Any

import jax.random as jr
import numpy as np
from jaxtyping import Float

from greybayes._lanes import as_key
from greybayes._types import Seed
from greybayes.diagnose.fit import Scores, fit_percent, scores
from greybayes.diagnose.predictive import FEWEST, drawn_thetas
from greybayes.drawing import noise_free_output
from greybayes.errors import GreybayesError, Status
from greybayes.estimate import Estimate
from greybayes.likelihood.measured import measured
from greybayes.model import Model
from greybayes.record import Record
from greybayes.simulation import simulate
from greybayes.zoo import get_model

LEVEL = 0.95
# Records to draw, and the numbers that they may have together; long records have fewer.
_DRAWS, _MOST = 500, 2**26


@dataclass(frozen=True, eq=False)
class Comparison:
    """One record, and what the estimate makes of its input."""

    record: Record
    simulated: Float[np.ndarray, "steps output"]
    lower: Float[np.ndarray, "steps output"]
    """The ends of the band that holds 95 % of the records drawn from the estimate."""
    upper: Float[np.ndarray, "steps output"]

    @functools.cached_property
    def scores(self) -> Scores:
        """Fit %, RMSE, NRMSE and R² of each output."""
        return scores(self.record.y, self.simulated)

    @property
    def fit(self) -> dict[str, float]:
        """`fit_percent` of all outputs together, where y varies."""
        found = fit_percent(self.record.y, self.simulated)
        return {"fit_percent": found} if np.isfinite(found) else {}

    @property
    def inside(self) -> Float[np.ndarray, " output"]:
        """The share of the samples of each output that are in the band."""
        y, seen = self.record.y, self.record.mask
        inside = seen & (y >= self.lower) & (y <= self.upper)
        return inside.sum(0) / np.maximum(seen.sum(0), 1)

    def to_dict(self) -> dict[str, Any]:
        """A plain object for JSON: the scores of each output, and the share in the band."""
        outputs = []
        for i, name in enumerate(self.record.outputs):
            row = {key: float(values[i]) for key, values in self.scores._asdict().items()}
            row["inside_band"] = float(self.inside[i])
            finite = {key: value for key, value in row.items() if np.isfinite(value)}
            outputs.append({"output": name, **finite})
        return {"record": self.record.name, "outputs": outputs}


def compare_output(
    model: Model | str,
    record: Record,
    estimate: Estimate,
    *,
    key: Seed = 0,
    n_draws: int | None = None,
) -> Comparison:
    """The simulated output of a record's input, with a band, beside the measured one.

    `n_draws` records are drawn for the band; None draws 500, or fewer of a long record.

    >>> import greybayes as gb
    >>> record = gb.simulate("fir", np.array([1.0, 0.5]), key=1)[0]
    >>> truth = Estimate(("theta[0]", "theta[1]"), np.array([1.0, 0.5]))
    >>> found = compare_output("fir", record, truth)
    >>> found.simulated.shape == record.y.shape, bool(found.inside[0] > 0.9)
    (True, True)
    """
    model = get_model(model)
    _, u = measured(model, record)
    channels = len(model.states) + len(model.outputs)
    if n_draws is None:
        n_draws = max(FEWEST, min(_DRAWS, _MOST // (record.n_steps * channels)))
    key_theta, key_paths = jr.split(as_key(key))
    thetas = drawn_thetas(model, estimate, n_draws, key_theta)
    paths = simulate(
        model,
        thetas,
        inputs=u if model.inputs else None,
        n_steps=record.n_steps,
        count=n_draws,
        key=key_paths,
    )
    drawn = paths.y[~paths.diverged]
    if len(drawn) < FEWEST:
        raise GreybayesError(
            f"of {n_draws} records drawn from the estimate only {len(drawn)} are finite: "
            f"{Status.diverged.sentence}"
        )
    ends = (1 - LEVEL) / 2, (1 + LEVEL) / 2
    lower, upper = np.quantile(np.asarray(drawn, float), ends, axis=0)
    if model.structure.output_error:
        simulated = noise_free_output(model, estimate.mean, u)
    else:
        simulated = np.asarray(drawn, float).mean(0)
    return Comparison(record, simulated, lower, upper)
