"""The options `--report` and `--validate`: what they write, print and refuse."""

import json
import re

import numpy as np
import pytest
from helpers.commands import ok, refused

import greybayes as gb
from greybayes.cli.reporting import read_files
from greybayes.record import write_records


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three records of `fir`, each in a file of its own, and one without an input."""
    folder = tmp_path_factory.mktemp("fir")
    paths = gb.simulate("fir", np.array([1.0, 0.5]), count=3, n_steps=60, key=1)
    for name, record in zip("abc", paths, strict=True):
        write_records(folder / f"{name}.csv", [record])
    estimator = gb.load("linear-gaussian")
    bare = gb.simulate("linear-gaussian", inputs=estimator.input, n_steps=estimator.n_steps, key=1)
    write_records(folder / "lg.csv", [gb.Record(bare[0].y, name="without input")])
    return folder


@pytest.fixture
def here(folder, monkeypatch, tmp_path):
    monkeypatch.chdir(folder)
    return tmp_path


def test_fit_writes_a_report_beside_its_json(here):
    out = here / "out.html"
    said = ok(
        "fit",
        "least-squares",
        "fir",
        "a.csv",
        "--validate",
        "b.csv",
        "c.csv",
        "--report",
        out,
        "--json",
    )
    told = json.loads(said)
    assert told["report"] == str(out)
    (row,) = told["records"]
    assert len(row["validation"]) == 2
    assert row["validation"][0]["outputs"][0]["fit_percent"] > 20
    text = out.read_text()
    assert text.startswith("<!doctype html>")
    assert text.count("(validation)") >= 2


def test_validation_is_told_without_a_report(here):
    said = ok("fit", "least-squares", "fir", "a.csv", "--validate", "b.csv", "--validate", "c.csv")
    assert said.count("validation, ") == 2
    assert "% of the samples in the 95 % band" in said


def test_estimate_writes_a_report_for_a_record_that_has_no_input(here):
    out = here / "out.html"
    said = ok("estimate", "linear-gaussian", "lg.csv", "--report", out)
    assert f"Wrote {out}." in said
    assert re.search(r"fit -?\d+\.\d %", said)
    text = out.read_text()
    assert "DeepBayes" in text
    assert "correlation with u" in text


REFUSED = {
    "another kind": (("--report", "a.pdf"), "a report is a .html file"),
    "no folder": (("--report", "nowhere/a.html"), "choose a folder that exists"),
    "no validation": (("--report", "{out}", "--validate", "none.csv"), "none.csv"),
    "another model's": (("--report", "{out}", "--validate", "two.csv"), "outputs"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_reported_is_refused_before_the_work(here, case):
    rng = np.random.default_rng(0)
    write_records(here / "two.csv", [gb.Record(rng.normal(size=(60, 2)), rng.normal(size=60))])
    arguments, words = REFUSED[case]
    given = [
        a.replace("{out}", str(here / "o.html")).replace("two.csv", str(here / "two.csv"))
        for a in arguments
    ]
    assert words in refused("fit", "least-squares", "fir", "a.csv", *given)
    assert not (here / "o.html").exists()


def test_a_validation_record_without_input_of_another_length_is_refused(here):
    write_records(here / "short.csv", [gb.Record(np.zeros(7), name="short")])
    arguments = ("--validate", here / "short.csv", "--report", here / "o.html")
    said = refused("estimate", "linear-gaussian", "lg.csv", *arguments)
    assert "record short has no input, and 7 samples" in said
    assert not (here / "o.html").exists()


def test_records_of_one_name_are_called_by_their_address(here):
    path = here / "all.csv"
    path.write_text("u,y1,y2\n1,2,3\n1,2,4\n")
    address = f"{path}:y=y1,u=u"
    (own,) = read_files([address], ("y",), ("u",))
    assert own.name == "all"
    others = read_files([f"{path}:y=y2,u=u"] * 2, ("y",), ("u",), beside=[own])
    assert [record.name for record in others] == ["all.csv:y=y2,u=u", "all.csv:y=y2,u=u (2)"]
