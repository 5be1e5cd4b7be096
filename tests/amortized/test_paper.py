"""Training as the paper does it, on a set so small that it takes a second."""

import functools
import itertools
import json
import math

import jax.numpy as jnp
import numpy as np
import pytest
from helpers.commands import ok, run
from helpers.tiny import N_STEPS, NEVER, assert_same_weights, records_of, run_killed, stop_at

import greybayes as gb
from greybayes.amortized import loop, paper
from greybayes.amortized.dataset import split_by_theta
from greybayes.amortized.paper import PaperSettings, make_steps, rate
from greybayes.amortized.store import read_file, write_file
from greybayes.amortized.training import Architecture, Experiment, make_weights
from greybayes.errors import EstimatorError
from greybayes.inputs import from_dict

SETTINGS = {
    "n_thetas": 16,
    "n_paths": 4,
    "batch": 12,
    "epochs": 12,
    # Far too fast, and without decay: the validation loss goes up and down.
    "learning_rate": 0.3,
    "decay": 1.0,
    "sizes": {"width": 4, "depth": 1, "dense": 4},
    "devices": 1,
}
# The same settings for the command line.
OPTIONS = [
    *("--preset", "paper", "--length", N_STEPS, "--set", "n_thetas=16", "--set", "n_paths=4"),
    *("--set", "batch=12", "--set", "epochs=12", "--set", "learning_rate=0.3"),
    *("--set", "decay=1.0", "--set", "width=4", "--set", "depth=1", "--set", "dense=4"),
    *("--set", "devices=1"),
]
# A rate so small that every change is below 1 %: watched after epoch 5, 3 in a row.
STANDING_STILL = {"learning_rate": 1e-7, "epochs": 30, "watch_after": 5}


def train(checkpoint=None, watch=None, **changes):
    return gb.train(
        "linear-gaussian",
        preset="paper",
        n_steps=N_STEPS,
        settings={**SETTINGS, **changes},
        checkpoint=checkpoint,
        watch=watch,
    )


@pytest.fixture(scope="module")
def trained(compiled):
    return train()


@pytest.fixture(scope="module")
def stopped(compiled):
    return train(**STANDING_STILL)


def validation_losses(estimator):
    return [entry["validation_loss"] for entry in estimator.header["history"]]


def test_a_run_from_end_to_end(trained, tmp_path):
    assert [entry["epoch"] for entry in trained.header["history"]] == list(range(1, 13))
    assert all(math.isfinite(entry["training_loss"]) for entry in trained.header["history"])
    assert trained.header["architecture"]["head"] == "paper"
    records = records_of(trained)
    again = gb.load(trained.save(tmp_path / "paper.estimator"))
    for ours, theirs in zip(trained.estimate(records), again.estimate(records), strict=True):
        np.testing.assert_array_equal(ours.mean, theirs.mean)
    assert (again.means(np.stack([r.y for r in records]).astype(np.float32))[:, 2:] >= 0).all()


def test_the_best_validation_weights_are_kept(trained):
    losses = validation_losses(trained)
    best = int(np.argmin(losses))
    assert best < len(losses) - 1, "the last epoch is the best: nothing would be tested"
    # With no decay, a run that ends at the best epoch passes through the same weights.
    shorter = train(epochs=best + 1)
    assert validation_losses(shorter) == losses[: best + 1]
    assert_same_weights(trained, shorter)


def test_the_last_weights_are_kept_where_they_are_the_best(trained):
    first = train(epochs=1)
    assert validation_losses(first) == validation_losses(trained)[:1]
    # They are not those of the start, which were the best before.
    architecture = Architecture(**first.header["architecture"])
    model = gb.get_model("linear-gaussian")
    assert model.design is not None
    start = make_weights(Experiment(model, model.design, N_STEPS), architecture, 0)
    before, after = (each.network.layers[0].inputs[0] for each in (start, first.weights))
    assert not np.array_equal(before, after)


def test_a_network_that_reads_u_is_trained_with_the_input_that_it_is_used_with():
    estimator = train(network="windows", sizes={"width": 8, "dense": 8}, epochs=2)
    history = estimator.header["history"]
    design = from_dict(estimator.header["input"])
    sizes = SETTINGS["n_thetas"], SETTINGS["n_paths"]
    paths = gb.offline_set("linear-gaussian", *sizes, inputs=design, n_steps=N_STEPS, key=0)
    rows = split_by_theta(paths, SETTINGS["n_paths"], 0.75, 0).validation
    # The validation loss that was told is the one with that input.
    network, head = estimator.weights.network, estimator.weights.head
    summary = network.summarise(estimator.scaling.channels(jnp, paths.y[rows], estimator.input))
    loss = float(head.loss(summary, jnp.asarray(paths.theta[rows])).mean())
    assert loss == pytest.approx(min(each["validation_loss"] for each in history), rel=1e-4)
    with pytest.raises(EstimatorError, match="knows one input for all records"):
        gb.train("fir", preset="paper", inputs="prbs", network="windows")


def test_a_model_with_a_random_design_is_trained_for_one_of_its_signals():
    few = {**SETTINGS, "epochs": 1}
    estimator = gb.train("fir", preset="paper", n_steps=N_STEPS, settings=few)
    assert estimator.input is not None
    record = gb.simulate("fir", inputs=estimator.input, n_steps=N_STEPS, key=1)[0]
    assert estimator.estimate(record).mean.shape == (2,)


@pytest.mark.parametrize("name", ["batch", "decays", "epochs", "n_paths", "devices"])
def test_a_setting_that_is_no_whole_number_is_one_sentence(name):
    with pytest.raises(EstimatorError, match=f"{name} is 0, expected a whole number"):
        PaperSettings(**{name: 0})


def test_early_stopping_ends_the_run(stopped):
    assert len(stopped.header["history"]) == 8


def test_a_loss_that_is_not_finite_stops_with_a_sentence():
    with pytest.raises(EstimatorError, match=r"lost its way in epoch 1.*lower learning_rate"):
        train(learning_rate=1e38)


@pytest.mark.parametrize("decays", [3, 6])
def test_the_learning_rate_falls_by_a_tenth_with_every_third_or_sixth(decays):
    settings = PaperSettings(epochs=600, decays=decays, learning_rate=1e-3)
    schedule = rate(settings, batches=7)
    epochs = np.array([0, 99, 100, 101, 199, 200, 201, 399, 400, 599])
    expected = 1e-3 * 0.9 ** (epochs // (600 // decays))
    np.testing.assert_allclose([schedule(7 * int(e)) for e in epochs], expected, rtol=1e-5)
    # A staircase: it stays within an epoch.
    last = 7 * (600 // decays) - 1
    np.testing.assert_allclose([schedule(last), schedule(last + 1)], [1e-3, 9e-4], rtol=1e-5)


def test_the_defaults_are_the_papers():
    settings = PaperSettings()
    assert settings.sizes == {"width": 40, "depth": 2, "dense": 32}
    assert (settings.network, settings.head) == ("gru", "paper")
    assert (settings.batch, settings.epochs, settings.learning_rate) == (128, 3000, 1e-3)
    assert (settings.decay, settings.decays, settings.training_share) == (0.9, 3, 0.75)
    assert (settings.patience, settings.tolerance, settings.watch_after) == (3, 0.01, 100)


@pytest.mark.parametrize(
    ("model", "network", "sizes", "learning_rate"),
    [
        ("growth1", "gru", {"width": 30, "depth": 2, "dense": 32}, 1e-3),
        ("growth1", "lstm", {"width": 60, "depth": 1, "dense": 40}, 1e-3),
        ("coupled-drives", "gru", {"width": 40, "depth": 2, "dense": 32}, 5e-4),
    ],
)
def test_each_model_of_the_paper_has_its_own(model, network, sizes, learning_rate):
    few = {"n_thetas": 4, "n_paths": 4, "batch": 8, "epochs": 1, "n_reference": 64}
    signal = {"inputs": "prbs"} if model == "coupled-drives" else {}
    found = gb.train(model, preset="paper", n_steps=4, network=network, settings=few, **signal)
    told = found.header["settings"]
    assert (told["sizes"], told["learning_rate"]) == (sizes, learning_rate)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_thetas": 1}, "P is 1, expected 2 or more"),
        ({"batch": 1000}, "do not fill a batch of 1000; raise n_thetas or n_paths"),
        ({"steps": 10}, "there is no setting steps"),
        ({"learning_rate": -1.0}, "learning_rate is -1.0"),
        ({"training_share": 1.0}, "training_share is 1.0, .* more than 0 and less than 1"),
    ],
)
def test_settings_that_cannot_be_are_a_sentence(changes, words):
    with pytest.raises(EstimatorError, match=words):
        train(**changes)


@pytest.mark.parametrize(
    "given", [{"minutes": 1.0}, {"steps": 10}, {"network": lambda c: c.mean(0)}]
)
def test_what_paper_mode_does_not_know_is_refused_and_not_ignored(given):
    with pytest.raises(EstimatorError, match="paper"):
        gb.train("linear-gaussian", preset="paper", n_steps=N_STEPS, settings=SETTINGS, **given)


def test_an_estimate_outside_the_prior_is_printed_and_said_not_to_be_checked(trained, tmp_path):
    """The paper's networks have a linear output, which knows no bounds."""
    bias = "head.out.bias"
    arrays = {**trained.arrays, bias: trained.arrays[bias] + 10}
    gb.Estimator(trained.header, arrays).save(tmp_path / "a.estimator")
    (record,) = records_of(trained, 1)
    gb.write_records(tmp_path / "a.csv", record)
    files = tmp_path / "a.estimator", tmp_path / "a.csv", "--validate", tmp_path / "a.csv"
    result = run("estimate", *files, "--check")
    assert result.exit_code == 0
    assert "│ a " in result.stdout
    assert "not computed: " in result.stderr
    assert result.stderr.count("outside the support") == 2  # The record, and that to validate with.
    (told,) = json.loads(ok("estimate", *files, "--check", "--json"))["records"]
    assert "outside the support of its prior" in told["not_computed"][0]
    assert "check" not in told


def test_info_tells_epochs(trained, tmp_path):
    trained.save(tmp_path / "a.estimator")
    facts = json.loads(ok("info", tmp_path / "a.estimator", "--json"))
    assert facts["epochs"] == 12
    assert "steps" not in facts


# Killed, interrupted, resumed.


def assert_same_run(ours, theirs):
    assert_same_weights(ours, theirs)
    assert ours.header["history"] == theirs.header["history"]
    assert ours.header["settings"] == theirs.header["settings"]


def epochs_of(checkpoint):
    header, _ = read_file(checkpoint)
    assert header["kind"] == "checkpoint"
    return len(header["history"])


@pytest.mark.parametrize("which", ["first", "best"])
def test_an_interrupt_saves_and_goes_on_to_the_same_run(trained, tmp_path, which):
    # After the best epoch, no later one must take its place.
    number = 1 if which == "first" else int(np.argmin(validation_losses(trained))) + 1
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "a.partial", stop_at(number))
    assert epochs_of(tmp_path / "a.partial") == number
    seen = []
    assert_same_run(gb.resume(tmp_path / "a.partial", watch=seen.append), trained)
    assert [progress.step for progress in seen] == list(range(number + 1, 13))


def test_an_interrupt_within_an_epoch_goes_on_from_its_start(trained, tmp_path, monkeypatch):
    calls = itertools.count(1)

    def interrupted(*given):
        steps = make_steps(*given)

        def counted(*batches):
            # Two blocks of two batches to an epoch: this is the second of the fourth.
            if next(calls) == 8:
                raise KeyboardInterrupt
            return steps(*batches)

        return counted

    with monkeypatch.context() as patch:
        patch.setattr(paper, "BLOCK", 2)
        patch.setattr(paper, "make_steps", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "a.partial")
    assert epochs_of(tmp_path / "a.partial") == 3
    assert_same_run(gb.resume(tmp_path / "a.partial"), trained)


@pytest.mark.parametrize("number", [5, 7])
def test_interrupted_before_it_stops_early_it_stops_at_the_same_epoch(stopped, tmp_path, number):
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "a.partial", stop_at(number), **STANDING_STILL)
    assert_same_run(gb.resume(tmp_path / "a.partial"), stopped)


@pytest.mark.parametrize(
    ("whole", "changes", "last"), [("stopped", STANDING_STILL, 8), ("trained", {}, 12)]
)
def test_what_was_at_its_end_ends_at_once(request, tmp_path, whole, changes, last):
    """Stopped early, or after all its epochs; the best weights are in the checkpoint too."""
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "a.partial", stop_at(last), **changes)
    seen = []
    resumed = gb.resume(tmp_path / "a.partial", watch=seen.append)
    assert not seen
    assert_same_run(resumed, request.getfixturevalue(whole))


@pytest.mark.accuracy
def test_killed_it_goes_on_to_the_same_run(trained, tmp_path, compiled):
    partial = tmp_path / "a.estimator.partial"
    killed = functools.partial(run_killed, environment=compiled, folder=tmp_path)
    # A checkpoint before every epoch; while the fifth is written, the fourth counts.
    killed(NEVER, 5, 0, "train", "linear-gaussian", *OPTIONS, "-o", "a.estimator")
    assert epochs_of(partial) == 3
    # After epoch 9, before it is saved.
    killed(9, NEVER, 0, "train", "--resume", partial)
    assert epochs_of(partial) == 8
    ok("train", "--resume", partial)
    assert_same_run(gb.load(tmp_path / "a.estimator"), trained)
    assert not partial.exists()


def test_a_checkpoint_is_written_every_so_many_seconds(tmp_path, monkeypatch):
    saved = []
    for seconds in (0.0, 1e9):
        monkeypatch.setattr(loop, "EVERY_SECONDS", seconds)
        train(tmp_path / "a.partial", epochs=3)
        saved.append(epochs_of(tmp_path / "a.partial"))
    assert saved == [2, 0]


def test_a_checkpoint_of_more_cores_is_not_taken_up(tmp_path):
    train(tmp_path / "a.partial", epochs=1)
    header, arrays = read_file(tmp_path / "a.partial")
    header["settings"]["devices"] = 2
    write_file(tmp_path / "a.partial", header, arrays)
    with pytest.raises(EstimatorError, match="devices is 2, here are 1 cores"):
        gb.resume(tmp_path / "a.partial")


def test_a_checkpoint_of_another_network_is_not_taken_up(tmp_path):
    train(tmp_path / "a.partial", epochs=1)
    header, arrays = read_file(tmp_path / "a.partial")
    header["settings"]["sizes"]["width"] = 5
    write_file(tmp_path / "a.partial", header, arrays)
    with pytest.raises(EstimatorError, match="not that of a training of this network"):
        gb.resume(tmp_path / "a.partial")
