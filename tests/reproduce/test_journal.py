"""Results of `reproduce`: each cell is computed once, and a stopped run goes on."""

import json

import pytest

from greybayes.errors import GreybayesError
from greybayes.reproduce import journal as module
from greybayes.reproduce.journal import Journal, read

ABOUT = {"part": "table1", "size": "quick", "seed": 0}


def counted():
    """A cell that counts how often it is computed."""
    calls = []

    def compute():
        calls.append(1)
        return {"figure": 2.5}

    return calls, compute


def test_a_cell_is_computed_once_and_found_again(tmp_path):
    calls, compute = counted()
    first = Journal(tmp_path / "a.json", ABOUT)
    found = first.cell("one", compute)
    assert found["figure"] == 2.5
    assert found["seconds"] >= 0
    again = Journal(tmp_path / "a.json", ABOUT)
    assert again.cell("one", compute) == found
    assert len(calls) == 1


def test_a_stopped_run_keeps_what_it_has(tmp_path):
    calls, compute = counted()

    def stopped():
        raise KeyboardInterrupt

    journal = Journal(tmp_path / "a.json", ABOUT)
    journal.cell("one", compute)
    with pytest.raises(KeyboardInterrupt):
        journal.cell("two", stopped)
    again = Journal(tmp_path / "a.json", ABOUT)
    assert list(again.cells) == ["one"]
    again.cell("two", compute)
    assert len(calls) == 2
    told = read(tmp_path / "a.json")
    assert list(told["cells"]) == ["one", "two"]
    assert told["seconds"] == round(sum(cell["seconds"] for cell in told["cells"].values()), 1)
    assert {"complete", "machine", "package", "part", "seed"} <= told.keys()


def test_a_cell_of_hours_is_told_while_it_is_computed_and_goes_on_after_a_stop(tmp_path):
    journal = Journal(tmp_path / "a.json", ABOUT)

    def stopped():
        journal.so_far("one", {"figure": 1.0, "seconds": 3.0})
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        journal.cell("one", stopped)
    again = Journal(tmp_path / "a.json", ABOUT)
    assert (again.cells["one"]["figure"], again.has("one")) == (1.0, False)
    calls, compute = counted()
    assert again.cell("one", compute)["figure"] == 2.5
    assert again.has("one")
    assert len(calls) == 1


def test_who_computes_nothing_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    """Its machine, above all: the seconds are of that one."""
    journal = Journal(tmp_path / "a.json", ABOUT)
    journal.cell("one", counted()[1])
    journal.finish()
    told = (tmp_path / "a.json").read_text()
    monkeypatch.setattr(module, "describe_machine", lambda: {"cpu": "another"})
    again = Journal(tmp_path / "a.json", ABOUT)
    again.cell("one", counted()[1])
    again.finish()
    assert (tmp_path / "a.json").read_text() == told
    again.cell("two", counted()[1])
    assert read(tmp_path / "a.json")["machine"] == {"cpu": "another"}


def test_each_cell_has_the_processors_on_which_it_was_computed(tmp_path, monkeypatch):
    names = iter(["old", "old", "new", "new", "new"])
    monkeypatch.setattr(module, "describe_machine", lambda: {"cpu": next(names)})
    journal = Journal(tmp_path / "a.json", ABOUT)
    journal.so_far("begun", {"figure": 1.0, "seconds": 3.0})
    again = Journal(tmp_path / "a.json", ABOUT)
    for name in ("begun", "later"):
        again.cell(name, counted()[1])
    cells = read(tmp_path / "a.json")["cells"]
    assert [cell["cpu"] for cell in cells.values()] == ["old, new", "new"]


def test_a_file_from_before_cells_had_processors_tells_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "describe_machine", lambda: {"cpu": "old"})
    file = tmp_path / "a.json"
    Journal(file, ABOUT).cell("one", counted()[1])
    told = json.loads(file.read_text())
    del told["cells"]["one"]["cpu"]
    file.write_text(json.dumps(told))
    monkeypatch.setattr(module, "describe_machine", lambda: {"cpu": "new"})
    Journal(file, ABOUT).cell("two", counted()[1])
    assert [cell["cpu"] for cell in read(file)["cells"].values()] == ["old", "new"]


def test_a_finished_file_of_which_a_cell_is_made_anew_is_not_finished_until_it_is(tmp_path):
    journal = Journal(tmp_path / "a.json", ABOUT)
    journal.cell("one", counted()[1], source="a network")
    journal.finish()
    again = Journal(tmp_path / "a.json", ABOUT)
    again.cell("one", counted()[1], source="another network")
    assert not read(tmp_path / "a.json")["complete"]
    again.finish()
    assert read(tmp_path / "a.json")["complete"]


def test_cells_of_another_seed_are_neither_mixed_with_ours_nor_lost(tmp_path):
    _, compute = counted()
    Journal(tmp_path / "a.json", ABOUT).cell("one", compute)
    with pytest.raises(GreybayesError, match="holds figures of another seed"):
        Journal(tmp_path / "a.json", {**ABOUT, "seed": 1})
    assert list(read(tmp_path / "a.json")["cells"]) == ["one"]


@pytest.mark.parametrize("pair", [("theirs", None), (None, "theirs")])
def test_cells_of_the_authors_signals_are_not_taken_for_those_of_the_seed(tmp_path, pair):
    first, second = ({**ABOUT, "signals": each} for each in pair)
    Journal(tmp_path / "a.json", first).cell("one", counted()[1])
    with pytest.raises(GreybayesError, match="of another set of signals; name another folder"):
        Journal(tmp_path / "a.json", second)
    assert read(tmp_path / "a.json")["signals"] == pair[0]


def test_a_cell_has_the_commit_that_it_was_begun_with(tmp_path, monkeypatch):
    commits = iter(["before", "after"])
    monkeypatch.setattr(module, "describe_commit", lambda folder: next(commits))
    begun = Journal(tmp_path / "a.json", ABOUT)
    assert [begun.cell(name, counted()[1])["commit"] for name in ("one", "two")] == ["before"] * 2
    assert Journal(tmp_path / "a.json", ABOUT).cell("three", counted()[1])["commit"] == "after"


def test_a_cell_of_several_runs_has_the_commits_of_all_that_added_to_it(tmp_path, monkeypatch):
    commits = iter(["first", "idle", "second", "last"])
    monkeypatch.setattr(module, "describe_commit", lambda folder: next(commits))
    for trials in (1, 1, 2):
        Journal(tmp_path / "a.json", ABOUT).so_far("one", {"trials": trials, "seconds": 1.0})
    assert read(tmp_path / "a.json")["cells"]["one"]["commit"] == "first, second"
    found = Journal(tmp_path / "a.json", ABOUT).cell("one", lambda: {"trials": 3})
    assert found["commit"] == "first, second, last"


def test_a_cell_of_another_file_is_computed_anew_and_the_others_are_kept(tmp_path):
    calls, compute = counted()
    journal = Journal(tmp_path / "a.json", ABOUT)
    journal.cell("hours", compute)
    journal.cell("minutes", compute, source="a network")
    again = Journal(tmp_path / "a.json", ABOUT)
    again.cell("hours", compute)
    again.cell("minutes", compute, source="a network")
    assert len(calls) == 2
    again.cell("minutes", compute, source="another network")
    assert len(calls) == 3
    assert read(tmp_path / "a.json")["cells"]["minutes"]["source"] == "another network"


def test_what_is_no_number_is_null(tmp_path):
    journal = Journal(tmp_path / "a.json", ABOUT)
    found = journal.cell("one", lambda: {"k_hat": float("inf"), "more": [1.0, float("nan")]})
    assert (found["k_hat"], found["more"]) == (None, [1.0, None])
    journal.finish()
    assert read(tmp_path / "a.json")["complete"]


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", '{"cells": 3}', '{"cells": {}}', json.dumps({"part": "table1"})),
        json.dumps({**dict.fromkeys(sorted(module._KEYS), 1), "cells": {"one": 3}}),
        json.dumps({**dict.fromkeys(sorted(module._KEYS), 1), "cells": {"one": {"figure": 3}}}),
    ],
)
def test_another_file_is_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(GreybayesError, match="not a result of greybayes reproduce"):
        Journal(tmp_path / "a.json", ABOUT)
    assert (tmp_path / "a.json").read_text() == text
