"""Tuning: every combination once, or a search that learns; a stopped one goes on."""

import json
import sqlite3

import numpy as np
import numpyro.distributions as dist
import optuna
import pytest
from helpers.commands import ok, refused
from helpers.tiny import N_STEPS, SETTINGS

import greybayes as gb
from greybayes.amortized import study as study_module
from greybayes.amortized import tuning
from greybayes.amortized.estimator import Estimator
from greybayes.amortized.study import Range
from greybayes.amortized.trainer import experiment_of, holds
from greybayes.amortized.tuning import tune
from greybayes.errors import GreybayesError
from greybayes.zoo.linear_gaussian import LinearGaussian

FIXED = {**SETTINGS, "sizes": {"depth": 1, "dense": 8}}


def tuned(study, vary, **changes):
    """A search over tiny trainings."""
    given = {"steps": 10, "n_steps": N_STEPS, "settings": FIXED, **changes}
    return tune(LinearGaussian(), vary, study=study, **given)


def test_a_grid_tries_each_combination_once_and_lists_the_best_first(tmp_path):
    heard = []
    found = tuned(
        tmp_path / "a.sqlite",
        {"width": (4,), "learning_rate": (1e-6, 1e-2)},
        watch=lambda number, of, progress: heard.append((number, of)),
    )
    assert {tuple(t.settings.values()) for t in found} == {
        (4, 1e-6),
        (4, 1e-2),
    }
    values = [trial.value for trial in found]
    assert values == sorted(values)
    # A network that hardly moves is no better than the prior mean.
    assert found[0].settings["learning_rate"] == 1e-2
    assert {of for _, of in heard} == {2}
    assert {number for number, _ in heard} == {1, 2}
    # The value is the validation risk of the same training.
    best = found[0]
    again = gb.train(
        LinearGaussian(),
        steps=10,
        n_steps=N_STEPS,
        settings={
            **FIXED,
            "learning_rate": best.settings["learning_rate"],
            "sizes": {**FIXED["sizes"], "width": best.settings["width"]},
        },
    )
    assert again.header["history"][-1]["validation_risk"] == pytest.approx(best.value)
    # All is there: a second call trains nothing.
    silent = []
    assert (
        tuned(
            tmp_path / "a.sqlite",
            {"width": (4,), "learning_rate": (1e-6, 1e-2)},
            watch=lambda *told: silent.append(told),
        )
        == found
    )
    assert not silent


@pytest.mark.parametrize("cell", [1, pytest.param(2, marks=pytest.mark.accuracy)])
def test_a_stopped_search_goes_on_with_the_trial_it_was_at(tmp_path, cell):
    def stop(number, of, progress):
        if number == cell:
            raise KeyboardInterrupt

    vary = {"width": (4, 8)}
    with pytest.raises(KeyboardInterrupt):
        tuned(tmp_path / "a.sqlite", vary, watch=stop)
    found = tuned(tmp_path / "a.sqlite", vary)
    assert sorted(t.settings["width"] for t in found if t.state == "complete") == [4, 8]
    assert [t.state for t in found] == ["complete", "complete", "fail"]


PAPER = {
    **{"network": "gru", "n_thetas": 8, "n_paths": 4, "batch": 8, "epochs": 40, "devices": 1},
    **{"n_reference": 64, "sizes": {"depth": 1, "dense": 3}},
}


@pytest.mark.parametrize(
    "given",
    [{"steps": 40}, {"preset": "paper", "steps": None, "settings": PAPER}],
    ids=["default", "paper"],
)
def test_a_stopped_trial_goes_on_from_where_it_was(tmp_path, given):
    vary, steps = {"width": (4,)}, []
    whole = tuned(tmp_path / "whole.sqlite", vary, **given)

    def stop(number, of, progress):
        if progress.step == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tuned(tmp_path / "a.sqlite", vary, **given, watch=stop)
    found = tuned(tmp_path / "a.sqlite", vary, **given, watch=lambda n, of, p: steps.append(p.step))
    # A step of the default mode is heard of once in a block of ten.
    assert steps[0] in (20, 21, 30)
    assert found[0].value == whole[0].value
    assert not list(tmp_path.glob("*.partial"))


def test_a_search_that_is_stopped_twice_goes_on_with_the_second_trial(tmp_path):
    """And does not train another one over its checkpoint."""
    vary, steps = {"seed": (4, 5, 6)}, []

    def stop_in(trial):
        def stop(number, of, progress):
            if (number, progress.step) == (trial, 20):
                raise KeyboardInterrupt

        return stop

    for trial in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            tuned(tmp_path / "a.sqlite", vary, steps=40, watch=stop_in(trial))
    tuned(tmp_path / "a.sqlite", vary, steps=40, watch=lambda n, of, p: steps.append((n, p.step)))
    assert steps[0] == (2, 30)
    assert {number for number, _ in steps} == {2, 3}


def test_what_waits_in_the_queue_comes_after_a_trial_that_was_interrupted(tmp_path):
    vary, seen = {"seed": (4, 5, 6)}, []

    def stop(number, of, progress):
        if progress.step == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tuned(tmp_path / "a.sqlite", vary, steps=40, watch=stop)
    url = f"sqlite:///{tmp_path / 'a.sqlite'}"
    study = optuna.load_study(study_name=optuna.get_all_study_names(url)[0], storage=url)
    (first,) = study.get_trials()
    other = next(seed for seed in vary["seed"] if seed != first.params["seed"])
    study.enqueue_trial({"seed": other})
    found = tuned(tmp_path / "a.sqlite", vary, steps=40, watch=lambda *told: seen.append(told))
    assert seen[0][2].step == 30  # Not from the first step: its checkpoint was gone on with.
    done = [t for t in sorted(found, key=lambda t: t.number) if t.state == "complete"]
    assert [t.settings["seed"] for t in done][:2] == [first.params["seed"], other]
    assert sorted(t.settings["seed"] for t in done) == [4, 5, 6]


def test_a_stopped_trial_goes_on_where_the_paper_has_sizes_of_its_own_for_the_model(tmp_path):
    steps = []
    settings = {name: value for name, value in PAPER.items() if name != "sizes"}
    given = {"preset": "paper", "n_steps": 4, "settings": settings, "study": tmp_path / "a.sqlite"}

    def stop(number, of, progress):
        if progress.step == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune("growth1", {"width": (4,)}, **given, watch=stop)
    tune("growth1", {"width": (4,)}, **given, watch=lambda n, of, p: steps.append((n, p.step)))
    # The stopped one does not count.
    assert steps[0] in ((1, 20), (1, 21))


def test_steps_may_vary(tmp_path):
    found = tuned(tmp_path / "a.sqlite", {"steps": (10, 20)}, steps=None)
    assert sorted(trial.settings["steps"] for trial in found) == [10, 20]
    assert all(trial.state == "complete" for trial in found)


@pytest.mark.parametrize(
    ("vary", "given", "words"),
    [
        ({"width": (4,)}, {"steps": 0}, "steps is 0, expected a whole number"),
        ({"steps": (10,)}, {"steps": 20}, "steps is given twice, 20 and 10"),
        ({"steps": (10,)}, {"steps": None, "minutes": 1.0}, "minutes or steps, not both"),
        ({"seed": (1, 2)}, {"seed": 5}, "seed is given twice, 5 and 1"),
        ({"width": (True,)}, {}, "width cannot be True"),
    ],
)
def test_what_is_said_twice_is_refused_before_anything_is_written(tmp_path, vary, given, words):
    with pytest.raises(GreybayesError, match=words):
        tuned(tmp_path / "a.sqlite", vary, **given)
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_that_cannot_be_gone_on_with_is_no_failure(tmp_path):
    vary, steps = {"width": (4,)}, []
    (tmp_path / "a.sqlite.partial").write_bytes(b"no checkpoint")
    assert tuned(tmp_path / "a.sqlite", vary)[0].state == "complete"

    def stop(number, of, progress):
        raise KeyboardInterrupt

    # Another model's, in the same file.
    with pytest.raises(KeyboardInterrupt):
        tune("fir", vary, study=tmp_path / "a.sqlite", steps=20, settings=FIXED, watch=stop)
    assert list(tmp_path.glob("*.partial"))
    found = tune(
        *(LinearGaussian(), vary),
        **{"study": tmp_path / "a.sqlite", "name": "another", "steps": 20, "settings": FIXED},
        n_steps=N_STEPS,
        watch=lambda n, of, p: steps.append(p.step),
    )
    assert (found[0].state, steps[0]) == ("complete", 10)


@pytest.mark.accuracy
def test_settings_that_cannot_be_trained_with_are_a_result(tmp_path):
    vary = {"learning_rate": (1e-2, 1e30)}
    found = tuned(tmp_path / "a.sqlite", vary)
    assert [trial.settings["learning_rate"] for trial in found] == [1e-2, 1e30]
    assert "training lost its way" in found[1].error
    assert tuned(tmp_path / "a.sqlite", vary) == found


@pytest.mark.accuracy
def test_tpe_takes_ranges_and_as_many_trials_as_asked(tmp_path):
    found = tuned(
        tmp_path / "a.sqlite", {"learning_rate": Range(1e-4, 1e-2)}, search="tpe", trials=2
    )
    assert len(found) == 2
    assert all(1e-4 <= trial.settings["learning_rate"] <= 1e-2 for trial in found)


@pytest.mark.parametrize(
    ("vary", "changes", "words"),
    [
        ({"width": (4,)}, {"search": "random"}, "grid or tpe"),
        ({}, {}, "nothing to vary"),
        ({"width": Range(4, 8)}, {}, "a range is for tpe"),
        ({"wdith": (4,)}, {}, "no setting wdith; did you mean width"),
        ({"learning_rat": (1e-3, 1e-2)}, {}, "no setting learning_rat; did you mean learning_rate"),
        ({"width": ("abc",)}, {}, "width cannot be 'abc'"),
        ({"width": (4.5,)}, {}, "width cannot be 4.5"),
        ({"width": (0,)}, {}, "width is 0"),
        ({"batch": ("abc",)}, {}, "batch cannot be 'abc'"),
        ({"head": ("foo",)}, {}, "no head foo"),
        ({"learning_rate": Range(1e-3, float("inf"))}, {"search": "tpe"}, "cannot be inf"),
        ({"sizes": (3,)}, {}, "sizes has no choices"),
        ({"width": (4,)}, {"settings": {"foo": 1}}, "no setting foo"),
        ({"width": (4,)}, {"preset": "papr"}, "no preset papr"),
        ({"width": (4,)}, {"preset": "paper"}, "it takes no minutes, steps"),
        ({"width": (4,)}, {"minutes": -1.0, "steps": None}, "minutes is -1.0"),
    ],
)
def test_what_cannot_be_is_refused_before_a_file_is_made(tmp_path, vary, changes, words):
    with pytest.raises(GreybayesError, match=words):
        tuned(tmp_path / "a.sqlite", vary, **changes)
    assert not list(tmp_path.iterdir())


def fake(monkeypatch, stop_at=None):
    """Trainings that cost nothing; what they were asked for."""
    asked = []

    def train(model, *, settings, **rest):
        if len(asked) == stop_at:
            raise KeyboardInterrupt
        asked.append(settings["sizes"]["width"])
        history = [{"validation_risk": 1.0 / asked[-1]}]
        return Estimator({"history": history, "seconds": 1.0}, {})

    monkeypatch.setattr(tuning, "train", train)
    return asked


@pytest.mark.parametrize("moment", ["before a setting", "between two", "in the training"])
def test_a_grid_that_was_stopped_tries_what_is_left_and_no_more(tmp_path, monkeypatch, moment):
    vary = {"width": (4, 8), "depth": (1, 2)}
    suggested, calls = study_module.suggested, []

    def interrupted(trial, name, choices):
        calls.append(name)
        if len(calls) == {"before a setting": 3, "between two": 4}.get(moment):
            raise KeyboardInterrupt
        return suggested(trial, name, choices)

    with monkeypatch.context() as patch:
        before = fake(patch, 1)
        patch.setattr(tuning, "suggested", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tuned(tmp_path / "a.sqlite", vary)
    after = fake(monkeypatch)
    found = tuned(tmp_path / "a.sqlite", vary)
    assert sorted(before + after) == [4, 4, 8, 8]
    assert len({tuple(t.settings.values()) for t in found if t.state == "complete"}) == 4


def test_one_process_at_a_time_works_at_a_study(tmp_path, monkeypatch):
    fake(monkeypatch)
    refusals = []

    def meanwhile(trials):
        with pytest.raises(GreybayesError, match="is in use: wait for the other process"):
            tuned(tmp_path / "a.sqlite", {"width": (4,)})
        refusals.append(len(trials))

    found = tuned(tmp_path / "a.sqlite", {"width": (4,)}, after=meanwhile)
    assert refusals == [0, 1]
    assert [trial.state for trial in found] == ["complete"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.sqlite"]


def test_a_study_is_of_one_model_prior_and_length(tmp_path, monkeypatch):
    fake(monkeypatch)
    vary, study = {"width": (4,)}, tmp_path / "a.sqlite"
    tuned(study, vary)
    with pytest.raises(GreybayesError, match="a search with other length; name another file"):
        tuned(study, vary, n_steps=N_STEPS + 1)
    other = LinearGaussian().free(a=dist.Uniform(0.1, 0.2))
    with pytest.raises(GreybayesError, match="a search with other model, prior; name another"):
        tune(other, vary, study=study, steps=10, n_steps=N_STEPS, settings=FIXED)


def test_a_checkpoint_of_another_length_is_not_gone_on_with(tmp_path):
    def stop(progress):
        raise KeyboardInterrupt

    plant, partial = LinearGaussian(), tmp_path / "a.partial"
    given = {"steps": 20, "n_steps": N_STEPS, "settings": FIXED}
    with pytest.raises(KeyboardInterrupt):
        gb.train(plant, **given, checkpoint=partial, watch=stop)
    for length, held in ((N_STEPS, True), (N_STEPS + 1, False)):
        assert holds(partial, experiment_of(plant, None, length, 0), "default", {}) is held
    ramp = np.linspace(0.0, 1.0, N_STEPS, dtype=np.float32)[:, None]
    assert not holds(partial, experiment_of(plant, ramp, None, 0), "default", {})


def test_another_file_is_no_study(tmp_path):
    (tmp_path / "a.sqlite").write_text("no database" * 100)
    with pytest.raises(GreybayesError, match="cannot be opened as a study"):
        tuned(tmp_path / "a.sqlite", {"width": (4,)})


def test_another_search_does_not_go_into_the_same_study(tmp_path):
    tuned(tmp_path / "a.sqlite", {"width": (4,)})
    with pytest.raises(GreybayesError, match="with other vary; name another file"):
        tuned(tmp_path / "a.sqlite", {"width": (4, 8)})
    with pytest.raises(GreybayesError, match="with other steps, seed; name another file"):
        tuned(tmp_path / "a.sqlite", {"width": (4,)}, steps=30, seed=7)


def test_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    few = [*("--steps", 10), *("--set", "batch=8"), *("--set", "chunk=4")]
    few += [*("--set", "n_validation=50"), *("--set", "n_reference=50"), *("--set", "depth=1")]
    given = ("tune", "linear-gaussian", "--vary", "width=4,8", *few)
    printed = ok(*given)
    assert "Train with the best: greybayes train linear-gaussian --set batch=8" in printed
    trials = json.loads(ok(*given, "--json"))["trials"]
    assert sorted(trial["settings"]["width"] for trial in trials) == [4, 8]
    assert sqlite3.connect("tune.sqlite").execute("select count(*) from trials").fetchone() == (2,)
    assert "NAME=A,B" in refused("tune", "linear-gaussian", "--vary", "width")
    assert "LOW..HIGH" in refused("tune", "linear-gaussian", "--vary", "width=9..3")
    # What the trainings are for may be told, as in train.
    given = ("tune", "linear-gaussian", "--vary", "width=4", *few, "--study", "other.sqlite")
    signal = ("--input", "prbs", "--length", 30)
    assert "greybayes train linear-gaussian --input prbs --length 30 --set" in ok(*given, *signal)
    words = refused(*given)
    assert "a search with other inputs, length; name another file" in words
    twice = ("--vary", "width=4", "--vary", "width=8")
    assert "width twice" in refused("tune", "linear-gaussian", *twice)
    both = ("--vary", "depth=1,2", "--set", "depth=1")
    assert "depth is both varied and set" in refused("tune", "linear-gaussian", *both)
