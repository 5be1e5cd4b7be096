"""The parts of the paper: what they compute, and what their pages say."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.commands import ok, refused
from helpers.grid import m1_posterior_near

import greybayes as gb
from greybayes._files import alone_with
from greybayes.amortized.study import Trial
from greybayes.amortized.typical import REFERENCE
from greybayes.errors import GreybayesError
from greybayes.reproduce import drives, growth1, growth2, measured, run, signals, table1, table2
from greybayes.reproduce.journal import Journal, read
from greybayes.reproduce.task import Data, Task


def task(folder, **changes):
    """A small one, with its file in a folder."""
    files = {name: changes.pop(name) for name in ("evaluation", "drives") if name in changes}
    given = {"full": False, "seed": 3, "data": Data(**files), "tell": print}
    return Task(journal=Journal(folder / "a.json", {}), **{**given, **changes})


def test_every_part_has_a_title_and_published_figures():
    tables = run.published()
    for part, name in run.PARTS.items():
        assert run.module(name).TITLE
        if part.startswith("table"):
            assert tables[part]["source"].startswith(f"Table {part[-1]}")


def test_table_1_agrees_with_theory(tmp_path, monkeypatch):
    monkeypatch.setattr(table1, "QUICK", ((40, 80), (20, 40), 6))
    given = task(tmp_path)
    table1.run(given)
    cells = given.journal.cells
    assert list(cells) == ["P=40, M=20", "P=40, M=40", "P=80, M=20", "P=80, M=40"]
    for cell in cells.values():
        paths = cell["P"] * cell["M"]
        # So few paths need the mean of an inverse Wishart matrix, n / (n - N - 2).
        expected = cell["theory"] * paths / (paths - 502)
        assert abs(cell["mse_sum"] - expected) < 5 * cell["standard_error"] + 0.1 * expected
    assert table1.slope(cells) < -1


def told_of_table_1(**changes):
    """Two cells, by hand."""
    cell = {"mse_sum": 5e-5, "standard_error": 1e-6, "theory": 5e-5, "P": 400, "M": 50}
    cell |= {"commit": "abc", "seconds": 0.5}
    other = {**cell, "mse_sum": 2.5e-5, "theory": 2.5e-5, "M": 100}
    told = {"cells": {"P=400, M=50": cell, "P=400, M=100": other}, "complete": True}
    told |= {"machine": {"cores": 2, "cpu": "a CPU"}, "size": "quick", "seed": 3, "seconds": 1.0}
    return {**told, **changes}


def test_a_page_has_ours_beside_published():
    text = run.page("table1", told_of_table_1())
    assert "| 400 | 5.00 ± 0.10 (5.47) | 2.50 ± 0.10 (2.55) |" in text
    assert "1.000 times what theory gives" in text
    assert "to the power -1.00" in text
    assert "2 of 2 cells are within 35 %" in text
    assert "Quick run; seed 3, 1 s on 2 cores" in text


@pytest.mark.parametrize(
    ("signals", "words"), [("abc", "the authors' signals"), (None, "signals drawn from the seed")]
)
def test_a_page_tells_whose_signals_it_is_of(signals, words):
    assert f"seed 3, {words}, 1 s" in run.page("table1", told_of_table_1(signals=signals))


def told_of_table_2(values, **cells):
    """Sizes of the GRU with what they came to, by hand."""
    trials = [
        {
            "settings": dict(zip(("depth", "width", "dense"), size, strict=True)),
            "value": value,
            "state": "complete",
            "seconds": 5.0,
        }
        for size, value in sorted(values.items(), key=lambda each: each[1])
    ]
    cell = {"trials": trials, "n_thetas": 500, "n_paths": 50, "commit": "abc", "seconds": 5.0}
    return told_of_table_1(cells={"GRU": cell, **cells}, size="full")


def test_sizes_are_told_beside_the_spread_of_seeds():
    values = {(2, 30, 32): 0.0056, (1, 30, 32): 0.0058, (2, 60, 32): 0.0070}
    alone = run.page("table2", told_of_table_2(values))
    assert "| 2 | 30 | 32 | 0.00560 | 0.00558 | 5 |" in alone
    assert "Here it is the best of 3, too." in alone
    assert "three seeds" not in alone
    size = {"depth": 2, "width": 30, "dense": 32}
    seeds = {table2.SPREAD: {"size": size, "values": [0.0057, 0.0060], "commit": "abc"}}
    text = run.page("table2", told_of_table_2(values, **seeds))
    assert "0.00560 to 0.00600; 2 of 3 sizes are within that or better" in text
    assert "Our best" not in text
    values[1, 30, 32] = 0.0055
    size = {"depth": 1, "width": 30, "dense": 32}
    seeds[table2.BEST] = {"size": size, "values": [0.0059, 0.0058], "commit": "abc"}
    text = run.page("table2", told_of_table_2(values, **seeds))
    assert "comes to 0.00550 to 0.00590; with 1 of the two by which it was not chosen" in text


def test_the_seeds_of_table_2_have_studies_of_their_own(tmp_path, monkeypatch):
    asked = []

    def tuned(model, vary, *, study, seed, **rest):
        asked.append((study.name, vary, seed))
        settings = {name: choices[-1] for name, choices in vary.items()}
        return [Trial(0, settings, 0.005 + 0.001 * seed, "complete", 2.0)]

    monkeypatch.setattr(table2, "tune", tuned)
    given = task(tmp_path, full=True, seed=0)
    table2.run(given)
    settings = given.journal.cells["LSTM"]["settings"]
    assert (settings["network"], settings["batch"], settings["n_paths"]) == ("lstm", 128, 50)
    names = ("gru-0", "gru-chosen-1", "gru-chosen-2", "gru-best-1", "gru-best-2", "lstm-0")
    assert [each[0] for each in asked] == [f"table2-{name}.sqlite" for name in names]
    assert asked[1][1:] == ({"depth": (2,), "width": (30,), "dense": (32,)}, 1)
    assert given.journal.cells[table2.SPREAD]["values"] == [0.006, 0.007]
    # The best of the grid is another size here.
    assert given.journal.cells[table2.BEST]["size"] == {"depth": 2, "width": 60, "dense": 40}


def test_the_page_is_of_the_full_run_once_it_has_come_far_enough(tmp_path):
    def page():
        run.write_page(tmp_path / "paper.md", tmp_path)
        return (tmp_path / "paper.md").read_text()

    def write(name, told):
        (tmp_path / f"{name}.json").write_text(json.dumps(told))

    with pytest.raises(GreybayesError, match="has no results"):
        page()
    write("table1-quick", told_of_table_1())
    assert "Quick run; seed 3" in page()
    full = told_of_table_1(size="full", complete=False)
    write("table1", {**full, "cells": {}})
    assert "Quick run; seed 3" in page()
    write("table1", full)
    assert "Full run, stopped: what it lacks is not in the table yet; seed 3" in page()
    write("table1", {**full, "complete": True})
    assert "Full run; seed 3" in page()


def test_the_page_in_the_docs_is_that_of_the_results():
    root = Path(__file__).parents[2]
    target = root / "docs/paper.md"
    assert target.read_text() == run.whole_page(target, root / run.FOLDER)


def test_a_cell_is_computed_anew_where_its_network_has_changed(tmp_path):
    calls = []
    given = task(tmp_path)
    for network in ("one", "one", "two"):
        given.cell("ours", lambda: {"call": len(calls.append(1) or calls)}, network)
    assert given.journal.cells["ours"]["call"] == len(calls) == 2
    # And those of the two parts that use a shipped network say so.
    chains = (*growth1.ESSENTIAL[1:], growth1.VARIANT)
    for part, cells in (("growth1", chains), ("growth2", growth2.ESSENTIAL[:2])):
        told = read(Path(__file__).parents[2] / run.FOLDER / f"{part}.json")["cells"]
        sources = {name: cell["source"] for name, cell in told.items() if "source" in cell}
        assert set(sources) == set(cells)
        # A new misfit check makes the first of them anew, and not the others.
        own = sources.pop("our network")
        assert own not in sources.values()


def test_a_new_misfit_check_does_not_change_the_weights(monkeypatch):
    before = gb.load("fir")

    def told_of(**arrays):
        changed = gb.Estimator(before.header, {**before.arrays, **arrays})
        monkeypatch.setattr(signals, "load", lambda name: changed)
        return signals.shipped_weights("fir")

    whole = told_of()
    assert told_of(**{REFERENCE: before.arrays[REFERENCE] + 1.0}) == whole
    bias = "head.out.bias"
    assert told_of(**{bias: before.arrays[bias] + 1.0}) != whole


def test_signals_are_the_authors_or_of_the_seed(tmp_path, shared_data):
    theirs = signals.signals(task(tmp_path, evaluation=shared_data), "growth1")
    assert np.array_equal(
        theirs[0].y, gb.read_records(shared_data / "growth1_evaluation_100.mat")[0].y
    )
    ours, again, others = (
        signals.signals(task(tmp_path, seed=seed), "growth2")[0].y for seed in (3, 3, 4)
    )
    assert np.array_equal(ours, again)
    assert not np.array_equal(ours, others)


def test_errors_are_named_by_their_convention():
    estimates = [
        gb.Estimate(("theta7", "theta8"), np.array([1.0 + step, 0.1])) for step in (0.1, -0.2)
    ]
    cell = signals.judged("growth1", estimates)
    assert cell["mse_mean"] == pytest.approx(0.0125)
    assert cell["mse_sum"] == pytest.approx(0.025)


def test_every_cell_of_a_method_or_a_network_has_its_settings():
    for part in ("growth1", "growth2"):
        told = read(Path(__file__).parents[2] / run.FOLDER / f"{part}.json")["cells"]
        assert [name for name, cell in told.items() if not cell["settings"]] == []
    estimates = gb.least_squares("fir", list(gb.simulate("fir", count=2, key=1)))
    assert signals.judged("growth1", estimates)["settings"]["n_starts"] > 0


@pytest.mark.accuracy
def test_the_exact_mean_of_m1_is_that_of_the_grid_filter():
    records = list(gb.simulate("growth1", count=3, key=5))
    refined = gb.refine("growth1", records, key=1)
    found = [growth1.exact_mean(*each) for each in zip(records, refined, strict=True)]
    y = np.stack([record.y[:, 0] for record in records])
    oracle = m1_posterior_near(y, np.array(found), np.array([e.std for e in refined]))
    spread = np.sqrt(gb.get_model("growth1").prior.variance)
    np.testing.assert_allclose(found / spread, oracle.mean / spread, atol=0.01)


def test_the_reference_of_the_drives_has_its_known_error(shared_data):
    record = measured.measured(Data(drives=shared_data / "DATAPRBS.MAT"))[0]
    assert np.sum((record.y[:, 0] - measured.reference_output(record)) ** 2) == pytest.approx(
        13.66, abs=0.005
    )


def test_the_measured_drives_may_be_those_of_a_package(shared_data, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    cache = tmp_path / ".nonlinear_benchmarks/CED"
    cache.mkdir(parents=True)
    (cache / "FULLTEXT01.zip").touch()
    with pytest.raises(GreybayesError, match=r"no DATAPRBS.MAT in its cache.*give --drives"):
        drives.sources(Data())
    shutil.copy(shared_data / "DATAPRBS.MAT", cache)
    assert drives.sources(Data()) == {"drives": cache / "DATAPRBS.MAT"}
    assert measured.measured(Data())[0].n_steps == 500


def test_the_commands_sentences(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    assert "did you mean table1" in refused("reproduce", "tabel1", "-o", tmp_path)
    assert "--drives DATAPRBS.MAT" in refused("reproduce", "table7", "-o", tmp_path)
    missing = ("--evaluation", tmp_path, "-o", tmp_path / "a")
    words = refused("reproduce", "table3", *missing)
    assert "there is no file" in words
    assert "growth1_evaluation_100.mat" in words
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    assert "cannot be made" in refused("reproduce", "table1", "-o", tmp_path / "file")


def test_the_command_prints_what_it_computed(tmp_path, monkeypatch):
    monkeypatch.setattr(table1, "QUICK", ((40,), (20, 40), 2))
    monkeypatch.setattr(table1, "ESSENTIAL", ("P=40, M=20", "P=40, M=40"))
    printed = ok("reproduce", "table1", "--seed", 3, "-o", tmp_path)
    assert "(5.47)" in printed
    assert "Quick run; seed 3" in printed
    told = read(tmp_path / "table1-quick.json")
    assert told["complete"]
    # Nothing is computed twice, and figures of another seed are not thrown away.
    assert ok("reproduce", "table1", "--seed", 3, "-o", tmp_path) == printed
    words = refused("reproduce", "table1", "--seed", 4, "-o", tmp_path)
    assert "holds figures of another seed" in words
    assert read(tmp_path / "table1-quick.json") == told
    ok("reproduce", "--page", tmp_path / "paper.md", "-o", tmp_path)
    assert "(5.47)" in (tmp_path / "paper.md").read_text()


@pytest.mark.parametrize(
    ("part", "cell", "key"), [("growth1", "CPF-SAEM", "settings"), ("drives", "delay", "sse")]
)
def test_a_file_of_another_version_is_refused(part, cell, key, tmp_path):
    told = json.loads((Path(__file__).parents[2] / run.FOLDER / f"{part}.json").read_text())
    next(value for name, value in told["cells"].items() if name.endswith(cell)).pop(key)
    (tmp_path / f"{part}.json").write_text(json.dumps(told))
    words = refused("reproduce", "--page", tmp_path / "paper.md", "-o", tmp_path)
    assert f"the results of {part} are of another version of greybayes" in words
    assert not (tmp_path / "paper.md").exists()


def test_a_run_does_not_go_on_with_a_file_of_another_version(tmp_path):
    told = json.loads((Path(__file__).parents[2] / run.FOLDER / "table2.json").read_text())
    told["cells"]["GRU"].pop("trials")
    (tmp_path / "table2.json").write_text(json.dumps(told))
    # Before the minutes of another part.
    words = refused("reproduce", "table1", "table2", "--full", "-o", tmp_path)
    assert "the results of table2 are of another version" in words
    assert not (tmp_path / "table1.json").exists()


def test_two_runs_at_one_file_are_refused(tmp_path):
    with alone_with(tmp_path / "table1-quick.json"):
        words = refused("reproduce", "table1", "-o", tmp_path)
    assert "table1-quick.json is in use" in words


@pytest.mark.parametrize(
    ("part", "option", "file"),
    [("table7", "--drives", "a.mat"), ("table5", "--evaluation", "growth2_evaluation_100.mat")],
)
def test_data_that_cannot_be_read_are_told_before_another_part_is_computed(
    tmp_path, part, option, file
):
    (tmp_path / file).write_text("no records")
    given = tmp_path if option == "--evaluation" else tmp_path / file
    words = refused("reproduce", "table1", part, option, given, "-o", tmp_path / "out")
    assert file in words
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["growth1", "drives"])
def test_the_pictures_are_those_of_the_results(name, tmp_path, shared_data):
    """Drawn anew from the committed results: all of them, with words at each axis and a legend."""
    shutil.copy(Path(__file__).parents[2] / run.FOLDER / f"{name}.json", tmp_path / "a.json")
    part = run.module(name)
    drawn = part.pictures(task(tmp_path, full=True, drives=shared_data / "DATAPRBS.MAT"))
    assert set(drawn) == set(part.CAPTIONS) == {f for f in part.CAPTIONS if run.PARTS[f] == name}
    for figure in drawn.values():
        assert figure.legends
        assert all(any(line.get_xydata().size for line in panel.lines) for panel in figure.axes)
        titled = [panel.get_ylabel() or panel.get_xlabel() for panel in figure.axes]
        assert all(titled)
        assert figure.axes[-1].get_xlabel()
        figure.canvas.draw()


def test_a_page_of_nothing_is_refused(tmp_path):
    (tmp_path / "paper.md").write_text("mine")
    words = refused("reproduce", "--page", tmp_path / "paper.md", "-o", tmp_path / "wrong")
    assert "wrong has no results of greybayes reproduce" in words
    assert (tmp_path / "paper.md").read_text() == "mine"
    assert not (tmp_path / "wrong").exists()


def test_the_seconds_of_a_network_in_paper_mode_are_also_those_of_its_training():
    for part in ("growth1", "growth2", "drives"):
        cells = read(Path(__file__).parents[2] / run.FOLDER / f"{part}.json")["cells"]
        trained = [cell for cell in cells.values() if "epochs" in cell]
        assert trained
        assert all(cell["seconds"] > cell["training_seconds"] for cell in trained)


def test_an_unfinished_part_is_not_on_the_page(tmp_path):
    journal = Journal(tmp_path / "table1.json", {"size": "full", "seed": 0})
    journal.cell("P=400, M=50", lambda: {"mse_sum": 1.0})
    (tmp_path / "table2.json").write_text(json.dumps(told_of_table_2({(2, 30, 32): 0.0056})))
    run.write_page(tmp_path / "paper.md", tmp_path)
    text = (tmp_path / "paper.md").read_text()
    assert "Table 2" in text
    assert "Table 1" not in text
