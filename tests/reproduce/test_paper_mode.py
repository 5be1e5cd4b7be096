"""The paper's networks in `reproduce`: a training of hours that is stopped goes on."""

import pytest

from greybayes.reproduce.journal import Journal
from greybayes.reproduce.paper_mode import paper_cell
from greybayes.reproduce.task import Data, Task

SETTINGS = {
    "n_thetas": 8,
    "n_paths": 4,
    "batch": 8,
    "epochs": 4,
    "sizes": {"width": 3, "depth": 1, "dense": 3},
    "devices": 1,
    "n_reference": 64,
}


def run(folder, tell=lambda what: None, **changes):
    """The cell of a network for linear-gaussian, with its weights."""
    task = Task(False, 1, Journal(folder / "a.json", {"size": "quick", "seed": 1}), Data(), tell)

    def judge(estimator):
        return {"weights": [float(a.sum()) for a in estimator.arrays.values()]}

    paper_cell(task, "GRU", "linear-gaussian", SETTINGS | changes, judge)
    cell = task.journal.cells["GRU"]
    assert cell["seconds"] >= cell["training_seconds"] > 0
    assert (cell["settings"]["batch"], cell["settings"]["seed"]) == (8, 1)
    return {key: cell[key] for key in ("weights", "P", "M", "epochs", "validation_loss")}


def stop_at(epoch):
    def tell(what):
        if f"epoch {epoch} of at most" in what:
            raise KeyboardInterrupt

    return tell


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(tmp_path_factory.mktemp("whole"))


def test_a_training_that_is_stopped_goes_on_from_its_checkpoint(whole, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, stop_at(2))
    assert list(tmp_path.glob("*.partial"))
    told = []
    assert run(tmp_path, told.append) == whole
    assert "GRU, epoch 3 of at most 4" in told[1]
    assert not list(tmp_path.glob("*.partial"))


def test_the_checkpoint_of_other_settings_is_not_gone_on_with(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, stop_at(2))
    told = []
    assert run(tmp_path, told.append, n_paths=5)["M"] == 5
    assert "epoch 1 of" in told[1]
