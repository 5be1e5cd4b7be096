"""What was known of the parameters before the record, and after it."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from greybayes._arviz import load_arviz
from greybayes.errors import GreybayesError
from greybayes.estimate import Estimate
from greybayes.plots.base import plain, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from greybayes.model import Model

MAX_PAIRS = 6
"""More parameters than this in one pair plot cannot be read; the first ones are drawn."""
_DRAWS = 4000
_PRIOR, _POSTERIOR, _ESTIMATE = "#808080", "#c44e00", "#000000"
# Of what is outside the region of 95 %, inside it, and inside that of 50 %.
_SHADES = [0.0, 0.15, 0.4]
# The rule for the width of kernels: ArviZ's own takes weighed draws, of which some come twice, for
# peaks.
_WIDTH = "silverman"
# Where the prior is so much wider than the posterior, the picture is of the posterior.
_MUCH_WIDER = 12.0


def _drawn(model: "Model", estimate: Estimate) -> Float[np.ndarray, "draw param"]:
    import jax.random as jr

    from greybayes.diagnose.predictive import drawn_thetas

    if estimate.posterior is None and estimate.samples is None and estimate.covariance is None:
        raise GreybayesError(f"{estimate.method or 'this method'} gives no uncertainty to plot.")
    return drawn_thetas(model, estimate, _DRAWS, jr.key(0))


def plot_posterior(model: "Model | str", estimate: Estimate) -> "Figure":
    """The prior and the posterior density of each parameter, with the estimate and 95 % interval.

    >>> estimate = Estimate(("theta[0]", "theta[1]"), np.array([1.0, 0.5]), 0.01 * np.eye(2))
    >>> figure = plot_posterior("fir", estimate)
    >>> [panel.get_title() for panel in figure.axes]
    ['theta[0]', 'theta[1]']
    """
    from matplotlib.figure import Figure

    from greybayes.diagnose.information import prior_spread
    from greybayes.zoo import get_model

    model = get_model(model)
    draws, interval = _drawn(model, estimate), estimate.interval()
    n_rows = -(-len(estimate.names) // 5)
    n_columns = -(-len(estimate.names) // n_rows)
    figure = Figure(figsize=(1.8 * max(n_columns, 2), 1.9 * n_rows + 0.4), layout="constrained")
    spread = prior_spread(model.prior)
    for i, name in enumerate(estimate.names):
        panel = figure.add_subplot(n_rows, n_columns, i + 1)
        at, density = _prior_curve(model, i, draws[:, i], float(spread[i]))
        panel.plot(at, density, color=_PRIOR, linestyle="--", linewidth=1.2, label="prior")
        if np.ptp(draws[:, i]) > 0:
            x, p = _smoothed(draws[:, i])
            panel.fill_between(x, p, color=_POSTERIOR, alpha=0.2, linewidth=0)
            panel.plot(x, p, color=_POSTERIOR, linewidth=1.2, label="posterior")
        panel.axvline(estimate.mean[i], color=_ESTIMATE, linewidth=1.0, label="estimate")
        if interval is not None:
            low, high = interval[i]
            panel.plot([low, high], [0.0, 0.0], color=_ESTIMATE, linewidth=3.0, label="95 %")
        panel.set_xlim(at[0], at[-1])
        panel.set_ylim(bottom=0.0)
        panel.set_yticks([])
        wider = float(spread[i] / max(draws[:, i].std(), 1e-300))
        note = f" (prior {wider:.0f} times as wide)" if _MUCH_WIDER < wider < 1e9 else ""
        panel.set_title(plain(name), fontsize="small")
        panel.set_xlabel(plain(model.prior.by_entry[i][1].unit + note).strip(), fontsize="x-small")
        panel.tick_params(labelsize="small")
        panel.locator_params(axis="x", nbins=3)
        tidy(panel)
        panel.grid(visible=False)
        panel.spines["left"].set_visible(False)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize="small"
    )
    return figure


def _prior_curve(
    model: "Model", index: int, draws: Float[np.ndarray, " draw"], spread: float
) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, " point"]]:
    """The density of the prior where there is something to be seen."""
    import jax
    import jax.numpy as jnp

    prior = model.prior
    std = float(draws.std())
    low, high = (float(ends[index]) for ends in prior.bounds)
    if std > 0 and not spread <= _MUCH_WIDER * std:
        middle, reach = float(draws.mean()), 6 * std
    else:
        middle, reach = float(prior.mean[index]), 3.5 * spread
    at = np.linspace(max(low, middle - reach), min(high, middle + reach), 200)
    scalars = [name for name, each in prior.parameters.items() if not each.shape]
    if prior.names[index] in scalars:
        density = jax.vmap(prior.parameters[prior.names[index]].prior.log_prob)
        # Inside the bounds: at them a density may be infinite.
        inside = np.clip(at, at[0] + 1e-6 * np.ptp(at), at[-1] - 1e-6 * np.ptp(at))
        return at, np.nan_to_num(np.exp(np.asarray(density(jnp.asarray(inside, jnp.float32)))))
    lanes = jnp.arange(_DRAWS, dtype=jnp.uint32)
    drawn = np.asarray(prior.sample(jax.random.key(0), lanes)[:, index], float)
    return at, np.interp(at, *_smoothed(drawn), left=0.0, right=0.0)


def _smoothed(draws: Float[np.ndarray, " draw"]) -> tuple[np.ndarray, np.ndarray]:
    """ArviZ's density of draws, which knows where they end."""
    x, density, *_ = load_arviz().kde(draws, bw=_WIDTH, bound_correction=True)
    return x, density


def plot_pairs(model: "Model | str", estimate: Estimate) -> "Figure":
    """ArviZ's pair plot of the posterior: regions of 50 and 95 %, and each parameter alone.

    Of more than `MAX_PAIRS` parameters the first ones are drawn.

    >>> estimate = Estimate(("theta[0]", "theta[1]"), np.array([1.0, 0.5]), 0.01 * np.eye(2))
    >>> len(plot_pairs("fir", estimate).axes)
    3
    """
    from matplotlib.figure import Figure

    from greybayes.zoo import get_model

    draws = _drawn(get_model(model), estimate)
    names = [name for name, column in zip(estimate.names, draws.T, strict=True) if np.ptp(column)]
    names = names[:MAX_PAIRS]
    if len(names) < 2:
        raise GreybayesError("a pair plot needs two parameters or more that are uncertain.")
    columns = {name: draws[None, :, estimate.names.index(name)] for name in names}
    size = len(names)
    side = 1.1 + 1.4 * size
    figure = Figure(figsize=(side, side), layout="constrained")
    panels = figure.subplots(size, size)
    arviz = load_arviz()
    arviz.plot_pair(
        arviz.from_dict(posterior=columns),
        kind="kde",
        marginals=True,
        ax=panels,
        textsize=8,
        kde_kwargs={
            "hdi_probs": [0.5, 0.95],
            "contour_kwargs": {"colors": _POSTERIOR, "linewidths": 0.8},
            "contourf_kwargs": {"colors": _POSTERIOR},
        },
        marginal_kwargs={"bw": _WIDTH, "plot_kwargs": {"color": _POSTERIOR}},
    )
    for panel in panels.ravel():
        for filled in (c for c in panel.collections if getattr(c, "filled", False)):
            filled.set_alpha(_SHADES)
        panel.tick_params(labelsize="x-small")
        panel.set_xlabel(plain(panel.get_xlabel()), fontsize="small")
        panel.set_ylabel(plain(panel.get_ylabel()), fontsize="small")
    return figure
