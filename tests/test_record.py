"""Records, and the files they come from: every bad file ends in one sentence."""

import contextlib
import os
import pickle
import random
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import numpy as np
import pytest

from greybayes.errors import RecordError
from greybayes.record import Record, read_records, write_records
from greybayes.record_files.mat import read_mat
from greybayes.record_files.table import Cells

NAN, INF = np.nan, np.inf
DATA = Path(__file__).parents[2] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no reference data in {DATA}")


def put(folder: Path, content: str | bytes, name: str = "a.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def put_mat(folder: Path, name: str = "a.mat", **variables) -> Path:
    scipy_io = pytest.importorskip("scipy.io")
    scipy_io.savemat(folder / name, variables)
    return folder / name


def cells(rows: list[list]) -> np.ndarray:
    array = np.empty((len(rows), len(rows[0])), dtype=object)
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            array[i, j] = np.asarray(value, dtype=float)
    return array


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)[:, None]


# The record itself


def test_vectors_become_columns_and_are_frozen_copies():
    y = np.array([1.0, 2.0])
    record = Record(y, u=[0, 1])
    y[0] = 9.0
    assert record.u is not None
    assert record.y.shape == record.u.shape == (2, 1)
    assert record.y.dtype == record.u.dtype == np.float64
    assert record.y[0, 0] == 1.0
    assert record.outputs == ("y",)
    assert record.inputs == ("u",)
    with pytest.raises(ValueError, match="read-only"):
        record.y[0] = 0.0
    with pytest.raises(FrozenInstanceError):
        record.name = "b"  # type: ignore[misc]


def test_missing_samples_are_masked():
    record = Record([[1.0, NAN], [NAN, NAN], [3.0, 4.0]])
    assert record.n_steps == 3
    assert record.n_missing == 3
    assert record.mask.tolist() == [[True, False], [False, False], [True, True]]
    assert record.outputs == ("y1", "y2")
    assert record.u is None
    assert record.inputs == ()


def test_mask_of_a_masked_array_is_kept():
    assert Record(np.ma.masked_greater([1, 2, 99], 9)).n_missing == 1


def test_even_times_give_dt_and_uneven_do_not():
    assert Record([1, 2, 3], times=[0, 0.02, 0.04]).dt == 0.02
    assert Record([1, 2, 3], times=[0, 0.02, 0.05]).dt is None
    rounded = [round(k / 3, 4) for k in range(9)]
    assert Record(np.ones(9), times=rounded).dt == pytest.approx(1 / 3, rel=1e-3)


def test_no_columns_of_u_are_no_input():
    assert Record(np.ones(3), u=np.ones((3, 0))).u is None


def test_equality_counts_missing_as_equal():
    record = Record([1.0, NAN], u=[1, 2], dt=0.1, theta={"a": 1}, units={"y": "V"})
    assert record == Record([1.0, NAN], u=[1, 2], dt=0.1, theta={"a": 1}, units={"y": "V"})
    for change in ({"y": [1.0, 2.0]}, {"dt": 0.2}, {"u": None, "inputs": ()}, {"name": "b"}):
        assert record != replace(record, **change)
    assert record != 3


def test_pickle_keeps_it_frozen():
    record = Record([1.0, NAN], units={"y": "V"}, theta={"a": 1.0})
    copy = pickle.loads(pickle.dumps(record))
    assert copy == record
    assert not copy.y.flags.writeable


BAD = [
    ({"y": []}, "at least one sample"),
    ({"y": 3.0}, "shape"),
    ({"y": np.ones((2, 2, 2))}, "shape"),
    ({"y": ["a", "b"]}, "real numbers"),
    ({"y": [1j]}, "real numbers"),
    ({"y": [[1], [2, 3]]}, "real numbers"),
    ({"y": [1, INF]}, "y at step 1, channel 'y', is inf"),
    ({"y": [1, 2], "u": [1, NAN]}, "u at step 1, channel 'u', is nan"),
    ({"y": [1, 2], "u": [1]}, "y has 2 samples and u has 1"),
    ({"y": [1, 2], "dt": 0}, "dt is 0"),
    ({"y": [1, 2], "dt": "x"}, "dt is 'x'"),
    ({"y": [1, 2], "dt": NAN}, "dt is nan"),
    ({"y": [1, 2], "times": [0]}, "one time per sample"),
    ({"y": [1, 2], "times": [0, 0]}, "times at step 1 is 0.0 after 0.0"),
    ({"y": [1, 2], "times": [0, NAN]}, "strictly increasing"),
    ({"y": [1, 2], "times": [0, 1], "dt": 0.5}, "dt is 0.5 but the sample times are 1.0 apart"),
    ({"y": [1, 2], "outputs": ("a", "b")}, "outputs names 2 channels"),
    ({"y": [1, 2], "inputs": ("u",)}, "inputs names 1 channels"),
    ({"y": [1, 2], "u": [1, 2], "outputs": ("u",)}, "two channels are called 'u'"),
    ({"y": [1, 2], "outputs": (" y",)}, "printable"),
    ({"y": [1, 2], "name": "a\nb"}, "printable"),
    ({"y": [1, 2], "units": {"yy": "V"}}, "units names 'yy'"),
    ({"y": [1, 2], "theta": {"a": "x"}}, "theta has 'a'"),
    ({"y": [1, 2], "theta": {"a": INF}}, "theta has 'a'"),
]


@pytest.mark.parametrize(("arguments", "says"), BAD, ids=[says for _, says in BAD])
def test_bad_records_are_refused(arguments, says):
    with pytest.raises(RecordError) as caught:
        Record(**arguments)
    assert says in str(caught.value)


def test_repr_is_short():
    record = Record(np.ones((5, 9)), u=np.ones(5), times=[0, 1, 3, 4, 9], theta={"a": 1})
    assert repr(record) == (
        "Record(5 steps, y: y1, y2, y3, y4, ... (9), u: u, uneven times, theta known)"
    )


def test_importing_costs_little():
    code = (
        "import sys, greybayes.record\n"
        "sys.exit(bool({'jax', 'scipy', 'pandas', 'pyarrow'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# DataFrames


def test_dataframe_there_and_back():
    pytest.importorskip("pandas")
    for record in RECORDS.values():
        for one in record:
            assert Record.from_dataframe(one.to_dataframe()) == one


def test_dataframe_by_columns():
    pd = pytest.importorskip("pandas")
    df = pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [1, 2], "s": [0.0, 0.5]})
    record = Record.from_dataframe(df, y=["a"], u="b", t="s", units={"a": "V"}, name="n")
    assert record == Record(column(1, NAN), column(1, 2), 0.5, np.array([0, 0.5]), ("a",), ("b",),
                            {"a": "V"}, "n")  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "arguments", "says"),
    [
        ({"a": [1.0]}, {"y": "b"}, "the DataFrame has no column 'b', it has a"),
        ({"a": [1.0]}, {}, "plainly the output"),
        ({"y": []}, {}, "needs rows"),
        ({"y": [1.0, 2.0], "record": ["a", "b"]}, {}, "names 2 records"),
        ({"y": ["x"]}, {}, "row 0, column 'y': 'x' is not a number"),
    ],
)
def test_bad_dataframes_are_refused(columns, arguments, says):
    pd = pytest.importorskip("pandas")
    with pytest.raises(RecordError) as caught:
        Record.from_dataframe(pd.DataFrame(columns), **arguments)
    assert says in str(caught.value)


# CSV: what is read

GOOD = {
    "header": ("t,u,y\n0,1,2\n1,3,4\n", "", {}),
    "crlf": ("t,u,y\r\n0,1,2\r\n1,3,4\r\n", "", {}),
    "old mac": ("t,u,y\r0,1,2\r1,3,4\r", "", {}),
    "bom": ("\ufefft,u,y\n0,1,2\n1,3,4", "", {}),
    "comments and blanks": ("# made by\n\nt,u,y\n\n0,1,2\n# note\n1,3,4\n\n\n", "", {}),
    "semicolon": ("t;u;y\n0;1;2\n1;3;4\n", "", {}),
    "tab": ("t\tu\ty\n0\t1\t2\n1\t3\t4\n", "", {}),
    "pipe": ("t|u|y\n0|1|2\n1|3|4\n", "", {}),
    "spaces": ("  t  u   y\n 0  1   2\n 1  3   4\n", "", {}),
    "space after comma": ("t, u, y\n0, 1, 2\n1, 3, 4\n", "", {}),
    "quotes": ('"t","u","y"\n"0","1","2"\n1,3,4\n', "", {}),
    "decimal comma": ("t;u;y\n0,0;1,0;2,0\n1,0;3,0;4,0\n", "", {"decimal": ","}),
    "decimal comma, found out": ("t;u;y\n0;1,0;2,0\n1;3,0;4,0\n", "", {}),
    "decimal comma, spaces": ("t u y\n0,0 1,0 2,0\n1,0 3,0 4,0\n", "", {"decimal": ","}),
    "delimiter said": ("t:u:y\n0:1:2\n1:3:4\n", "", {"delimiter": ":"}),
    "no header": ("0,1,2\n1,3,4\n", ":t=1,u=2,y=3", {}),
    "order of keys": ("0,1,2\n1,3,4\n", ": y = 3 , u=2,t=1", {}),
    "numeric header": ("1,2,3\n0,1,2\n1,3,4\n", ":t=1,u=2,y=3", {"header": True}),
    "other names": ("s,v,w\n0,1,2\n1,3,4\n", ":y=w,u=v,t=s", {"outputs": "y", "inputs": "u"}),
    "model's names": ("s,v,w\n0,1,2\n1,3,4\n", ":t=s", {"outputs": ["w"], "inputs": ["v"]}),
    "time": ("time,u,y\n0,1,2\n1,3,4\n", "", {}),
    "text beside": ("t,u,y,who\n0,1,2,me\n1,3,4,you\n", "", {}),
    "dt": ("u,y\n1,2\n3,4\n", ":dt=1", {}),
}


@pytest.mark.parametrize("case", GOOD)
def test_csv_is_read(tmp_path, case):
    text, options, arguments = GOOD[case]
    (record,) = read_records(f"{put(tmp_path, text)}{options}", **arguments)
    assert record.u is not None
    assert record.y.tolist() == [[2.0], [4.0]]
    assert record.u.tolist() == [[1.0], [3.0]]
    assert record.dt == 1.0
    assert record.name == "a"


@pytest.mark.parametrize(
    ("text", "y"),
    [
        ("1\n2\n", [1, 2]),
        ("y\n1\n\n2\n", [1, NAN, 2]),
        ("u,y\n1,\n2,NA\n3,nan\n4,5\n", [NAN, NAN, NAN, 5]),
        ("1e3\n-2.5E-3\n+.5\n", [1000, -0.0025, 0.5]),
    ],
)
def test_missing_samples_in_csv(tmp_path, text, y):
    (record,) = read_records(put(tmp_path, text))
    assert np.array_equal(record.y[:, 0], y, equal_nan=True)


def test_channels_are_numbered_or_joined(tmp_path):
    path = put(tmp_path, "y10,y2,u,a+b\n1,2,3,4\n")
    assert read_records(path)[0].outputs == ("y2", "y10")
    assert read_records(f"{path}:y=y10+u,u=")[0].y.tolist() == [[1.0, 3.0]]
    assert read_records(f"{path}:y=a+b")[0].outputs == ("a+b",)


def test_columns_without_names_get_the_usual_ones(tmp_path):
    (record,) = read_records(f"{put(tmp_path, '1,2,3')}:y=3+1,u=2")
    assert record.outputs == ("y1", "y2")
    assert record.inputs == ("u",)


def test_several_records_and_theta(tmp_path):
    text = "record,y,theta.a,theta.b\nb,1,5,\na,2,6,7\nb,3,5,\n"
    b, a = read_records(put(tmp_path, text))
    assert (b.name, b.y[:, 0].tolist(), b.theta) == ("b", [1, 3], {"a": 5})
    assert (a.name, a.y[:, 0].tolist(), a.theta) == ("a", [2], {"a": 6, "b": 7})
    path = put(tmp_path, "id,y\n1,2\n2,3\n")
    assert [record.name for record in read_records(f"{path}:record=id")] == ["1", "2"]
    assert read_records(path)[0].n_steps == 2


@pytest.mark.skipif(os.name == "nt", reason="Windows has no colons in file names")
def test_colons_in_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put(tmp_path, "y\n1\n", "a:y=b.csv")
    put(tmp_path, "a:b\n1\n", "C:c.csv")
    assert read_records("a:y=b.csv")[0].outputs == ("y",)
    assert read_records("a:y=b.csv:dt=2")[0].dt == 2
    assert read_records("C:c.csv:y=a:b")[0].outputs == ("a:b",)
    with pytest.raises(RecordError, match=r"there is no file C:\\data\\x.csv"):
        read_records("C:\\data\\x.csv:y=z1")
    with pytest.raises(RecordError, match=r"there is no file C:\\data\\x.csv"):
        read_records("C:\\data\\x.csv")


# CSV: what is refused, and what the sentence says

BAD_CSV = {
    "empty": ("", "", {}, "is empty"),
    "only comments": ("# a\n\n", "", {}, "holds no samples"),
    "only a header": ("t,y\n", "", {}, "no samples"),
    "ragged": ("u,y\n1,2\n3\n", "", {}, "row 3 has 1 fields where row 1 has 2"),
    "ragged spaces": ("u y\n1 2\n3 4 5\n", "", {}, "row 3 has 3 fields"),
    "rows are counted": ("#\n\nu,y\n#\n1,x\n", "", {}, "a.csv, row 5, column 'y': 'x' is not a"),
    "text in numbers": ("u,y\n1,2\n1,abc\n", "", {}, "row 3, column 'y': 'abc' is not a number"),
    "thousands": ("y\n1_000\n", "", {}, "'1_000' is not a number"),
    "decimal comma": ('u,y\n1,"2,5"\n', "", {}, "decimal=','"),
    "comma and point": ("u;y\n1.0;2,5\n", "", {}, "decimal=','"),
    "point with comma": ("u;y\n1,0;2.5\n", "", {"decimal": ","}, "'2.5' is not a number"),
    "a date": ("t,y\n2024-01-01,2\n", "", {}, "row 2, column 't': '2024-01-01' is not a number"),
    "inf in y": ("u,y\n1,2\n1,inf\n", "", {}, "row 3, column 'y' is inf"),
    "nan in u": ("u,y\n1,2\nnan,1\n", "", {}, "row 3, column 'u' is nan"),
    "empty u": ("u,y\n1,2\n,1\n", "", {}, "row 3, column 'u' is nan"),
    "times back": ("t,y\n1,2\n0,1\n", "", {}, "row 3, column 't' is 0.0 after 1.0"),
    "gap in times": ("t,y\n1,2\n,1\n", "", {}, "row 3, column 't' is nan"),
    "dt against t": ("t,y\n0,2\n1,1\n", ":dt=2", {}, "a.csv: dt is 2.0 but"),
    "bad dt": ("y\n1\n", ":dt=fast", {}, "dt is 'fast'"),
    "unknown column": ("t,speed\n0,1\n", ":y=sped", {}, "no column 'sped', it has t, speed; did"),
    "no output": ("a,b\n0,1\n", "", {}, "it has a, b: name one, as in 'a.csv:y=a'"),
    "no header": ("0,1\n", "", {}, "2 columns and no header row: say which is which, as in 'a.csv"),
    "no such number": ("0,1\n", ":y=3", {}, "no column '3'"),
    "header twice": ("y,y\n0,1\n", "", {}, "two columns called 'y'"),
    "key twice": ("y\n1\n", ":y=y,y=y", {}, "gives 'y' twice"),
    "unknown key": ("y\n1\n", ":Ts=1", {}, "the keys are y, u, t, dt, record"),
    "no key": ("y\n1\n", ":y", {}, "not KEY=VALUE"),
    "y and u": ("y,u\n1,2\n", ":y=u,u=u", {}, "both output and input"),
    "two times": ("y,a,b\n1,2,3\n", ":t=a+b", {}, "t names 2 columns"),
    "which input": ("z,u1,u2\n1,2,3\n", ":y=z", {}, "say which belong to z"),
    "record empty": ("record,y\na,1\n,2\n", "", {}, "row 3, column 'record' is empty"),
    "theta changes": ("y,theta.a\n1,1\n1,2\n", "", {}, "row 3, column 'theta.a' is 2.0 after 1.0"),
    "too many outputs": ("y1,y2\n1,2\n", "", {"outputs": ("y",)}, "gives 2 outputs (y1, y2)"),
    "half the outputs": ("a,y\n1,2\n", "", {"outputs": ("a", "b")}, "no column 'b'"),
    "inputs of none": ("y,u\n1,2\n", ":u=u", {"inputs": ()}, "the model has 0 (none)"),
    "zero bytes": (b"y\n\x00\x01\n", "", {}, "not text"),
    "utf-16": ("y\n1\n".encode("utf-16"), "", {}, "not text"),
    "latin-1": ("y,°C\n1,2\n".encode("latin-1"), "", {}, "row 1 has a byte that is not UTF-8"),
    "too large": ("y\n1\n", "", {"max_bytes": 3}, "the limit is"),
    "bad decimal": ("y\n1\n", "", {"decimal": "x"}, "decimal is 'x'"),
    "bad delimiter": ("y\n1\n", "", {"delimiter": ",,"}, "delimiter is ',,'"),
    "bad note": ("# greybayes {}\ny\n1\n", "", {}, "row 1, has a 'greybayes' note that is damaged"),
}


@pytest.mark.parametrize("case", BAD_CSV)
def test_bad_csv_is_refused_with_a_sentence(tmp_path, case):
    text, options, arguments, says = BAD_CSV[case]
    with pytest.raises(RecordError) as caught:
        read_records(f"{put(tmp_path, text)}{options}", **arguments)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("none.csv", "there is no file"),
        ("none.csv:y=z1", "there is no file none.csv:"),
        (".", "is a folder"),
        ("a.xlsx", "ends in '.xlsx'"),
        ("a\0.csv", "cannot be read"),
        ("a" * 5000 + ".csv", "cannot be read"),
        ("", "is a folder"),
    ],
)
def test_bad_paths_are_refused(tmp_path, monkeypatch, address, says):
    monkeypatch.chdir(tmp_path)
    put(tmp_path, "y\n1\n", "a.xlsx")
    with pytest.raises(RecordError) as caught:
        read_records(address)
    assert says in str(caught.value)


# MAT


def test_mat_vectors_either_way_and_matrices(tmp_path):
    path = put_mat(tmp_path, z=np.ones((1, 5)), u=np.ones((5, 1), np.int16), m=np.ones((5, 2)))
    (record,) = read_records(f"{path}:y=z,u=u,dt=0.1")
    assert record.u is not None
    assert record.y.shape == record.u.shape == (5, 1)
    (record,) = read_records(f"{path}:y=m")
    assert record.outputs == ("m1", "m2")


def test_an_address_must_not_name_the_models_channels_in_another_order(tmp_path):
    path = put(tmp_path, "a,b,c\n1,2,3\n", "a.csv")
    (record,) = read_records(path, outputs=("b", "a"))
    assert record.y.tolist() == [[2, 1]]
    (record,) = read_records(f"{path}:y=c+a", outputs=("b", "a"))  # Others are whoever they are.
    assert record.y.tolist() == [[3, 1]]
    with pytest.raises(RecordError, match="outputs a, b and the model b, a: put them"):
        read_records(f"{path}:y=a+b", outputs=("b", "a"))


def test_a_mat_file_may_hold_the_sampling_time_as_a_number(tmp_path):
    y = column(1, 2, 3)
    assert read_records(put_mat(tmp_path, y=y, Ts=0.02))[0].dt == 0.02
    assert read_records(put_mat(tmp_path, y=y, dt=0.5))[0].dt == 0.5
    path = put_mat(tmp_path, y=y, Ts=0.02, t=column(0, 1, 2))
    assert read_records(path)[0].dt == 1.0  # Times tell more than a number beside them.
    assert read_records(f"{path}:t=")[0].dt == 0.02
    assert read_records(f"{path}:dt=1")[0].dt == 1.0
    assert read_records(put_mat(tmp_path, y=y, Ts=column(1, 2, 3)))[0].dt is None
    assert read_records(put_mat(tmp_path, y=y, Ts=-1))[0].dt is None


def test_mat_cells_are_records(tmp_path):
    rows = [[[[1], [2]]], [[[3], [4], [5]]]]
    path = put_mat(tmp_path, y=cells(rows), u=cells(rows), n=2)
    a, b = read_records(path)
    assert (a.n_steps, b.n_steps) == (2, 3)
    assert a.u is not None
    assert a.u.tolist() == [[1], [2]]
    assert (a.name, b.name) == ("a-1", "a-2")


def test_mat_cells_share_a_plain_input(tmp_path):
    path = put_mat(tmp_path, y=cells([[[[1], [2]]], [[[3], [4]]]]), u=column(7, 8))
    for record in read_records(path):
        assert record.u is not None
        assert record.u.tolist() == [[7], [8]]


BAD_MAT = {
    "no output": (
        {"a": np.ones((3, 1)), "b": "text"},
        "",
        "a (3x1), b (text (1x4)): name one",
    ),
    "unequal": (
        {"y": np.ones((3, 1)), "u": np.ones((2, 1))},
        "",
        "'y' has 3 samples and 'u' has 2",
    ),
    "transposed": ({"y": np.ones((2, 9))}, "", "transpose it"),
    "text": ({"y": "text"}, "", "variable 'y' is text"),
    "struct": ({"y": {"a": 1.0}}, "", "variable 'y' is struct"),
    "complex": ({"y": np.ones((3, 1)) * 1j}, "", "variable 'y' is complex"),
    "nothing": ({"y": np.ones((0, 0))}, "", "variable 'y' is empty"),
    "three axes": ({"y": np.ones((3, 3, 3))}, "", "variable 'y' is an array (3x3x3)"),
    "inf": ({"y": column(1, INF)}, "", "row 2, variable 'y' is inf"),
    "nan input": ({"y": column(1, 2), "u": column(1, NAN)}, "", "row 2, variable 'u' is nan"),
    "cell widths": ({"y": cells([[[[1]], [[1]], [[1]]]] * 2)}, "", "one row per record"),
    "two cells": ({"y": cells([[[[1]], [[1]]]])}, "", "is 1x2"),
    "cell counts": (
        {"y": cells([[[[1]]]] * 3), "u": cells([[[[1]]]] * 2)},
        "",
        "'y' holds 3 records and 'u' 2",
    ),
    "cell input": ({"y": column(1), "u": cells([[[[1]]]] * 2)}, "", "unlike the output"),
    "record": ({"y": column(1)}, ":record=y", "no record column"),
}


@pytest.mark.parametrize("case", BAD_MAT)
def test_bad_mat_is_refused_with_a_sentence(tmp_path, case):
    variables, options, says = BAD_MAT[case]
    with pytest.raises(RecordError) as caught:
        read_records(f"{put_mat(tmp_path, **variables)}{options}")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"MATLAB 7.3 MAT-file, Platform".ljust(124) + b"\x00\x02IM", "version 7.3"),
        (b" " * 512 + b"\x89HDF\r\n\x1a\n", "version 7.3"),
        (b"hello", "damaged, or not a MAT file"),
        (b"MATLAB 5.0 MAT-file" + b" " * 105 + b"\x00\x01IM\x0f\x00", "damaged, or not a MAT file"),
    ],
)
def test_files_that_are_not_mat_are_refused(tmp_path, content, says):
    pytest.importorskip("scipy")
    with pytest.raises(RecordError) as caught:
        read_records(put(tmp_path, content, "a.mat"))
    assert says in str(caught.value)


def test_a_mat_file_that_unpacks_beyond_the_limit_is_refused(tmp_path):
    path = tmp_path / "bomb.mat"
    pytest.importorskip("scipy.io").savemat(path, {"y": np.zeros((10**6, 1))}, do_compression=True)
    assert path.stat().st_size < 10**5
    with pytest.raises(RecordError, match="unpacks to more"):
        read_records(path, max_bytes=10**6)


def oracle(path: Path) -> dict[str, object]:
    """What SciPy reads: vectors as columns, cell arrays as lists of rows."""

    def shaped(value):
        if value.dtype.kind == "O":
            return [[shaped(element) for element in row] for row in value]
        return (value.reshape(-1, 1) if 1 in value.shape else value).astype(float).tolist()

    loaded = pytest.importorskip("scipy.io").loadmat(path)
    return {name: shaped(value) for name, value in loaded.items() if name[0] != "_"}


def ours(path: Path) -> dict[str, object]:
    table = read_mat(path.read_bytes(), "file", 2**20)
    return {
        name: [[cell.tolist() for cell in row] for row in value.rows]
        if isinstance(value, Cells)
        else value.tolist()
        for name, value in table.columns.items()
    }


@pytest.mark.parametrize("compressed", [False, True])
def test_mat_reader_agrees_with_scipy(tmp_path, compressed):
    scipy_io = pytest.importorskip("scipy.io")
    variables = {
        f"{dtype}_{rows}x{columns}": RNG.integers(0, 100, (rows, columns)).astype(dtype)
        for dtype in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8", "bool")
        for rows, columns in ((1, 1), (1, 3), (3, 1), (3, 2), (2, 5))
    }
    variables["cells"] = cells([[[[1, 2], [3, 4]], [[5]]], [[[6], [7]], [[8, 9]]]])
    scipy_io.savemat(tmp_path / "a.mat", variables, do_compression=compressed)
    assert ours(tmp_path / "a.mat") == oracle(tmp_path / "a.mat")


@needs_data
@pytest.mark.parametrize("file", ["DATAPRBS.MAT", "growth1_evaluation_100.mat"])
def test_mat_reader_agrees_with_scipy_on_real_files(file):
    assert ours(DATA / file) == oracle(DATA / file)


def test_a_wrong_type_code_is_refused(tmp_path):
    # It ends the process in scipy.io.loadmat (SciPy 1.17); hence a reader of our own.
    data = bytearray(put_mat(tmp_path, y=column(1, 2)).read_bytes())
    assert data[176:178] == b"\x09\x00"
    data[176] = 8
    with pytest.raises(RecordError, match="damaged"):
        read_records(put(tmp_path, bytes(data), "a.mat"))


@needs_data
def test_coupled_drives():
    (record,) = read_records(f"{DATA / 'DATAPRBS.MAT'}:y=z1,u=u1,dt=0.02")
    assert record.u is not None
    assert (record.n_steps, record.dt, record.outputs, record.inputs) == (
        500,
        0.02,
        ("z1",),
        ("u1",),
    )
    assert set(np.unique(record.u)) == {-1.0, 1.0}
    with pytest.raises(RecordError, match=r"z1 \(500x1\).*as in 'DATAPRBS.MAT:y=z1'"):
        read_records(DATA / "DATAPRBS.MAT")


@needs_data
@pytest.mark.parametrize(
    ("file", "theta"),
    [
        ("growth1_evaluation_100.mat", {"1": 1.0, "2": 0.1}),
        ("growth2_evaluation_100.mat", {"1": 0.7, "2": 1.0, "3": 0.1, "4": 0.1}),
    ],
)
def test_the_papers_test_signals(file, theta):
    records = read_records(DATA / file, outputs=("y",), inputs=("u",))
    assert len(records) == 100
    assert {record.n_steps for record in records} == {200}
    assert all(record.theta == theta for record in records)
    assert records[0].u is None
    assert records[0].outputs == ("y",)
    assert records[0].name == f"{Path(file).stem}-1"


def test_a_column_that_may_be_the_input_is_not_overlooked(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("t,y,theta.gain,volts\n0,1,3,4\n1,1,3,5\n")
    model = {"outputs": ("y",), "inputs": ("u",)}
    with pytest.raises(RecordError, match=r"no column 'u' for the input.*'a.csv:u=volts', or "):
        read_records(file, **model)
    assert read_records(f"{file}:u=", **model)[0].u is None
    assert read_records(f"{file}:u=volts", **model)[0].u.tolist() == [[4.0], [5.0]]
    # A column that is something else is none.
    assert read_records(f"{file}:t=volts,y=y+t", outputs=("y", "t"), inputs=("u",))[0].u is None
    # Without a model nobody knows of an input, and without such a column there is none.
    assert read_records(file)[0].u is None
    file.write_text("t,y,theta.gain\n0,1,3\n1,1,3\n")
    assert read_records(file, **model)[0].u is None


# There and back

RNG = np.random.default_rng(7)


def noisy(n_steps: int, n_channels: int) -> np.ndarray:
    """Numbers of every size: the round trip must keep all of their bits."""
    scale = 10.0 ** RNG.integers(-300, 300, (n_steps, n_channels))
    values = RNG.standard_normal((n_steps, n_channels)) * scale
    values[0, 0] = NAN
    return values


RECORDS = {
    "plain": [Record(noisy(9, 1))],
    "input and dt": [Record(noisy(9, 1), u=RNG.random(9), dt=1 / 3, name="motor 1")],
    "all missing": [Record([NAN, NAN])],
    "one step": [Record([[1, 2, NAN]], u=[[1, 2]], dt=0.1, theta={"a": 1.0, "b": 2.0})],
    "uneven times": [Record(noisy(4, 2), times=np.array([0, 0.1, 0.5, 7.0]))],
    "even times": [Record(noisy(4, 2), times=1e9 + 0.1 * np.arange(4))],
    "dt and times": [Record(noisy(4, 2), times=0.1 * np.arange(4), dt=0.1)],
    "dt and rounded times": [
        Record(noisy(4, 1), times=np.array([0, 0.3333, 0.6667, 1.0]), dt=1 / 3 + 1e-9)
    ],
    "odd names": [
        Record(
            noisy(3, 2),
            u=[1, 2, 3],
            outputs=('#a,"b"', "1"),
            inputs=("e;f|g h",),
            units={"1": "°C", "t": "s", "e;f|g h": "m/s²"},
            name="a, b; # c",
            theta={"θ": 0.1, "b c": -1e-300},
        )
    ],
    "several": [
        Record(noisy(3, 1), u=RNG.random(3), dt=0.1, name="b", theta={"a": 0.1}),
        Record(noisy(5, 1), u=RNG.random(5), name="a"),
        Record(noisy(1, 1), u=[1], times=np.array([3.0]), name="c;,d", theta={"b": 1 / 3}),
    ],
    "names twice": [Record([1.0], name="a"), Record([2.0], name="a"), Record([3.0])],
    "two outputs of one step": [Record([[1.0, 2.0]], name=str(k)) for k in range(3)],
}


@pytest.mark.parametrize("suffix", [".csv", ".mat", ".parquet"])
@pytest.mark.parametrize("case", RECORDS)
def test_round_trip_is_exact(tmp_path, case, suffix):
    pytest.importorskip({".mat": "scipy", ".parquet": "pyarrow"}.get(suffix, "numpy"))
    path = tmp_path / f"file{suffix}"
    write_records(path, RECORDS[case])
    assert read_records(path) == RECORDS[case]
    assert listed(tmp_path) == [path.name]


def test_the_csv_is_plain(tmp_path):
    record = Record([1.5, NAN], u=[1, 2], dt=0.1, theta={"a": 3})
    write_records(tmp_path / "a.csv", record)
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert lines[0].startswith("# greybayes {")
    assert lines[1:] == ["t,y,u,theta.a", "0.0,1.5,1.0,3.0", "0.1,NaN,2.0,3.0"]
    # Another program may drop the comment: numbers, dt and theta are still there.
    (stripped,) = read_records(put(tmp_path, "\n".join(lines[1:]), "b.csv"))
    assert (stripped.dt, stripped.theta, stripped.n_missing) == (0.1, {"a": 3.0}, 1)


def test_times_edited_since_they_were_written_are_believed(tmp_path):
    write_records(tmp_path / "a.csv", Record([1.5, 2.5], dt=0.1))
    text = (tmp_path / "a.csv").read_text()
    put(tmp_path, text.replace("\n0.1,", "\n0.2,"))
    with pytest.raises(RecordError, match=r"dt is 0\.1 but the sample times are 0\.2 apart"):
        read_records(tmp_path / "a.csv")
    assert read_records(f"{tmp_path / 'a.csv'}:t=t")[0].dt == 0.2


BAD_WRITES = [
    ("a.csv", [], "there are no records"),
    ("a.txt.gz", Record([1.0]), "ends in '.gz'"),
    ("none/a.csv", Record([1.0]), "cannot be written"),
    ("a.csv/b.csv", Record([1.0]), "cannot be written"),
    ("folder.csv", Record([1.0]), "is a folder"),
    ("a\0.csv", Record([1.0]), "cannot be written"),
    ("b.csv", [Record([1.0]), Record([1.0], u=[1.0])], "differ in their inputs"),
    ("b.csv", [Record([1.0]), Record([1.0], units={"y": "V"})], "differ in their units"),
    ("b.csv", Record([1.0], outputs=("t",)), "a channel is called 't'"),
    ("b.csv", Record([1.0], outputs=("theta.a",)), "a channel is called 'theta.a'"),
]


@pytest.mark.parametrize(("name", "records", "says"), BAD_WRITES)
def test_bad_writes_are_refused_and_leave_nothing(tmp_path, name, records, says):
    put(tmp_path, "kept")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(RecordError) as caught:
        write_records(tmp_path / name, records)
    assert says in str(caught.value)
    assert listed(tmp_path) == ["a.csv", "folder.csv"]
    assert (tmp_path / "a.csv").read_text() == "kept"


def test_an_interrupted_write_keeps_the_old_file(tmp_path, monkeypatch):
    put(tmp_path, "kept")

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        write_records(tmp_path / "a.csv", Record([1.0]))
    assert listed(tmp_path) == ["a.csv"]
    assert (tmp_path / "a.csv").read_text() == "kept"


def test_a_write_goes_through_a_link(tmp_path):
    put(tmp_path, "old", "real.csv")
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    write_records(tmp_path / "link.csv", Record([1.0], name="r"))
    assert (tmp_path / "link.csv").is_symlink()
    assert read_records(tmp_path / "real.csv") == [Record([1.0], name="r")]


def test_a_write_protected_file_is_kept(tmp_path, monkeypatch):
    path = put(tmp_path, "kept")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write to any file
    with pytest.raises(RecordError, match="write-protected"):
        write_records(path, Record([1.0]))
    assert path.read_text() == "kept"


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(RecordError, match=r"pip install greybayes\[parquet\]"):
        write_records(tmp_path / "a.parquet", Record([1.0]))
    with pytest.raises(RecordError, match=r"pip install greybayes\[parquet\]"):
        read_records(put(tmp_path, b"PAR1", "b.parquet"))


def test_parquet_of_another_program(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = {"record": [1, 1, 2], "y": [1, None, 3], "u": [True, False, True], "s": ["a", "b", "c"]}
    parquet.write_table(pa.table(table), tmp_path / "a.parquet")
    a, b = read_records(tmp_path / "a.parquet")
    assert (a.name, a.n_missing, b.y.tolist()) == ("1", 1, [[3.0]])
    with pytest.raises(RecordError, match="row 1, column 's': 'a' is not a number"):
        read_records(f"{tmp_path / 'a.parquet'}:y=s")
    with pytest.raises(RecordError, match="limit"):
        read_records(tmp_path / "a.parquet", max_bytes=50)


# Whatever the bytes, records or a RecordError


def mutated(rng: random.Random, data: bytes) -> bytes:
    mutant = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8, 64])):
        place = rng.randrange(len(mutant) + 1)
        match rng.randrange(4):
            case 0 if place < len(mutant):
                mutant[place] = rng.randrange(256)
            case 1:
                mutant[place:place] = rng.choice(
                    [b",", b"\n", b'"', b"#", b"nan", b"1e999", b"\xff"]
                )
            case 2:
                del mutant[place : place + rng.randrange(1, 9)]
            case _:
                mutant[place:] = mutant[place : rng.randrange(place, len(mutant) + 1)]
    return bytes(mutant)


def seeds(folder: Path, suffix: str) -> list[bytes]:
    found = [b""]
    for records in (RECORDS["several"], RECORDS["odd names"], RECORDS["one step"]):
        write_records(folder / f"seed{suffix}", records)
        found.append((folder / f"seed{suffix}").read_bytes())
    if suffix == ".csv":
        found += [str(text).encode() for text, _, _ in GOOD.values()]
    if suffix == ".mat":
        # Uncompressed: a mutant then reaches the parser, and does not stop at a checksum.
        path = put_mat(folder, y=column(1, 2), c=cells([[[[1]], [[2], [3]]]] * 3), s="text")
        found.append(path.read_bytes())
    return found


@pytest.mark.parametrize("suffix", [".csv", ".mat", ".parquet"])
def test_fuzz(tmp_path, suffix):
    pytest.importorskip({".mat": "scipy", ".parquet": "pyarrow"}.get(suffix, "numpy"))
    rng = random.Random(20240)
    starts = seeds(tmp_path, suffix)
    for _ in range(int(os.environ.get("GREYBAYES_FUZZ", "300"))):
        seed = rng.choice(starts)
        data = mutated(rng, seed) if seed else rng.randbytes(rng.randrange(400))
        path = put(tmp_path, data, f"fuzz{suffix}")
        options = rng.choice(["", "", ":y=1", ":y=y,u=", ":y=c", ":dt=0.1"])
        with contextlib.suppress(RecordError):
            records = read_records(f"{path}{options}")
            assert records
            assert {type(record) for record in records} == {Record}
