"""The paper's fixed set: its split, its epochs, and early stopping against hand-worked losses."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

import greybayes as gb
from greybayes.amortized.dataset import EarlyStopping, epoch, split_by_theta


def paths(n_thetas, n_paths, diverged=()):
    """P thetas with M paths each, of which only the number and the diverged ones matter here."""
    count = n_thetas * n_paths
    mask = np.zeros(count, bool)
    mask[list(diverged)] = True
    empty = np.zeros((count, 1, 1), np.float32)
    return gb.Paths(gb.get_model("fir"), empty[:, 0], None, empty, empty, mask)


# The split.


@pytest.mark.parametrize(("n_thetas", "n_training"), [(2, 1), (4, 3), (100, 75), (500, 375)])
def test_three_quarters_of_the_thetas_train_and_none_is_on_both_sides(n_thetas, n_training):
    split = split_by_theta(paths(n_thetas, 7), 7, 0.75, seed=0)
    ours, theirs = set(split.training // 7), set(split.validation // 7)
    assert len(ours) == n_training
    assert not ours & theirs
    rows = np.concatenate([split.training, split.validation])
    np.testing.assert_array_equal(np.sort(rows), np.arange(7 * n_thetas))


def test_the_split_is_drawn_by_its_seed():
    first, again, other = (split_by_theta(paths(40, 2), 2, 0.75, s) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.training, again.training)
    assert set(first.training) != set(other.training)
    # Drawn, not cut: the first thetas of the set are on both sides.
    assert set(first.training // 2) != set(range(30))


def test_diverged_paths_are_on_neither_side():
    diverged = {0, 13, 14, 15, 39}
    split = split_by_theta(paths(20, 2, diverged), 2, 0.75, seed=0)
    rows = np.concatenate([split.training, split.validation])
    assert set(rows) == set(range(40)) - diverged


# Epochs.


@pytest.mark.parametrize(("n_rows", "batch"), [(12, 4), (14, 4), (5, 5), (128, 128)])
def test_an_epoch_takes_every_row_once_but_for_a_batch_that_is_not_whole(n_rows, batch):
    rows = np.arange(100, 100 + n_rows)
    batches = list(epoch(rows, batch, seed=0, number=1))
    assert [len(b) for b in batches] == [batch] * (n_rows // batch)
    seen = np.concatenate(batches)
    assert len(set(seen)) == len(seen)
    assert set(seen) <= set(rows)


def test_every_epoch_has_an_order_of_its_own_and_the_same_again():
    def order(number, seed=0):
        return np.concatenate(list(epoch(np.arange(64), 8, seed, number))).tolist()

    assert order(1) == order(1)
    assert len({tuple(o) for o in (order(1), order(2), order(1, seed=1), list(range(64)))}) == 4


def test_rows_left_out_of_one_epoch_come_in_others():
    seen = {row for n in range(1, 30) for b in epoch(np.arange(10), 4, 0, n) for row in b}
    assert seen == set(range(10))


# Early stopping. Epochs count from 1; tolerance 1 %, patience 3.

STOPPING = [
    # The changes, in %: inf, 50, 0.2, 0.2, 0.2.
    ("three in a row", [1.0, 0.5, 0.499, 0.498, 0.497, 0.2], 0, 5),
    ("two in a row do not do", [1.0, 0.5, 0.499, 0.498, 0.4, 0.3], 0, None),
    ("a large one in between starts anew", [1.0, 0.5, 0.499, 0.498, 0.4, 0.399, 0.398], 0, None),
    ("and then three", [1.0, 0.5, 0.499, 0.498, 0.4, 0.399, 0.398, 0.397], 0, 8),
    ("rises count like falls", [1.0, 1.005, 1.0, 1.005], 0, 4),
    ("a slow steady fall stops too", [1.0, 0.995, 0.990025, 0.985074875], 0, 4),
    ("exactly the tolerance is not less than it", [100.0, 99.0, 98.01, 97.0299], 0, None),
    # Against the one before, not the first: 0.9 % of 50 is 0.45.
    ("relative to the one before", [100.0, 50.0, 50.6, 51.2, 51.8, 52.4], 0, None),
    ("relative and small", [100.0, 50.0, 50.4, 50.8, 51.2], 0, 5),
    ("a constant loss", [2.0, 2.0, 2.0, 2.0], 0, 4),
    ("after epoch 2 only", [2.0] * 8, 2, 5),
    ("the first epoch has nothing before it", [2.0, 2.0, 2.0], 0, None),
    ("infinite at first", [math.inf, 2.0, 2.0, 2.0, 2.0], 0, 5),
    ("infinite in between", [2.0, 2.0, 2.0, math.inf, math.inf, 2.0, 2.0, 2.0], 0, None),
    ("not a number", [2.0, 2.0, 2.0, math.nan, 2.0, 2.0, 2.0, 2.0], 0, 8),
    ("watched after epoch 100", [2.0] * 200, 100, 103),
    ("falling until 101", [2.0 * 0.9 ** min(n, 101) for n in range(1, 201)], 100, 104),
]


def stop_epoch(stopping, losses):
    """The epoch after which it stops."""
    return next((n for n, loss in enumerate(losses, 1) if stopping.update(n, loss)), None)


@pytest.mark.parametrize(
    ("losses", "after", "expected"), [c[1:] for c in STOPPING], ids=[c[0] for c in STOPPING]
)
def test_stops_after_three_small_changes_in_a_row(losses, after, expected):
    assert stop_epoch(EarlyStopping(after=after), losses) == expected


@pytest.mark.parametrize(("patience", "expected"), [(1, 2), (2, 3), (5, 6)])
def test_patience_is_the_number_of_small_changes(patience, expected):
    assert stop_epoch(EarlyStopping(patience=patience, after=0), [1.0] * 9) == expected


def test_the_defaults_are_the_papers():
    stopping = EarlyStopping()
    assert (stopping.patience, stopping.tolerance, stopping.after) == (3, 0.01, 100)


def printed(losses, patience=3, tolerance=0.01):
    """The algorithm of Appendix B as it is printed, line by line: the epoch at which it ends."""
    i, j, flag = 1, 1, False
    loss = {0: math.inf} | dict(enumerate(losses, 1))
    e_prev = i - 1
    while i <= len(losses):
        e_current = i
        change = np.float64(abs(loss[i] - loss[i - 1])) / np.float64(abs(loss[i - 1]))
        if change < tolerance and e_prev == e_current - 1:
            j = j + 1
            if j == patience:
                flag = True
            e_prev = e_current
        else:
            j, flag = 1, False
        i = i + 1
        if flag:
            return i - 1
    return None


@pytest.mark.parametrize("losses", [c[1] for c in STOPPING], ids=[c[0] for c in STOPPING])
def test_as_printed_it_never_stops(losses):
    with np.errstate(invalid="ignore"):
        assert printed(losses) is None


def test_what_keeps_the_printed_one_from_stopping_is_its_start():
    """With a finite loss before the first epoch it would: the transcription can stop."""

    def from_finite(losses):
        mended = printed.__globals__ | {"math": SimpleNamespace(inf=losses[0])}
        return type(printed)(printed.__code__, mended, "mended", printed.__defaults__)(losses)

    assert from_finite([2.0] * 8) == 2
