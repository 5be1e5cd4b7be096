"""How the answer was obtained: every method has words and references; rungs and seeds are told."""

import numpy as np
import pytest

from greybayes.classical.methods import METHODS
from greybayes.estimate import Estimate
from greybayes.report import obtained, references


@pytest.mark.parametrize("method", [*METHODS, "deepbayes", "refine"])
def test_every_method_has_words_and_references(method):
    estimate = Estimate(("a",), np.zeros(1), method=method)
    assert method in obtained._METHODS
    assert references.references(estimate).startswith("@")


def test_references_are_those_of_what_was_done():
    def keys(estimate, **done):
        return [
            each.split(",")[0] for each in references.references(estimate, **done).split("{")[1:]
        ]

    network = Estimate(("a",), np.zeros(1), method="deepbayes")
    assert "deepbayes" in keys(network)
    assert "holm" not in keys(network)
    assert {"monti", "holm", "arviz"} <= set(keys(network, checked=True, drawn=True))
    chains = network.replace(method="refine", diagnostics={"rung": "mcmc"})
    assert {"psis", "pmcmc", "rhat"} <= set(keys(chains))


def test_every_reference_can_be_read():
    for key, entry in references._entries().items():
        assert entry.startswith("@")
        assert entry.count("{") == entry.count("}")
        assert all(f"{word} " in entry for word in ("author", "title", "year")), key


def test_values_of_every_kind_are_told():
    told = obtained._rows(
        {"r_hat": {"a": 1.00456}, "b": [1.0, 2.5], "c": None, "d": list(range(30))}
    )
    assert told[:3] == [("r_hat", "a: 1.005"), ("b", "1, 2.5"), ("c", "None")]
    assert told[3][1].endswith("19, ...")
