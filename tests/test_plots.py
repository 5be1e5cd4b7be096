"""Figures: what is drawn, read back from the figure itself."""

import sys

import numpy as np
import pytest

from greybayes.diagnose.output import Comparison
from greybayes.errors import GreybayesError, RecordError
from greybayes.estimate import Estimate
from greybayes.plots import (
    MAX_OVERLAID,
    plot_output,
    plot_pairs,
    plot_posterior,
    plot_records,
    plot_residuals,
    save_figure,
)
from greybayes.record import Record

UNITS = {"speed": "rad/s", "volts": "V", "t": "s"}


def drive(n_steps=50, name="drive", seed=0):
    rng = np.random.default_rng(seed)
    return Record(
        y=rng.normal(size=(n_steps, 2)),
        u=np.sign(rng.normal(size=n_steps)),
        dt=0.02,
        outputs=("speed", "load"),
        inputs=("volts",),
        units=UNITS,
        name=name,
    )


def lines(panel):
    """The lines of a panel that show something."""
    return [line for line in panel.get_lines() if len(line.get_xdata())]


def test_outputs_above_inputs_with_units():
    figure = plot_records(drive())
    assert [panel.get_ylabel() for panel in figure.axes] == ["speed [rad/s]", "load", "volts [V]"]
    assert figure.axes[-1].get_xlabel() == "time [s]"
    assert figure.get_suptitle() == "drive"


def test_samples_are_where_they_were_measured():
    record = drive()
    panels = plot_records(record).axes
    (line,) = lines(panels[1])
    assert np.array_equal(line.get_ydata(), record.y[:, 1])
    assert np.array_equal(line.get_xdata(), 0.02 * np.arange(50))


def test_inputs_are_held_until_the_next_sample():
    record = drive()
    (line,) = lines(plot_records(record).axes[2])
    assert record.u is not None
    assert line.get_drawstyle() == "steps-post"
    assert line.get_xdata()[-1] == pytest.approx(50 * 0.02)
    assert np.array_equal(line.get_ydata(), [*record.u[:, 0], record.u[-1, 0]])


def test_missing_samples_are_gaps_and_lone_samples_dots():
    nan = np.nan
    figure = plot_records(Record(y=[1.0, 2.0, nan, 3.0, nan, nan, 4.0, 5.0]))
    line, dots = lines(figure.axes[0])
    assert np.isnan(line.get_ydata()).sum() == 3
    assert (dots.get_xdata().tolist(), dots.get_ydata().tolist()) == ([4.0], [3.0])


def test_times_or_sample_numbers():
    uneven = plot_records(Record(y=[1.0, 2.0, 3.0], times=[0.0, 0.1, 0.5]))
    assert lines(uneven.axes[0])[0].get_xdata().tolist() == [0.0, 0.1, 0.5]
    assert uneven.axes[0].get_xlabel() == "time"
    unknown = plot_records(Record(y=[1.0, 2.0, 3.0]))
    assert lines(unknown.axes[0])[0].get_xdata().tolist() == [1, 2, 3]
    assert unknown.axes[0].get_xlabel() == "sample"


def test_a_common_input_is_drawn_as_that_of_the_first_record():
    figure = plot_records([drive(name="first"), drive(name="second")])
    assert lines(figure.axes[2])[-1].get_color() == "#000000"


def test_few_records_are_overlaid_and_named():
    figure = plot_records([drive(name="first"), drive(name="second", seed=1)])
    assert [len(lines(panel)) for panel in figure.axes] == [2, 2, 2]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["first", "second"]
    assert legend.get_title().get_text() == ""


def test_of_many_records_the_first_are_drawn_and_the_figure_says_so():
    figure = plot_records([drive(name=f"{k}", seed=k) for k in range(9)])
    assert len(lines(figure.axes[0])) == MAX_OVERLAID
    assert figure.legends[0].get_title().get_text() == "the first 6 of 9 records"


def test_lines_stay_apart_without_colour():
    figure = plot_records([drive(name=f"{k}", seed=k) for k in range(6)])
    from matplotlib.colors import to_rgb

    def grey(line):
        return float(np.dot(to_rgb(line.get_color()), (0.299, 0.587, 0.114)))

    looks = [(line.get_linestyle(), grey(line)) for line in lines(figure.axes[0])]
    for dashes in ("-", "--"):
        greys = [shade for style, shade in looks if style == dashes]
        assert min(np.diff(sorted(greys))) > 0.1
        assert max(greys) < 0.7  # still dark enough on white


def test_long_records_keep_their_extremes():
    y = np.zeros(300_000)
    y[123_456], y[200_001] = 7.0, -7.0
    figure = plot_records(Record(y=y, u=-y, dt=0.1))
    for panel in figure.axes:
        (line,) = lines(panel)
        assert len(line.get_ydata()) < 50_000
        assert (line.get_ydata().min(), line.get_ydata().max()) == (-7.0, 7.0)
        assert (np.diff(line.get_xdata()) >= 0).all()


@pytest.mark.parametrize(
    "record",
    [
        Record(y=[1.0]),
        Record(y=[1.0], u=[2.0]),
        Record(y=[np.nan, np.nan], u=[0.0, 0.0]),
        Record(y=[1.0, 2.0], units={"y": "$"}, name=r"a$\no{formula}$"),
    ],
    ids=["one sample", "one input", "all missing", "dollars"],
)
def test_odd_records_can_be_drawn(tmp_path, record):
    save_figure(tmp_path / "odd.png", plot_records(record))


@pytest.mark.parametrize(
    ("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_save_figure(tmp_path, suffix, start):
    path = tmp_path / f"y.{suffix}"
    save_figure(path, plot_records(drive()))
    written = path.read_bytes()
    assert written.startswith(start)
    save_figure(path, plot_records(drive()))
    assert path.read_bytes() == written
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_refusals(tmp_path):
    with pytest.raises(RecordError, match="no records"):
        plot_records([])
    with pytest.raises(RecordError, match="too large"):
        plot_records(Record(y=[1e308, -1e308]))
    with pytest.raises(GreybayesError, match=r"\.png, \.svg, \.pdf"):
        save_figure(tmp_path / "y.jpg", plot_records(drive()))


def test_no_global_state_is_touched():
    loaded = sys.modules.pop("matplotlib.pyplot", None)
    plot_records(drive())
    assert "matplotlib.pyplot" not in sys.modules
    if loaded is not None:
        sys.modules["matplotlib.pyplot"] = loaded


def test_the_band_is_around_the_simulated_output_and_the_fit_beside():
    record = drive(200)
    y = record.y
    figure = plot_output(Comparison(record, y + 0.1, y - 1.0, y + 2.0))
    assert [panel.get_ylabel() for panel in figure.axes] == ["speed [rad/s]", "load", "volts [V]"]
    band = figure.axes[0].collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(y[:, 0].min() - 1.0)
    assert band[:, 1].max() == pytest.approx(y[:, 0].max() + 2.0)
    fit = Comparison(record, y + 0.1, y, y).scores.fit_percent[0]
    assert figure.axes[0].get_title(loc="right") == f"fit {fit:.1f} %"


def test_correlations_outside_the_band_are_coloured():
    rng = np.random.default_rng(0)
    u = rng.normal(size=300)
    record = Record(rng.normal(size=300), u)
    e = rng.normal(size=300) + 0.5 * np.roll(u, 2)
    figure = plot_residuals(e[:, None], record)
    inside, outside = lines(figure.axes[2])[1:]
    assert 2 in outside.get_xdata()
    assert 2 not in inside.get_xdata()


def test_residuals_that_were_never_seen_have_no_correlations():
    record = Record([np.nan, np.nan, np.nan], [1.0, 2.0, 3.0])
    assert len(plot_residuals(np.full((3, 1), np.nan), record).axes) == 1


def test_a_posterior_is_drawn_with_its_prior_and_interval():
    estimate = Estimate(("theta[0]", "theta[1]"), np.array([1.0, 0.5]), 0.01 * np.eye(2))
    panel = plot_posterior("fir", estimate).axes[0]
    drawn = {line.get_label(): line for line in panel.get_lines()}
    assert set(drawn) == {"prior", "posterior", "estimate", "95 %"}
    assert np.allclose(drawn["95 %"].get_xdata(), [1 - 0.196, 1 + 0.196], atol=1e-3)


def test_what_has_no_uncertainty_has_no_posterior_to_draw():
    bare = Estimate(("theta[0]", "theta[1]"), np.array([1.0, 0.5]), method="psem")
    for plot in (plot_posterior, plot_pairs):
        with pytest.raises(GreybayesError, match="psem gives no uncertainty"):
            plot("fir", bare)
    sure = bare.replace(covariance=np.diag([0.01, 0.0]))
    with pytest.raises(GreybayesError, match="needs two parameters"):
        plot_pairs("fir", sure)
