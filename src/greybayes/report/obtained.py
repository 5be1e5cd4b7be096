"""How the answer was obtained: so that another can judge it, repeat it and cite it."""

from collections.abc import Mapping
from typing import Any

from greybayes.errors import Status
from greybayes.report.findings import Findings
from greybayes.report.html import element, table
from greybayes.report.references import references

_RUNGS = {
    "importance": "draws of the network, weighed by the likelihood",
    "adapted": "draws of a proposal that learnt from the network's, weighed by the likelihood",
    "mcmc": "Markov chains, where weighed draws did not serve",
}
_METHODS = {
    "deepbayes": "The mean of a trained network (DeepBayes), and its posterior, in one pass.",
    "refine": "The posterior of a trained network, corrected with the likelihood: exact.",
    "cme-mh": "The conditional mean, by particle Metropolis-Hastings.",
    "psem": "Maximum likelihood, by expectation maximisation with a particle smoother.",
    "cpf-saem": "Maximum likelihood, by stochastic approximation and conditional particles.",
    "least-squares": "Least squares on the simulated output, from many starts.",
    "map": "The maximum of the posterior, by gradients of the exact likelihood.",
}
_WORDS = {
    "ess": "effective draws",
    "k_hat": "k-hat (trusted below 0.7)",
    "r_hat": "R-hat (1 where chains agree)",
    "rhat": "R-hat (1 where chains agree)",
    "n_draws": "draws",
    "misfit_p": "p-value of the network's misfit check",
    "log_evidence": "log evidence",
    "n_agree": "starts that agree",
    "sse": "sum of squared errors",
}


def obtained(found: Findings) -> list[object]:
    """The method, what it watched, its settings, seeds and versions, and whom to cite."""
    estimate = found.estimate
    how = _METHODS.get(estimate.method, estimate.method)
    if estimate.std is None:  # A network in paper mode.
        how = how.replace(", and its posterior", "")
    parts: list[object] = [element("p", how)]
    rung = estimate.diagnostics.get("rung")
    if rung in _RUNGS:
        parts.append(element("p", f"Rung: {rung}, {_RUNGS[rung]}."))
    if estimate.status is not Status.ok:
        parts.append(element("p", f"Status: {estimate.status.value}: {estimate.status.sentence}"))
    told = estimate.to_dict()
    seconds = [] if estimate.seconds is None else [("seconds", f"{estimate.seconds:.3g}")]
    watched = [(_WORDS.get(k, k), v) for k, v in _rows(told.get("diagnostics", {}))]
    groups = {
        "What the method watched": [*seconds, *watched],
        "Settings": _rows(told.get("settings", {})),
        "Versions and seeds": _rows(found.provenance),
    }
    parts += [table(title, ("name", "value"), rows) for title, rows in groups.items() if rows]
    cited = references(estimate, checked=found.misfit is not None, drawn=estimate.std is not None)
    if cited:
        parts += [element("p", "BibTeX of the methods used:"), element("pre", cited)]
    return parts


def _rows(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(str(name), _text(value)) for name, value in values.items()]


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_text(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value[:20])) + (", ..." if len(value) > 20 else "")
    return f"{value:.4g}" if isinstance(value, float) else str(value)
