"""A file for a built-in model that has changed is refused, also by what does without JAX."""

import json

import numpy as np
import pytest
from helpers.commands import refused

from greybayes.amortized import built_in
from greybayes.amortized.estimator import PRETRAINED, SUFFIX, Estimator, load
from greybayes.errors import EstimatorError


def test_the_paths_in_the_file_are_those_of_the_models():
    kept, made = json.loads(built_in.PATHS.read_text()), built_in.paths()
    assert kept.keys() == made.keys()
    for name, path in made.items():
        # Within rounding of another machine.
        old = "run python -m greybayes.amortized.built_in"
        np.testing.assert_allclose(kept[name], path, rtol=1e-4, atol=1e-6, err_msg=old)


@pytest.mark.parametrize("name", sorted(path.stem for path in PRETRAINED.glob(f"*{SUFFIX}")))
def test_what_is_shipped_is_of_the_models_that_are_shipped(name):
    built_in.check_built_in(load(name).header)


def changed(header: dict, change) -> dict:
    header = json.loads(json.dumps(header))
    change(header)
    return header


def other_path(header):
    header["model"]["reference"][5][0] += 0.1


def other_prior(header):
    header["theta"][1]["prior"] = "Uniform(0, 3)"


def one_fewer(header):
    del header["theta"][-1]


def other_model(header):
    header["model"]["name"] = "growth1"


def no_path(header):
    header["model"]["reference"] = [["a"]]


CHANGES = {
    other_path: "growth2 no longer makes the path",
    other_prior: "theta6 differ",
    one_fewer: "theta8 differ",
    other_model: "other parameters or priors of growth1",
    no_path: "the estimator's path of growth2 is none",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_of_another_model_is_refused_when_it_is_read(tmp_path, change):
    shipped = load("growth2")
    path = tmp_path / "old.estimator"
    Estimator(changed(shipped.header, change), shipped.arrays).save(path)
    with pytest.raises(EstimatorError, match=CHANGES[change]):
        load(path)


@pytest.mark.parametrize("command", ["info", "estimate"])
def test_the_commands_refuse_it_with_a_sentence(tmp_path, command):
    shipped = load("growth2")
    path = tmp_path / "old.estimator"
    Estimator(changed(shipped.header, other_path), shipped.arrays).save(path)
    record = tmp_path / "record.csv"
    record.write_text("y,u\n1,2\n")
    files = [str(record)] if command == "estimate" else []
    assert "greybayes train growth2" in refused(command, str(path), *files)
