"""Whom to cite: the BibTeX of the methods that gave an answer."""

import functools
import re
from pathlib import Path

from greybayes.estimate import Estimate

_METHODS = {
    "deepbayes": ("deepbayes",),
    "refine": ("deepbayes", "psis"),
    "cme-mh": ("deepbayes", "pmcmc", "rhat"),
    "psem": ("psem",),
    "cpf-saem": ("cpfsaem",),
    "least-squares": ("ljung",),
    "map": ("ljung",),
}


@functools.cache
def _entries() -> dict[str, str]:
    text = Path(__file__).with_name("references.bib").read_text(encoding="utf-8")
    entries = [each.strip() for each in re.split(r"\n(?=@)", text)]
    return {re.findall(r"@\w+\{([^,]+),", each)[0]: each for each in entries}


def references(estimate: Estimate, *, checked: bool = False, drawn: bool = False) -> str:
    """BibTeX for the method of an estimate, and for the checks and ArviZ's plots where they are.

    >>> import numpy as np
    >>> references(Estimate(("a",), np.zeros(1), method="psem")).splitlines()[0]
    '@article{psem,'
    """
    keys = [*_METHODS.get(estimate.method, ())]
    if estimate.diagnostics.get("rung") == "mcmc":
        keys += ["pmcmc", "rhat"]
    keys += ["monti", "holm"] * checked + ["arviz"] * drawn
    return "\n\n".join(_entries()[key] for key in dict.fromkeys(keys))
