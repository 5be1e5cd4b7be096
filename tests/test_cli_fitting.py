"""`greybayes methods` and `greybayes fit`, as a user types them."""

import json

import numpy as np
import pytest
from helpers.commands import ok, refused, run

import greybayes as gb
from greybayes.classical.methods import METHODS
from greybayes.cli.results import parse_settings
from greybayes.errors import GreybayesError


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("fit") / "records.csv"
    paths = gb.simulate("fir", np.array([1.0, 0.5]), n_steps=40, count=2, key=1)
    gb.write_records(path, list(paths))
    return path


def test_methods_are_listed_with_what_they_need():
    listed = json.loads(ok("methods", "--json"))
    assert [entry["name"] for entry in listed] == list(METHODS)
    assert all(entry["needs"] and entry["summary"] for entry in listed)
    table = ok("methods")
    assert all(name in table for name in METHODS)


def test_fit_prints_what_estimate_prints(file):
    result = json.loads(ok("fit", "map", "fir", file, "--json", "--seed", 3))
    assert (result["model"], result["method"]) == ("fir", "map")
    expected = gb.map_estimate("fir", gb.read_records(file), key=3)
    assert len(result["records"]) == 2
    for each, estimate in zip(result["records"], expected, strict=True):
        assert [p["name"] for p in each["parameters"]] == ["theta[0]", "theta[1]"]
        np.testing.assert_allclose([p["mean"] for p in each["parameters"]], estimate.mean)
        assert {"std", "interval95"} <= set(each["parameters"][0])
        assert each["status"] == "ok"
        assert each["seconds"] > 0
        assert 0 < each["fit_percent"] < 100
        assert each["settings"]["n_starts"] > 0


def test_what_the_record_did_not_settle_is_told_below_the_table(tmp_path):
    # Least squares of a linear model with process noise: one variance cannot be told from another.
    gb.write_records(tmp_path / "r.csv", gb.simulate("linear-gaussian", n_steps=60, key=1)[0])
    shown = " ".join(ok("fit", "least-squares", "linear-gaussian", tmp_path / "r.csv").split())
    found = gb.least_squares("linear-gaussian", gb.read_records(tmp_path / "r.csv")[0])
    assert found.diagnostics["insensitive"] == ["q", "r"]
    assert "the record tells nothing, so that the prior stands there: q, r" in shown


def test_its_json_has_the_keys_of_estimate_and_no_number_that_json_lacks(tmp_path):
    gb.write_records(tmp_path / "r.csv", gb.simulate("linear-gaussian", key=1)[0])
    estimated = json.loads(ok("estimate", "linear-gaussian", tmp_path / "r.csv", "--json"))
    settings = [part for each in ("burn_in=50", "max_draws=4") for part in ("--set", each)]
    # A seed with which half of the moves are accepted: of so few, none may be.
    given = ("linear-gaussian", tmp_path / "r.csv", "--json", "--seed", 3, *settings)
    printed = ok("fit", "cme-mh", *given)

    def refuse(word):
        raise AssertionError(word)

    fitted = json.loads(printed, parse_constant=refuse)
    assert fitted.keys() == estimated.keys()
    one, other = fitted["records"][0], estimated["records"][0]
    assert one["model"] == other["model"] == "linear-gaussian"
    # Settings are a method's own; four draws are too few to agree, which is said in words.
    assert one.keys() == other.keys() | {"settings", "message"}
    assert one["parameters"][0].keys() == other["parameters"][0].keys()
    assert one["message"] == gb.Status.unconverged.sentence


def test_it_starts_at_a_theta(file):
    near = ("--start", "theta[0]=1,theta[1]=0.5")
    result = json.loads(ok("fit", "least-squares", "fir", file, *near, "--json"))
    assert len(result["records"]) == 2
    refusals = {
        "theta[0]=1": "theta[1]",
        "a=1,b=2": "a",
        "theta[0]=1,theta[1]=x": "expected numbers",
    }
    for start, word in refusals.items():
        assert word in refused("fit", "map", "fir", file, "--start", start)


@pytest.mark.parametrize("y", ["1.0", "nan nan nan"])
@pytest.mark.parametrize("method", ["cme-mh", "psem", "cpf-saem", "least-squares", "map"])
def test_a_record_that_says_nothing_is_refused(tmp_path, method, y):
    file = tmp_path / "r.csv"
    file.write_text("y,u\n" + "\n".join(f"{each},0.5" for each in y.split()) + "\n")
    told = refused("fit", method, "linear-gaussian", file)
    assert "to learn from" in told or "missing" in told


def test_fit_shows_a_table_with_the_truth(file):
    shown = ok("fit", "least_squares", "fir", file, "--set", "n_starts=2")
    assert "theta[0]" in shown
    assert "truth" in shown
    assert "fit " in shown


def test_check_says_whether_the_model_can_have_made_the_record(file, tmp_path):
    result = json.loads(ok("fit", "map", "fir", file, "--check", "--json"))
    assert [each["check"]["status"] for each in result["records"]] == ["ok", "ok"]
    record = gb.read_records(file)[0]
    gb.write_records(tmp_path / "offset.csv", [gb.Record(record.y + 1.0, record.u)])
    spoilt = run("fit", "map", "fir", tmp_path / "offset.csv", "--check")
    assert spoilt.exit_code == 0
    assert "residuals: mean" in spoilt.stdout
    assert "the residuals of y" in spoilt.stderr


def test_a_status_that_is_not_ok_is_said_with_what_to_do(file):
    settings = [part for each in ("burn_in=50", "max_draws=10") for part in ("--set", each)]
    result = run("fit", "cme-mh", "fir", file, *settings)
    assert result.exit_code == 0
    assert "unconverged: the iterations ended before they agreed" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("cme", "fir"), "there is no method cme; did you mean cme-mh"),
        (("psem", "fir"), "psem cannot serve fir: its "),
        (("map", "growth2"), "map cannot serve growth2: its "),
        (("map", "fri"), "there is no model fri"),
        (("map", "fir", "--set", "starts=3"), "has no setting starts"),
        (("map", "fir", "--set", "n_starts"), "expected NAME=VALUE"),
        (("map", "fir", "--set", "n_starts=many"), "n_starts"),
        (("map", "fir", "--start", "nobody"), "there is no estimator nobody"),
        (("map", "linear-gaussian", "--start", "growth2"), "samples; this estimator was trained"),
    ],
)
def test_a_mistake_is_one_sentence(file, arguments, sentence):
    method, model, *options = arguments
    assert sentence in refused("fit", method, model, file, *options)


def test_a_record_of_another_model_is_one_sentence(file):
    assert "outputs" in refused("fit", "cme-mh", "lotka-volterra", f"{file}:y=y,u=")


def test_settings_are_read_as_what_they_are():
    given = parse_settings(["a=1", "b=1e-3", "c=none", "d=true", "e=guided"])
    assert given == {"a": 1, "b": 0.001, "c": None, "d": True, "e": "guided"}
    with pytest.raises(GreybayesError, match="twice"):
        parse_settings(["a=1", "a=2"])
