"""A header from elsewhere: whatever is missing or absurd in it is refused with one sentence."""

import json

import numpy as np
import pytest
from helpers.tiny import records_of, untrained

import greybayes as gb
from greybayes.amortized.header import check_checkpoint, check_header
from greybayes.amortized.store import write_file
from greybayes.errors import EstimatorError


@pytest.fixture(scope="module")
def estimator(compiled):
    return untrained("linear-gaussian")


@pytest.fixture
def header(estimator):
    """As a file holds it."""
    return json.loads(json.dumps(dict(estimator.header)))


def test_what_greybayes_wrote_passes(header):
    check_header(header, "a.estimator")


def test_every_field_is_needed_and_has_its_type(header):
    needed = [name for name in header if name != "kind"]
    assert len(needed) > 12
    for name in needed:
        without = {other: value for other, value in header.items() if other != name}
        for changed in (without, {**header, name: None}):
            with pytest.raises(EstimatorError, match=rf"a\.estimator .*{name} is missing"):
                check_header(changed, "a.estimator")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("model", "name"), 3),
        (("model", "reference"), None),
        (("input", "design"), None),
        (("architecture", "sizes", "window"), 10**9),
        (("architecture", "sizes", "pool"), 0),
        (("architecture", "sizes", "depth"), 2.5),
        (("architecture", "sizes", "levels"), True),
        (("scaling", "y_scale"), []),
        (("scaling", "u_offset"), ["0"]),
        (("theta", 0, "name"), None),
        (("theta", 0), "a"),
        (("outputs", 0), 1),
        (("history", 0), 1),
        (("n_steps",), 10**13),
        (("n_steps",), -1),
        (("n_steps",), True),
        (("seconds",), True),
        (("scaling", "y_heavy"), [0]),
        (("theta", 0, "line"), ["x"]),
        (("theta", 0, "line"), [0.0]),
        (("before",), "x"),
        (("before",), {"seconds": "long"}),
    ],
    ids=str,
)
def test_a_part_that_is_not_what_it_should_be(header, path, value):
    part = header
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    with pytest.raises(EstimatorError, match=path[0]):
        check_header(header, "a.estimator")


# No weight depends on pool and early: another one gives another network, and a valid one.
@pytest.mark.parametrize("size", ["window", "depth", "levels"])
def test_sizes_that_the_weights_do_not_have(estimator, header, tmp_path, size):
    """The checksum is right and the header is in order: somebody wrote it so."""
    header["architecture"]["sizes"][size] += 5
    file = tmp_path / "a.estimator"
    write_file(file, header, dict(estimator.arrays))
    loaded = gb.load(file)
    record = records_of(estimator, 1)[0]
    for engine in ("numpy", "jax"):
        with pytest.raises(EstimatorError):
            loaded.estimate(record, engine=engine)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_no_numbers(estimator, header, tmp_path, bad):
    arrays = dict(estimator.arrays)
    arrays["head.out.bias"] = np.full_like(arrays["head.out.bias"], bad)
    write_file(tmp_path / "a.estimator", header, arrays)
    with pytest.raises(EstimatorError, match="weights that are no numbers; train it anew"):
        gb.load(tmp_path / "a.estimator")


def test_a_checkpoint_needs_what_training_goes_on_with(header):
    checkpoint = {**header, "preset": "default"}
    check_checkpoint(checkpoint, "a.partial")
    for name in ("preset", "model", "settings", "history", "input", "n_steps", "seconds"):
        without = {other: value for other, value in checkpoint.items() if other != name}
        with pytest.raises(EstimatorError, match=rf"a\.partial is not a checkpoint .*{name}"):
            check_checkpoint(without, "a.partial")
