"""Estimator files: the round trip, and every way in which a file can be wrong."""

import hashlib
import io
import json
import pickle
import time
import tracemalloc

import numpy as np
import pytest

from greybayes.amortized.estimator import Estimator
from greybayes.amortized.store import FORMAT, read_file, write_file
from greybayes.errors import EstimatorError

HEADER = {"kind": "estimator", "model": {"name": "growth2"}, "package": "0.0", "text": "µ, 'b[0]'"}
ARRAYS = {
    "network.steps[0].weight": np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32),
    "bias": np.zeros(5, np.float32),
    "scalar": np.array(3, np.int32),
    "input": np.zeros((4, 0), np.float32),
}


@pytest.fixture
def path(tmp_path):
    write_file(tmp_path / "a.estimator", HEADER, ARRAYS)
    return tmp_path / "a.estimator"


def signed(header_text: str, metadata: dict | None = None) -> bytes:
    """A safetensors file without arrays and with any header, whose checksum is right."""
    metadata = {"greybayes": header_text, "sha256": "0" * 64} | (metadata or {})
    head = json.dumps({"__metadata__": metadata}).encode()
    data = len(head).to_bytes(8, "little") + head
    return data.replace(b"0" * 64, hashlib.sha256(data).hexdigest().encode())


def refusal(path) -> str:
    """The sentence, in one line, that names the file."""
    with pytest.raises(EstimatorError) as error:
        read_file(path)
    sentence = str(error.value)
    assert str(path) in sentence
    assert "\n" not in sentence
    assert sentence.endswith(".")
    return sentence


# The round trip.


def test_what_was_written_is_read(path):
    header, arrays = read_file(path)
    assert header == {**HEADER, "format": FORMAT}
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(arrays[name], array)


def test_any_tool_for_safetensors_reads_the_weights(path):
    from safetensors.numpy import load_file

    np.testing.assert_array_equal(load_file(path)["bias"], ARRAYS["bias"])


def test_arrays_in_any_memory_order(tmp_path):
    turned = np.arange(12.0).reshape(3, 4).T
    write_file(tmp_path / "a", HEADER, {"a": turned, "b": turned[::2]})
    arrays = read_file(tmp_path / "a")[1]
    np.testing.assert_array_equal(arrays["a"], turned)
    np.testing.assert_array_equal(arrays["b"], turned[::2])


def test_a_header_that_holds_many_zeros(tmp_path):
    """64 zeros in the header are not taken for the place of the checksum."""
    header = {**HEADER, "zeros": "1" + "0" * 63, "theta": [0.0] * 50}
    write_file(tmp_path / "a", header, ARRAYS)
    assert read_file(tmp_path / "a")[0]["zeros"] == header["zeros"]


def test_writing_leaves_no_other_file(path):
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_file_that_cannot_be_written_is_a_sentence(tmp_path):
    with pytest.raises(EstimatorError, match="cannot be written"):
        write_file(tmp_path / "nowhere" / "a", HEADER, ARRAYS)


# Wrong files.


def test_cut_short_at_any_length(path):
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        refusal(path)


def test_longer_than_it_was(path):
    path.write_bytes(path.read_bytes() + b"\0")
    refusal(path)


def test_a_thousand_corruptions_are_all_refused(path):
    """Single bits, several bits, bytes, swapped blocks: none is read, none ends otherwise."""
    data, rng = path.read_bytes(), np.random.default_rng(11)
    for trial in range(1000):
        broken = np.frombuffer(data, np.uint8).copy()
        n_places = 1 if trial < 600 else int(rng.integers(2, 40))
        # A third of them in the first 64 bytes, where lengths and braces are.
        end = 64 if trial % 3 == 0 else len(data)
        places = rng.integers(0, end, n_places)
        if trial % 10 == 9:
            broken[places] = rng.integers(0, 256, n_places)
        else:
            np.bitwise_xor.at(broken, places, 1 << rng.integers(0, 8, n_places).astype(np.uint8))
        if broken.tobytes() == data:
            continue
        path.write_bytes(broken.tobytes())
        refusal(path)


def test_every_bit_of_the_length_and_of_the_checksum_counts(path):
    data = path.read_bytes()
    digest = read_metadata(data)["sha256"].encode()
    start = data.index(digest)
    for place in [*range(8), *range(start, start + 64)]:
        for bit in range(8):
            broken = bytearray(data)
            broken[place] ^= 1 << bit
            path.write_bytes(broken)
            refusal(path)


def read_metadata(data):
    head = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + head])["__metadata__"]


@pytest.mark.parametrize("version", [0, FORMAT + 1, None, "1"])
def test_another_format_is_refused_with_both_versions(path, version):
    path.write_bytes(signed(json.dumps({**HEADER, "format": version, "package": "9.8.7"})))
    sentence = refusal(path)
    assert f"format {version}" in sentence
    assert f"reads {FORMAT}" in sentence
    assert "9.8.7" in sentence


def test_the_right_format_with_the_right_checksum_is_read(path):
    """So the files above are refused for their version, and for nothing else."""
    path.write_bytes(signed(json.dumps({**HEADER, "format": FORMAT})))
    assert read_file(path) == ({**HEADER, "format": FORMAT}, {})


NOT_ESTIMATORS = {
    "empty": b"",
    "text": b"k,y\n1,0.5\n2,0.7\n" * 40,
    "zeros": bytes(1000),
    "json": json.dumps({"__metadata__": {"greybayes": "{}", "sha256": ""}}).encode(),
    "another safetensors": (2).to_bytes(8, "little") + b"{}",
    "no checksum": signed("{}").replace(b"sha256", b"sha255"),
    "an empty checksum": signed("{}", {"sha256": ""}),
    "metadata is a list": (21).to_bytes(8, "little") + b'{"__metadata__": [1]}',
    "deep nesting": (20_000).to_bytes(8, "little") + b"[" * 20_000,
    "utf-16": (40).to_bytes(8, "little") + ('{"__metadata__": 1}'.encode("utf-16") + b"  "),
    "a header that is no JSON": signed("{"),
    "a header that is a list": signed("[]"),
    "a header that is nothing": signed("null"),
    "a header that is a number": signed("1"),
}


@pytest.mark.parametrize("name", NOT_ESTIMATORS)
def test_what_is_no_estimator_is_refused(tmp_path, name):
    (tmp_path / "a").write_bytes(NOT_ESTIMATORS[name])
    refusal(tmp_path / "a")


def test_no_file_a_folder_and_a_file_that_is_not_ours(tmp_path):
    assert "there is no file" in refusal(tmp_path / "missing.estimator")
    assert "cannot be read" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("claimed", "size"),
    [
        (2 * 2**30, 2 * 2**30 + 4096),
        (2 * 2**30, 4096),
        (2**63, 4096),
        (2**64 - 1, 4096),
        (100, 2 * 2**30),
        (3 * 2**30, 2**40),
    ],
)
def test_a_file_that_says_2_gb_costs_neither_memory_nor_time(tmp_path, claimed, size):
    path = tmp_path / "large.estimator"
    with path.open("wb") as stream:
        stream.write(claimed.to_bytes(8, "little") + b'{"__metadata__": {}}')
        stream.truncate(size)  # Sparse: it takes no room on the disk.
    tracemalloc.start()
    start = time.perf_counter()
    refusal(path)
    seconds, (_, peak) = time.perf_counter() - start, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10e6
    assert seconds < 2


# Never pickle.


class Bomb:
    """Leaves a mark where it is unpickled."""

    def __reduce__(self):
        return exec, ("raise SystemExit('the file was run')",)


@pytest.mark.parametrize("write", [pickle.dump, lambda bomb, f: np.save(f, np.array([bomb]))])
def test_a_pickle_is_refused_and_never_run(tmp_path, write):
    stream = io.BytesIO()
    write(Bomb(), stream)
    (tmp_path / "a").write_bytes(stream.getvalue())
    refusal(tmp_path / "a")


def test_an_object_is_never_written(tmp_path):
    with pytest.raises(Exception, match=r"(?i)object|dtype"):
        write_file(tmp_path / "a", HEADER, {"a": np.array([Bomb()], dtype=object)})
    assert not list(tmp_path.iterdir())


# A trained one.


def test_a_trained_estimator_goes_through_a_file(tiny, tmp_path):
    again = Estimator.load(tiny.save(tmp_path / "tiny.estimator"))
    assert again.header == json.loads(json.dumps({**tiny.header, "format": FORMAT}))
    for name, array in tiny.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array)
