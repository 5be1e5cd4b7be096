"""The commands `train`, `estimate` and `info`: what they print, write and refuse."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.commands import ok, refused, run
from helpers.tiny import (
    N_STEPS,
    OPTIONS,
    STEPS,
    assert_same_weights,
    records_of,
    stop_at,
    train_tiny,
    untrained,
    write_plant,
)

import greybayes as gb
from greybayes.amortized.loop import Progress
from greybayes.cli import estimators
from greybayes.record import write_records
from greybayes.zoo.fir import Fir


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def made(tmp_path_factory, compiled):
    """For each model an estimator file and three records: `made["fir"]` is its folder."""
    folders = {}
    for name in ("linear-gaussian", "fir", "coupled-drives"):
        folders[name] = folder = tmp_path_factory.mktemp(name)
        estimator = untrained(name)
        estimator.save(folder / "a.estimator")
        write_records(folder / "records.csv", records_of(estimator, 3))
    return folders


@pytest.fixture(scope="module")
def trained(compiled):
    """A few seconds of training."""
    return train_tiny()


@pytest.fixture
def lg(made, monkeypatch):
    monkeypatch.chdir(made["linear-gaussian"])
    return made["linear-gaussian"]


# Train.


def test_train_writes_what_python_trains(folder):
    """One test, since it trains: the file, the sentence, the object, the file's name."""
    said = ok("train", "linear-gaussian", *OPTIONS)
    assert said.startswith("Wrote linear-gaussian.estimator (")
    assert f"{STEPS} steps" in said
    assert "0.0% diverged" in said
    written = gb.load("linear-gaussian.estimator")
    assert_same_weights(written, train_tiny())
    assert [p.name for p in folder.iterdir()] == ["linear-gaussian.estimator"]

    facts = json.loads(ok("train", "linear-gaussian", *OPTIONS, "-o", "b.estimator", "--json"))
    assert facts["path"] == "b.estimator"
    assert (facts["model"], facts["length"], facts["steps"]) == ("linear-gaussian", N_STEPS, STEPS)
    assert facts["validation"] == written.header["history"][-1]["validation_risk"]
    assert_same_weights(gb.load("b.estimator"), written)


def test_resume_finds_the_checkpoint_by_the_name_of_the_output(folder):
    with pytest.raises(KeyboardInterrupt):
        train_tiny(checkpoint="a.estimator.partial", watch=stop_at())
    # A built-in model may be named beside it, but not another than it was.
    words = refused("train", "fir", "--resume", "a.estimator")
    assert (
        "is for the model linear-gaussian (LinearGaussian), and Fir has other parameters" in words
    )
    said = ok("train", "linear-gaussian", "--resume", "a.estimator")
    assert said.startswith("Wrote a.estimator (")
    assert [p.name for p in folder.iterdir()] == ["a.estimator"]


def test_an_interrupt_names_a_users_own_model_again_which_a_checkpoint_never_runs(
    folder, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(estimators, "_watched", lambda task: contextlib.nullcontext(stop_at()))
        interrupted = run("train", write_plant(folder), *OPTIONS, "-o", "a.estimator")
    assert interrupted.exit_code == 130
    command = "train plant.py:Plant --resume a.estimator.partial"
    assert f"Go on with: greybayes {command}\n" in interrupted.stderr

    (folder / "ran").unlink()
    sentence = refused("train", "--resume", "a.estimator.partial")
    assert "greybayes train plant.py:Plant --resume FILE" in sentence
    assert not (folder / "ran").exists()

    assert ok(*command.split()).startswith("Wrote a.estimator (")
    assert_same_weights(gb.load("a.estimator"), train_tiny())  # It is the same under another name.
    assert not Path("a.estimator.partial").exists()


TRAIN_REFUSED = {
    "nothing": ((), "give a model to train for, or --resume"),
    "an unknown model": (("grwth2",), "no model grwth2; did you mean growth2"),
    "no checkpoint": (("--resume", "a.estimator"), "there is no checkpoint a.estimator"),
    "a model and no checkpoint": (("fir", "--resume", "a"), "there is no checkpoint a"),
    "minutes and steps": (("fir", "--minutes", 1, "--steps", 10), "minutes or steps, not both"),
    "no minutes": (("fir", "--minutes", 0), "minutes is 0.0, expected a number"),
    "no steps": (("fir", "--steps", 0), "steps is 0, expected a whole number"),
    "no length": (("fir", "--steps", 10, "--length", 0), "expected 1 or more"),
    "an unknown preset": (("fir", "--preset", "fast"), "no preset fast"),
    "an unknown network": (("fir", "--steps", 10, "--network", "gr"), "did you mean gru"),
    "an unknown setting": (("fir", "--steps", 10, "--set", "bach=8"), "no setting bach"),
    "no value": (("fir", "--set", "batch"), "--set got 'batch', expected NAME=VALUE"),
    "no number": (("fir", "--set", "batch=many"), "--set got 'batch=many'"),
    "no name": (("fir", "--steps", 10, "--set", "network=3"), "network is 3, expected a name"),
    "no sizes": (("fir", "--steps", 10, "--set", "sizes=3"), "sizes is 3, expected sizes by"),
    "no whole number": (
        ("fir", "--steps", 10, "--set", "seed=1.5"),
        "seed is 1.5, expected a whole",
    ),
    "no start": (("fir", "--steps", 10, "--set", "start=nowhere"), "no estimator nowhere"),
    "a size of 0": (("fir", "--steps", 10, "--set", "pool=0"), "pool"),
    "no folder": (("fir", "-o", "nowhere/a"), "nowhere/a cannot be written"),
    "an unknown input": (("fir", "--steps", 10, "--input", "prbx"), "prbs"),
}


@pytest.mark.parametrize("case", TRAIN_REFUSED)
def test_what_cannot_be_trained_is_one_sentence(folder, case):
    arguments, words = TRAIN_REFUSED[case]
    assert words in refused("train", *arguments)
    assert not list(folder.iterdir())


def test_a_training_does_not_write_over_one_that_was_stopped(folder):
    (folder / "fir.estimator.partial").write_bytes(b"hours of work")
    words = refused("train", "fir", "--steps", 10)
    assert "Go on with: greybayes train --resume fir.estimator.partial; or remove it" in words
    assert [path.read_bytes() for path in folder.iterdir()] == [b"hours of work"]


def test_a_training_that_cannot_be_gone_on_with_leaves_no_checkpoint(folder):
    lost = [str(each).replace("learning_rate=0.01", "learning_rate=1e30") for each in OPTIONS]
    assert "learning_rate=1e30" in lost
    assert "training lost its way" in refused("train", "linear-gaussian", *lost)
    assert not list(folder.iterdir())


def test_a_damaged_checkpoint_is_one_sentence(folder):
    (folder / "a.estimator.partial").write_bytes(b"\x10" + bytes(200))
    assert "a.estimator.partial" in refused("train", "--resume", "a.estimator")


def test_a_finished_estimator_is_not_resumed(lg):
    assert "nothing to go on with" in refused("train", "--resume", "a.estimator")


# Estimate.


def test_estimate_prints_json(lg):
    printed = json.loads(ok("estimate", "a.estimator", "records.csv", "--json"))
    assert printed.keys() == {"model", "method", "records"}
    assert (printed["model"], printed["method"]) == ("linear-gaussian", "deepbayes")
    records = gb.read_records("records.csv", outputs=["y"], inputs=["u"])
    expected = gb.load("a.estimator").estimate(records)
    assert len(printed["records"]) == 3
    for each, record, estimate in zip(printed["records"], records, expected, strict=True):
        assert {"parameters", "seconds", "status"} <= each.keys()
        assert "fit_percent" not in each  # It has process noise: nothing to compare with.
        assert each["record"] == record.name
        assert each["status"] == "ok"
        assert each["seconds"] > 0
        assert [p.keys() for p in each["parameters"]] == [{"name", "mean", "std", "interval95"}] * 4
        assert 0 < each["diagnostics"]["misfit_p"] <= 1
        assert [p["name"] for p in each["parameters"]] == ["a", "b", "q", "r"]
        means = [p["mean"] for p in each["parameters"]]
        np.testing.assert_allclose(means, estimate.mean, atol=1e-5)


def test_refine_prints_the_exact_answer_and_its_rung(lg, trained):
    trained.save("tiny.estimator")
    args = ("estimate", "tiny.estimator", "records.csv", "--refine", "--set", "min_ess=200")
    printed = json.loads(ok(*args, "--seed", "3", "--json"))
    assert printed["method"] == "refine"
    records = gb.read_records("records.csv", outputs=["y"], inputs=["u"])
    expected = gb.refine(trained, records, key=3, settings={"min_ess": 200})
    for each, estimate in zip(printed["records"], expected, strict=True):
        assert each["diagnostics"]["rung"] == estimate.diagnostics["rung"]
        assert each["diagnostics"]["ess"] >= 200
        means = [p["mean"] for p in each["parameters"]]
        np.testing.assert_allclose(means, estimate.mean, rtol=1e-6)


def test_refine_says_how_it_was_obtained_and_what_it_is_worth(lg, trained):
    trained.save("tiny.estimator")
    shown = " ".join(ok("estimate", "tiny.estimator", "records.csv", "--refine").split())
    assert shown.count("rung ") == 3
    assert "effective draws" in shown
    assert "k-hat" in shown
    assert "log evidence" in shown


@pytest.mark.parametrize("value", ["nan", "inf", "-3"])
def test_a_number_of_draws_that_is_none_is_one_sentence(lg, trained, value):
    trained.save("tiny.estimator")
    refuse = ("estimate", "tiny.estimator", "records.csv", "--refine", "--set", f"min_ess={value}")
    assert "min_ess is" in refused(*refuse)


def test_resume_prefers_the_checkpoint_and_refuses_what_it_would_ignore(lg, trained):
    trained.save("twice.estimator")
    Path("twice.estimator.partial").write_bytes(b"a checkpoint, cut short")
    assert "twice.estimator.partial" in refused("train", "--resume", "twice.estimator")
    told = refused("train", "--resume", "twice.estimator", "--steps", "5", "--seed", "2")
    assert "leave out --steps, --seed" in told


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--minutes", "inf"), "minutes is inf"),
        (("--steps", "10", "--set", "width=1.5"), "width is 1.5, expected a whole number"),
        (("--steps", "10", "--set", "dense=0"), "dense is 0, expected a whole number"),
        (("--steps", "10", "--set", "devices=99"), "devices is 99, here are"),
        (("--preset", "paper", "--set", "decays=0"), "decays is 0, expected a whole number"),
        (("--steps", "10", "-o", "."), "is a folder: name a file in it"),
    ],
)
def test_what_cannot_be_trained_is_one_sentence_before_the_work(lg, options, sentence):
    assert sentence in refused("train", "linear-gaussian", *options)


def test_the_bar_shows_steps_speed_and_risks(monkeypatch):
    seen = []

    @contextlib.contextmanager
    def told(task, total):
        yield lambda *given: seen.append((task, *given))

    monkeypatch.setattr(estimators, "bar", told)
    with estimators._watched("Training a") as watch:
        watch(Progress(10, 50, 1234.5, 0.25, 0.5, 3.0))
    assert seen == [("Training a", 10, 50, "1,234 paths/s, risk 0.2500, validation 0.5000")]


def test_info_tells_all_of_the_training():
    facts = json.loads(ok("info", "growth1", "--json"))
    header = gb.load("growth1").header
    assert facts["seconds"] == header["seconds"] + header["before"]["seconds"]
    assert (facts["batch"], facts["sizes"]["width"]) == (64, 96)


def test_settings_of_refine_need_refine(lg):
    assert "give both" in refused("estimate", "a.estimator", "records.csv", "--set", "min_ess=9")


def test_a_record_that_the_model_cannot_have_made_is_named(lg, trained):
    trained.save("tiny.estimator")
    record = gb.read_records("records.csv")[0]
    write_records("odd.csv", gb.Record(y=record.y + 50.0, u=record.u, name="odd"))
    result = run("estimate", "tiny.estimator", "odd.csv")
    assert result.exit_code == 0
    assert "odd: misfit:" in result.stderr
    assert "widen the prior or mend the model" in " ".join(result.stderr.split())


def test_several_files_and_columns_by_name(lg, folder):
    source = lg / "records.csv"
    record = gb.read_records(str(source))[0]
    other = gb.Record(y=record.y, outputs=("z",))
    write_records("bare.csv", other)
    args = (lg / "a.estimator", source, "bare.csv:y=z", "--json")
    records = json.loads(ok("estimate", *args))["records"]
    assert len(records) == 4
    assert records[3]["parameters"] == records[0]["parameters"]  # Without u: the estimator's.


@pytest.mark.parametrize("name", ["fir", "coupled-drives"])
def test_a_model_without_process_noise_has_a_fit(made, name):
    folder = made[name]
    printed = json.loads(ok("estimate", folder / "a.estimator", folder / "records.csv", "--json"))
    assert len(printed["records"]) == 3
    for each in printed["records"]:
        assert isinstance(each["fit_percent"], float)
        assert each["fit_percent"] <= 100


def test_the_fit_is_that_of_the_simulated_output(made):
    """By hand for the impulse response: y_k = theta_1 u_k + theta_2 u_{k-1}."""
    folder = made["fir"]
    printed = json.loads(ok("estimate", folder / "a.estimator", folder / "records.csv", "--json"))
    for each, record in zip(
        printed["records"], gb.read_records(str(folder / "records.csv")), strict=True
    ):
        theta = [p["mean"] for p in each["parameters"]]
        y, u = record.y[:, 0], record.u[:, 0]
        simulated = np.convolve(u, theta)[: len(u)]
        expected = 100 * (1 - np.linalg.norm(y - simulated) / np.linalg.norm(y - y.mean()))
        assert each["fit_percent"] == pytest.approx(expected, abs=1e-3)


def test_a_constant_record_allows_no_fit(made, folder):
    write_records("flat.csv", gb.Record(y=np.full(N_STEPS, 0.5)))
    printed = ok("estimate", made["fir"] / "a.estimator", "flat.csv", "--json")

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    assert "fit_percent" not in json.loads(printed, parse_constant=refuse)["records"][0]


def test_estimate_prints_a_table_with_the_truth_beside(lg):
    table = ok("estimate", "a.estimator", "records.csv")
    for words in ("parameter", "estimate", "truth", "LinearGaussian-1", "LinearGaussian-3"):
        assert words in table
    mean = gb.load("a.estimator").estimate(gb.read_records("records.csv"))[0].mean[0]
    assert f"{mean:.4g}" in table


def test_estimate_and_info_never_run_the_program_that_a_file_names(folder):
    estimator = untrained(write_plant(folder))
    estimator.save("a.estimator")
    write_records("records.csv", records_of(estimator, 3))
    (folder / "ran").unlink()
    assert "plant.py:Plant" in ok("info", "a.estimator")
    assert len(json.loads(ok("estimate", "a.estimator", "records.csv", "--json"))["records"]) == 3
    assert not (folder / "ran").exists()


def test_where_estimate_needs_a_users_own_model_it_says_how_to_pass_it(folder):
    """For the fit of a model without process noise."""
    estimator = untrained(write_plant(folder, Fir))
    estimator.save("a.estimator")
    write_records("records.csv", records_of(estimator, 3))
    (folder / "ran").unlink()
    command = ("estimate", "a.estimator", "records.csv", "--json")
    assert "--model plant.py:Plant for the commands estimate" in refused(*command)
    assert not (folder / "ran").exists()
    printed = json.loads(ok(*command, "--model", "plant.py:Plant"))
    assert all("fit_percent" in each for each in printed["records"])


def with_length(record, n):
    return gb.Record(y=record.y[:n], u=record.u[:n], dt=record.dt)


def test_what_cannot_be_estimated_is_one_sentence(lg, folder, monkeypatch):
    estimator = lg / "a.estimator"
    record = gb.read_records(str(lg / "records.csv"))[0]
    write_records("short.csv", with_length(record, 20))
    write_records("pushed.csv", gb.Record(y=record.y, u=record.u + 1, dt=record.dt))
    write_records("gap.csv", gb.Record(y=np.where(np.arange(24) == 3, np.nan, record.y[:, 0])))
    (folder / "damaged.estimator").write_bytes(estimator.read_bytes()[:-5] + b"12345")
    (folder / "cut.estimator").write_bytes(estimator.read_bytes()[:-5])
    good = lg / "records.csv"
    for arguments, words in {
        (estimator, "short.csv"): "train linear-gaussian --input FILE --length 20",
        (estimator, "pushed.csv"): "greybayes train linear-gaussian --input",
        (estimator, "gap.csv"): "1 missing samples",
        (estimator, "nowhere.csv"): "nowhere.csv",
        (estimator, f"{good}:y=z"): "z",
        ("grwth2", good): "there is no estimator grwth2",
        ("nowhere.estimator", good): "there is no file nowhere.estimator",
        ("damaged.estimator", good): "damaged.estimator is damaged",
        ("cut.estimator", good): "cut.estimator",
        ("short.csv", good): "short.csv",
    }.items():
        assert words in refused("estimate", *arguments), arguments
        assert words in refused("estimate", *arguments, "--json"), arguments


def test_estimate_does_not_load_jax(lg, compiled):
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from greybayes.cli import app\n"
        "for arguments in (\n"
        "    ['estimate', 'a.estimator', 'records.csv', '--json'],\n"
        "    ['estimate', 'a.estimator', 'records.csv'],\n"
        "    ['info', 'a.estimator'],\n"
        "):\n"
        "    result = CliRunner().invoke(app, arguments)\n"
        "    assert result.exit_code == 0, result.stderr\n"
        "heavy = {'jax', 'jaxlib', 'numpyro', 'equinox', 'optax'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=lg,
        env={**os.environ, "PYTHONPATH": str(Path(gb.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr


# Info.


def test_info_says_what_it_was_trained_for_and_how(lg):
    facts = json.loads(ok("info", "a.estimator", "--json"))
    header = gb.load("a.estimator").header
    assert facts["model"] == "linear-gaussian"
    assert facts["parameters"] == "a, b, q, r"
    assert (facts["length"], facts["dt"], facts["network"]) == (N_STEPS, 1.0, "windows")
    assert facts["weights"] == header["n_weights"]
    assert facts["seed"] == header["settings"]["seed"]
    assert "bayes_risk" not in facts  # Not measured.
    table = ok("info", "a.estimator")
    for words in ("linear-gaussian", "windows", str(N_STEPS), "a, b, q, r"):
        assert words in table


def test_info_tells_the_measured_risk(lg, folder):
    estimator = gb.load(lg / "a.estimator")
    risk = {"mean": 0.123, "standard_error": 0.001, "n_draws": 20000, "per_parameter": {"a": 0.1}}
    gb.Estimator({**estimator.header, "bayes_risk": risk}, estimator.arrays).save("b.estimator")
    assert json.loads(ok("info", "b.estimator", "--json"))["bayes_risk"] == risk
    assert "0.123" in ok("info", "b.estimator")


def test_info_of_what_is_no_estimator_is_one_sentence(folder):
    (folder / "a.estimator").write_text("not one")
    assert "a.estimator" in refused("info", "a.estimator")
    assert "no estimator tanks" in refused("info", "tanks")


@pytest.mark.parametrize("command", ["train", "estimate", "info"])
def test_help_has_an_example(command):
    assert f"Example: greybayes {command}" in ok(command, "--help")
