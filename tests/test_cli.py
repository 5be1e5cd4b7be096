"""The command line: what it prints, what it writes, and how it refuses."""

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from helpers.commands import ok, refused, run

import greybayes
from greybayes import zoo
from greybayes.record import Record, read_records, write_records
from greybayes.simulation import simulate

PLANT = '''
"""A leaky tank.

    x_{k+1} = (1 - leak) x_k + pump_k + w_k
"""
import numpyro.distributions as dist
import greybayes as gb

class Tank(gb.Model):
    leak = gb.Parameter(dist.Uniform(0.0, 1.0), unit="1/s", doc="share lost in a second")
    taps = gb.Parameter(dist.Normal(0.0, 1.0), shape=(2,))
    gain = gb.Fixed(GAIN)
    inputs, outputs, units = ("pump",), ("level",), {"level": "m", "pump": "l/s"}
    dt = 0.5

    def initial(self, u, p):
        return gb.Known(0.0)

    def transition(self, x, u, p, t):
        return dist.Normal(p.gain * (1 - p.leak) * x + u, 0.1)

    def observation(self, x, u, p, t):
        return dist.Normal(x + p.taps[0], 0.1)
'''


def shell(*arguments, code=None):
    command = [sys.executable, *(["-c", code] if code else ["-m", "greybayes", *arguments])]
    source = os.path.dirname(os.path.dirname(greybayes.__file__))  # noqa: PTH120
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": source},
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def plant(folder):
    (folder / "plant.py").write_text(PLANT.replace("GAIN", "1.0"))
    return "plant.py:Tank"


# Help, version, models, show


@pytest.mark.parametrize("command", [(), ("models",), ("show",), ("simulate",), ("plot",)])
def test_help_has_an_example(command):
    assert "Example: greybayes" in ok(*command, "--help")


def test_version():
    assert ok("--version") == f"greybayes {greybayes.__version__}\n"


def test_models():
    listed = json.loads(ok("models", "--json"))
    assert listed == zoo.catalogue()
    table = ok("models")
    assert all(entry["name"] in table for entry in listed)
    assert "theta2, theta6" in table


def test_listing_does_not_load_jax():
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from greybayes.cli import app\n"
        "for arguments in (['--help'], ['models'], ['models', '--json'], ['simulate', '--help']):\n"
        "    assert CliRunner().invoke(app, arguments).exit_code == 0\n"
        "heavy = {'jax', 'numpyro', 'scipy', 'pandas', 'matplotlib', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    result = shell(code=code)
    assert result.returncode == 0, result.stderr


def test_listing_is_faster_than_importing_jax():
    def seconds(*arguments, code=None):
        start = time.perf_counter()
        assert shell(*arguments, code=code).returncode == 0
        return time.perf_counter() - start

    # The best of three: another process can only make a run slower.
    jax = min(seconds(code="import jax") for _ in range(3))
    assert min(seconds("--help") for _ in range(3)) < jax
    assert min(seconds("models") for _ in range(3)) < jax


def test_show_a_built_in_model():
    text = ok("show", "growth2")
    for words in ("theta6 x_k^2 + v_k", "Uniform(0.1, 2)", "fixed at 0.04", "no noise", "200"):
        assert words in text


def test_show_as_json():
    facts = json.loads(ok("show", "growth2", "--json"))
    priors = {p["name"]: p.get("prior") for p in facts["parameters"]}
    assert priors["theta6"] == "Uniform(0.1, 2)"
    assert priors["theta3"] is None
    assert facts["noise"]["initial"] == "no noise"
    assert (facts["dt"], facts["n_steps"], facts["input_delay"]) == (1.0, 200, 0)
    listed = {entry["name"]: entry for entry in zoo.catalogue()}["growth2"]
    assert [p for p in facts["parameters"] if "prior" in p] == listed["parameters"]


def test_show_a_model_of_ones_own(plant):
    text = ok("show", plant)
    for words in ("A leaky tank", "(1 - leak) x_k", "1/s", "taps[2]", "fixed at 1.0", "l/s"):
        assert words in text
    assert "Tank(*" not in text  # the docstring that a dataclass makes up


def test_what_a_users_file_prints_stays_out_of_the_json(folder, plant):
    (folder / "plant.py").write_text("print('hello')\n" + (folder / "plant.py").read_text())
    assert json.loads(ok("show", plant, "--json"))["outputs"] == [{"name": "level", "unit": "m"}]


# Simulate


@pytest.mark.parametrize("suffix", ["csv", "mat", "parquet"])
def test_simulate_writes_what_the_library_simulates(folder, suffix):
    file = f"y.{suffix}"
    text = ok("simulate", "growth2", "--count", 3, "--length", 20, "--seed", 7, "-o", file)
    assert text == f"Wrote {file} (records: 3, samples: 60).\n"
    expected = simulate("growth2", n_steps=20, count=3, key=7)
    read = read_records(file)
    assert [list(record.y[:, 0]) for record in read] == expected.y[:, :, 0].tolist()
    assert [list((record.theta or {}).values()) for record in read] == [
        list((record.theta or {}).values()) for record in expected
    ]


def test_simulate_json(folder):
    told = json.loads(ok("simulate", "growth2", "--length", 5, "--json", "-o", "y.csv"))
    assert told == {"path": "y.csv", "records": 1, "samples": 5, "diverged": 0, "seed": 0}


def test_simulate_with_some_parameters_known(folder):
    common = ("simulate", "growth2", "--count", 4, "--length", 5, "--seed", 3)
    ok(*common, "-o", "free.csv")
    ok(*common, "--theta", "theta6=1.5, theta8=0.25", "--theta", "theta7=0.5", "-o", "some.csv")
    free = [dict(record.theta or {}) for record in read_records("free.csv")]
    some = [dict(record.theta or {}) for record in read_records("some.csv")]
    known = {"theta6": 1.5, "theta7": 0.5, "theta8": 0.25}
    assert some == [{**theta, **known} for theta in free]
    assert len({theta["theta2"] for theta in some}) == 4


def test_simulate_with_all_parameters_known(folder):
    theta = {"theta2": 0.5, "theta6": 1.0, "theta7": 0.25, "theta8": 0.125}
    given = ",".join(f"{name}={value}" for name, value in theta.items())
    ok("simulate", "growth2", "--theta", given, "--count", 2, "--length", 9, "-o", "y.csv")
    expected = simulate("growth2", theta, n_steps=9, count=2)
    assert [dict(record.theta or {}) for record in read_records("y.csv")] == [theta, theta]
    assert read_records("y.csv")[1].y.tolist() == expected.y[1].tolist()


def test_simulate_with_a_design(folder):
    ok("simulate", "growth2", "--input", "prbs:amplitude=2.5", "-o", "y.csv")
    u = read_records("y.csv")[0].u
    assert u is not None
    assert set(u[:, 0]) == {-2.5, 2.5}


@pytest.mark.parametrize("suffix", ["csv", "mat", "parquet"])
def test_simulate_with_the_input_of_records(folder, suffix):
    u = np.linspace(-1, 1, 12).astype(np.float32)
    records = [Record(y=np.zeros(12), u=u, dt=1.0, name=name) for name in "ab"]
    write_records(f"in.{suffix}", records)
    for length, expected in ((None, 12), (8, 8)):
        options = () if length is None else ("--length", length)
        ok("simulate", "growth2", "--input", f"in.{suffix}", *options, "-o", "out.csv")
        found = read_records("out.csv")[0].u
        assert found is not None
        assert found[:, 0].tolist() == u[:expected].tolist()


def test_simulate_with_a_file_that_has_only_u(folder, plant):
    (folder / "u.csv").write_text("t,volts\n0,1\n0.5,2\n1,-1\n")
    ok("simulate", plant, "--input", "u.csv:u=volts", "-o", "y.csv")
    record = read_records("y.csv")[0]
    assert record.inputs == ("pump",)
    assert record.u is not None
    assert record.u[:, 0].tolist() == [1, 2, -1]


def test_diverged_paths_are_left_out(folder):
    # With gain 30 a path overflows where it leaks little.
    (folder / "plant.py").write_text(PLANT.replace("GAIN", "30.0"))
    design = ("--input", "cosine", "--length", 40, "--count", 20)
    result = run("simulate", "plant.py:Tank", *design, "-o", "y.csv")
    n_written = len(read_records("y.csv"))
    assert 0 < n_written < 20
    assert f"records: {n_written}," in result.stdout
    assert f"diverged: {20 - n_written} of 20" in result.stderr
    (folder / "plant.py").write_text(PLANT.replace("GAIN", "1e30"))
    assert "diverged" in refused("simulate", "plant.py:Tank", *design, "-o", "none.csv")
    assert not (folder / "none.csv").exists()


# Plot


def test_plot(folder):
    write_records("y.csv", [Record(y=[1.0, 2.0], u=[0.0, 1.0], dt=0.1, name=n) for n in "abcdefgh"])
    assert ok("plot", "y.csv", "-o", "y.png") == "Wrote y.png (records: 6, the first of 8).\n"
    assert (folder / "y.png").read_bytes().startswith(b"\x89PNG")
    told = json.loads(ok("plot", "y.csv:y=u,u=", "-o", "y.svg", "--json"))
    assert told == {"path": "y.svg", "records": 8, "drawn": 6}
    assert b"<svg" in (folder / "y.svg").read_bytes()


# Refusals

GOOD = ("-o", "y.csv")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("show", "grwth2"), "did you mean growth2"),
        (("show", "nowhere.py:Plant"), "there is no file nowhere.py"),
        (("show", "plant.py:Tnk"), "did you mean Tank"),
        (("simulate", "grwth2", *GOOD), "did you mean growth2"),
        (("simulate", "growth2", "--theta", "theta7=1.5", *GOOD), "theta7 = 1.5 is outside"),
        (("simulate", "growth2", "--theta", "theta7=nan", *GOOD), "outside the support"),
        (("simulate", "growth2", "--theta", "tehta7=0.5", *GOOD), "did you mean theta7"),
        (("simulate", "growth2", "--theta", "theta3=0.5", *GOOD), "theta3 is fixed in this"),
        (("simulate", "growth2", "--theta", "theta7", *GOOD), "expected NAME=VALUE"),
        (("simulate", "growth2", "--theta", "theta7=a", *GOOD), "expected NAME=VALUE"),
        (("simulate", "growth2", "--theta", "", *GOOD), "expected NAME=VALUE"),
        (("simulate", "growth2", "--theta", "theta7=0,theta7=1", *GOOD), "twice"),
        (("simulate", "plant.py:Tank", "--theta", "taps[0]=1", *GOOD), "taps[0], taps[1]"),
        (("simulate", "plant.py:Tank", *GOOD), "no design of its own"),
        (("simulate", "growth2", "--input", "prsb", *GOOD), "did you mean prbs"),
        (("simulate", "growth2", "--input", "prbs:amplitude=big", *GOOD), "amplitude"),
        (("simulate", "growth2", "--input", "", *GOOD), "no input design"),
        (("simulate", "growth2", "--input", "prbs/prbs", *GOOD), "shape"),
        (("simulate", "growth2", "--input", "nowhere.csv", *GOOD), "there is no file nowhere.csv"),
        (("simulate", "growth2", "--input", "u.xlsx", *GOOD), "u.xlsx"),
        (("simulate", "growth2", "--input", "bad.csv", *GOOD), "not finite"),
        (("simulate", "growth2", "--input", "two.csv", *GOOD), "different input"),
        (("simulate", "growth2", "--input", "fast.csv", *GOOD), "dt = 0.1"),
        (("simulate", "growth2", "--input", "fast.csv:u=volts", *GOOD), "no column 'volts'"),
        (("simulate", "growth2", "--input", "short.csv", "--length", 9, *GOOD), "9 are needed"),
        (("simulate", "growth2", "--length", 0, *GOOD), "expected 1 or more"),
        (("simulate", "growth2", "--count", 0, *GOOD), "expected 1 or more"),
        (("simulate", "growth2", "--count", -1, "--theta", "theta2=0", *GOOD), "1 or more"),
        (("simulate", "growth2", "-o", "y.xlsx"), "'.xlsx'"),
        (("simulate", "growth2", "-o", "nowhere/y.csv"), "cannot be written"),
        (("simulate", "growth2", "-o", "bad.csv/y.csv"), "cannot be written"),
        (("plot", "nowhere.csv", "-o", "y.png"), "there is no file nowhere.csv"),
        (("plot", "short.csv", "-o", "y.jpg"), "'.jpg'"),
        (("plot", "short.csv", "-o", "nowhere/y.png"), "cannot be written"),
        (("plot", "huge.csv", "-o", "y.png"), "too large to plot"),
    ],
)
def test_bad_input_is_one_sentence(folder, plant, arguments, words):
    (folder / "bad.csv").write_text("u\n1\nnan\n")
    (folder / "two.csv").write_text("record,u\na,1\na,2\nb,3\nb,4\n")
    (folder / "fast.csv").write_text("t,u\n0,1\n0.1,2\n0.2,2\n")
    (folder / "short.csv").write_text("y,u\n0,1\n1,2\n0,2\n")
    (folder / "huge.csv").write_text("y\n1e308\n-1e308\n")
    before = sorted(p.name for p in folder.iterdir() if p.suffix != ".pyc")
    sentence = refused(*arguments)
    # Rich would wrap it; a sentence on one line can be searched for.
    assert words in sentence
    after = sorted(p.name for p in folder.iterdir() if p.name != "__pycache__")
    assert after == before


@pytest.mark.parametrize("output", ["y.xlsx", "nowhere/y.csv"])
def test_the_output_is_checked_before_anything_else(folder, output):
    assert output in refused("simulate", "no-such-model", "-o", output)


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("missing option '-o' / '--output' (see", ("simulate", "fir")),
        ("no such option: --jsn", ("models", "--jsn")),
        ("no such option: --jsn", ("--jsn", "models")),
        ("Did you mean 'simulate'", ("simulat",)),
        ("invalid value for '--seed'", ("simulate", "fir", "-o", "y.csv", "--seed", "-1")),
    ],
)
def test_a_usage_error_is_one_sentence(folder, words, arguments):
    assert words in refused(*arguments)


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="no device that is always full")
def test_a_full_disk_is_one_sentence():
    # A file of its own: what is left in it is written once more when the program ends.
    code = (
        "import sys\n"
        "from greybayes import cli\n"
        "sys.stdout, sys.argv = open('/dev/full', 'w'), ['greybayes', 'models']\n"
        "cli.main()\n"
    )
    result = shell(code=code)
    assert result.returncode == 2
    assert result.stderr.startswith("greybayes: the output cannot be written (No space left")
    assert result.stderr.count("\n") == 1


def test_interrupt_is_no_traceback(monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(zoo, "catalogue", interrupted)
    result = run("models")
    assert result.exit_code == 130
    assert "Traceback" not in result.output


def test_after_an_interrupt_the_program_ends_at_once():
    # Python's own ending waits for nobody, and XLA's threads crash in the middle of it.
    code = (
        "import atexit, sys\n"
        "from greybayes import cli, zoo\n"
        "def interrupted(): raise KeyboardInterrupt\n"
        "zoo.catalogue, sys.argv = interrupted, ['greybayes', 'models']\n"
        "atexit.register(print, 'the long way out')\n"
        "cli.main()\n"
    )
    result = shell(code=code)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")


def test_our_own_mistakes_stay_tracebacks(monkeypatch):
    monkeypatch.setattr(zoo, "catalogue", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("models")


def test_as_a_program(folder):
    source = str(folder / "y.csv")
    done = shell("simulate", "growth2", "--length", "5", "--json", "-o", source)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["samples"] == 5
    assert done.stderr == ""  # no spinner where nobody watches
    assert read_records(source)[0].y.tolist() == simulate("growth2", n_steps=5).y[0].tolist()
    refusal = shell("show", "grwth2")
    assert (refusal.returncode, refusal.stdout) == (2, "")
    assert refusal.stderr.startswith("greybayes: there is no model grwth2")


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="counts cores another way")
def test_the_program_computes_on_all_cores():
    code = (
        "import os\n"
        "from greybayes import cli\n"
        "cli.base.load_model('growth2')\n"
        "import jax\n"
        "assert jax.device_count() == len(os.sched_getaffinity(0)), jax.devices()\n"
    )
    result = shell(code=code)
    assert result.returncode == 0, result.stderr
