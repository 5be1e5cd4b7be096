"""`greybayes diagnose`, as a user types it."""

import json
from pathlib import Path

import pytest
from helpers.commands import ok, refused
from helpers.tiny import untrained, write_plant

import greybayes as gb


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def made(tmp_path_factory, compiled):
    """Estimators with random weights: one with a posterior, one without."""
    folder = tmp_path_factory.mktemp("made")
    for head in ("posterior", "bounded"):
        estimator = untrained("linear-gaussian", head=head, n_reference=64)
        estimator.save(folder / f"{head}.estimator")
    return folder


def test_diagnose_prints_json_and_draws_a_figure(made, folder):
    arguments = (made / "posterior.estimator", "--draws", 150, "--seed", 4)
    printed = json.loads(ok("diagnose", *arguments, "--json", "--plot", "a.svg"))
    expected = gb.calibration(gb.load(made / "posterior.estimator"), 150, 4).to_dict()
    assert printed == {**expected, "seed": 4, "plot": "a.svg"}
    assert [row["name"] for row in printed["parameters"]] == ["a", "b", "q", "r"]
    assert printed["draws"] == 150
    assert Path("a.svg").read_text().count("<svg") == 1
    assert json.loads(ok("diagnose", *arguments, "--json"))["plot"] is None


def test_diagnose_prints_a_table_and_a_verdict(made, folder):
    said = ok("diagnose", made / "posterior.estimator", "--draws", 150, "--plot", "a.png")
    for words in ("parameter", "50 %", "95 %", "all together", "standard error"):
        assert words in said
    found = gb.calibration(gb.load(made / "posterior.estimator"), 150)
    assert f"linear-gaussian: {found.sentence}\n" in said
    assert said.endswith("Wrote a.png.\n")
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")


def test_a_users_own_model_is_named_beside(folder):
    untrained(write_plant(folder), n_reference=64).save("a.estimator")
    (folder / "ran").unlink()
    assert "plant.py:Plant" in refused("diagnose", "a.estimator", "--draws", 100)
    assert not (folder / "ran").exists()
    arguments = ("--model", "plant.py:Plant", "--draws", 100, "--json")
    assert json.loads(ok("diagnose", "a.estimator", *arguments))["draws"] == 100


REFUSED = {
    "a mean alone": (("bounded.estimator",), "has no posterior to check"),
    "few draws": (("posterior.estimator", "--draws", 10), "10 draws"),
    "no estimator": (("grwth2",), "there is no estimator grwth2"),
    "no figure": (("posterior.estimator", "--plot", "a.txt"), "no kind of figure"),
    "no folder": (("posterior.estimator", "--plot", "nowhere/a.png"), "cannot be written"),
    "another model": (("posterior.estimator", "--model", "fir"), "other parameters"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_diagnosed_is_one_sentence(made, monkeypatch, case):
    monkeypatch.chdir(made)
    arguments, words = REFUSED[case]
    assert words in refused("diagnose", *arguments)
    assert words in refused("diagnose", *arguments, "--json")


def test_help_has_an_example():
    assert "Example: greybayes diagnose" in ok("diagnose", "--help")
