"""Results that are compared: read back from files that may come from anywhere."""

import json

import numpy as np
import pytest
from helpers.commands import ok, refused

from greybayes.plots import plot_estimates
from greybayes.report import results
from greybayes.report.results import comparison_rows, read_results

ROW = {
    "record": "a",
    "parameters": [{"name": "gain", "mean": 1.5, "std": 0.1, "interval95": [1.3, 1.7]}],
    "seconds": 2.0,
    "fit_percent": 81.0,
}


def written(folder, name="map.json", method="map", **changes):
    rows = changes.pop("records", [{**ROW, **changes}])
    path = folder / name
    path.write_text(json.dumps({"model": "m", "method": method, "records": rows}))
    return path


def test_results_are_a_table_and_a_figure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    psem = written(tmp_path, "psem.json", "psem", fit_percent=None, status="unconverged")
    files = [written(tmp_path), psem]
    said = ok("compare", *files, "-o", "c.png")
    for word in (
        "gain",
        "1.5 (1.3 to 1.7)",
        "fit %",
        "81.0",
        "seconds",
        "status",
        "unconverged",
        "map",
        "psem",
        "Wrote c.png",
    ):
        assert word in said
    assert (tmp_path / "c.png").stat().st_size > 1000
    ok("compare", *files, "-o", "c.html")
    page = (tmp_path / "c.html").read_text()
    assert "<svg" in page
    assert '<th scope="row">gain</th>' in page
    told = json.loads(ok("compare", *files, "--json"))
    assert [each["method"] for each in told["results"]] == ["map", "psem"]
    assert told["record"] == "a"


def test_two_results_of_one_method_are_called_by_their_files(tmp_path):
    files = [written(tmp_path), written(tmp_path, "other.json")]
    assert [each["label"] for each in read_results(files)] == ["map", "other"]
    (tmp_path / "later").mkdir()
    files = [files[0], written(tmp_path / "later")]
    assert [each["label"] for each in read_results(files)] == [str(file) for file in files]


def test_a_comparison_may_also_be_a_page(tmp_path):
    assert ".pdf, .html" in refused("compare", written(tmp_path), "-o", tmp_path / "c.txt")


def test_one_of_several_records_is_chosen(tmp_path):
    rows = [ROW, {**ROW, "record": "b", "seconds": 7.0}]
    path = written(tmp_path, records=rows)
    (found,) = read_results([path], "b")
    assert found["seconds"] == 7.0
    assert "has 2 records: a, b; choose one with --record" in refused("compare", path)
    assert "has no record c; known: a, b" in refused("compare", path, "--record", "c")


def test_results_of_two_records_are_refused(tmp_path):
    files = [written(tmp_path), written(tmp_path, "b.json", record="b")]
    assert "compare results of one record" in refused("compare", *files)


BAD = {
    "no JSON": ("{", "it is not JSON"),
    "too deep": ("[" * 100_000, "it is not JSON"),
    "bytes": (b"\xff\xfe\x00", "it is not JSON"),
    "a list": ("[]", "no list of records"),
    "no records": ('{"records": []}', "no list of records"),
    "records of numbers": ('{"records": [1]}', "a record is not an object"),
    "no parameters": ('{"records": [{}]}', "a list of 1 to 200 parameters"),
    "a parameter that is none": ('{"records": [{"parameters": [1]}]}', "not an object"),
    "no name": ('{"records": [{"parameters": [{"mean": 1}]}]}', "name of a parameter"),
    "a mean in words": (
        '{"records": [{"parameters": [{"name": "a", "mean": "1"}]}]}',
        "the mean of a parameter is not a number",
    ),
    "an interval of three": (
        '{"records": [{"parameters": [{"name": "a", "mean": 1, "interval95": [1, 2, 3]}]}]}',
        "interval95 is not a pair",
    ),
    "a terminal's command": (
        '{"records": [{"parameters": [{"name": "\\u001b[2J", "mean": 1}]}]}',
        "printable",
    ),
    "a name twice": (
        '{"records": [{"parameters": [{"name": "a", "mean": 1}, {"name": "a", "mean": 1}]}]}',
        "two parameters have one name",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_result_is_refused_in_one_sentence(case, tmp_path):
    content, words = BAD[case]
    path = tmp_path / "bad.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    out = tmp_path / "c.png"
    assert words in refused("compare", path, "-o", out)
    assert not out.exists()


def test_a_file_that_is_too_large_or_not_there_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "MAX_BYTES", 100)
    assert "larger than" in refused("compare", written(tmp_path))
    assert "cannot be read" in refused("compare", tmp_path / "none.json")


def test_a_figure_of_another_kind_is_refused_before_anything_is_read(tmp_path):
    assert "no kind of figure" in refused("compare", tmp_path / "none.json", "-o", "c.gif")


def test_numbers_that_are_not_finite_are_left_out(tmp_path):
    path = tmp_path / "nan.json"
    path.write_text('{"records": [{"parameters": [{"name": "a", "mean": NaN}], "seconds": 1e999}]}')
    (found,) = read_results([path])
    assert found["parameters"][0]["mean"] is None
    assert found["seconds"] is None
    assert comparison_rows([found]) == [["a", ""]]
    assert len(plot_estimates([found]).axes) == 1


def test_the_figure_has_a_panel_for_each_parameter_and_for_fit_and_seconds(tmp_path):
    figure = plot_estimates(read_results([written(tmp_path)]))
    assert [panel.get_title() for panel in figure.axes] == ["gain", "fit %", "seconds"]
    line, dot = figure.axes[0].get_lines()
    assert np.allclose(line.get_xdata(), [1.3, 1.7])
    assert np.allclose(dot.get_xdata(), [1.5])
