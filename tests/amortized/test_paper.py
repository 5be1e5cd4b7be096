"""Training as the paper does it, on a set so small that it takes a second."""

import math

import numpy as np
import pytest
from helpers.tiny import N_STEPS, assert_same_weights, records_of

import greybayes as gb
from greybayes.amortized.paper import PaperSettings, rate
from greybayes.errors import EstimatorError

SETTINGS = {
    "n_thetas": 16,
    "n_paths": 4,
    "batch": 12,
    "epochs": 12,
    # Far too fast, and without decay: the validation loss goes up and down.
    "learning_rate": 0.3,
    "decay": 1.0,
    "sizes": {"width": 4, "depth": 1, "dense": 4},
}


def train(**changes):
    return gb.train(
        "linear-gaussian", preset="paper", n_steps=N_STEPS, settings={**SETTINGS, **changes}
    )


@pytest.fixture(scope="module")
def trained(compiled):
    return train()


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
    np.testing.assert_array_equal(first.header["history"][0]["epoch"], 1)


def test_early_stopping_ends_the_run():
    """A rate so small that every change is below 1 %: watched after epoch 5, 3 in a row."""
    stopped = train(learning_rate=1e-7, epochs=30, watch_after=5)
    assert len(stopped.header["history"]) == 8


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
    ("changes", "words"),
    [
        ({"n_thetas": 1}, "P is 1, expected 2 or more"),
        ({"batch": 1000}, "do not fill a batch of 1000; raise P or M"),
        ({"steps": 10}, "there is no setting steps"),
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
