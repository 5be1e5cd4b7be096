"""Training: the same seed the same bits, killed or not; settings, schedule, divergence, scales."""

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from helpers.tiny import (
    N_STEPS,
    OPTIONS,
    SETTINGS,
    STEPS,
    assert_same_weights,
    train_tiny,
)
from typer.testing import CliRunner

import greybayes as gb
from greybayes.amortized import trainer, training
from greybayes.amortized.store import read_file, write_file
from greybayes.amortized.training import BLOCK, Settings, State, optimiser, settle_steps
from greybayes.cli import app
from greybayes.errors import EstimatorError
from greybayes.inputs import Cosine

# Settings.


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # steps, batch, chunk, devices -> whole blocks of 10, whole chunks on each device.
        ((1, 8, 4, 1), (10, 8, 4)),
        ((10, 8, 4, 1), (10, 8, 4)),
        ((11, 9, 4, 1), (20, 12, 4)),
        ((200, 8, 16, 1), (200, 8, 8)),
        ((200, 8, 16, 2), (200, 8, 4)),
        ((200, 10, 4, 2), (200, 16, 4)),
        ((200, 9, 16, 2), (200, 10, 5)),
        ((200, 1, 1, 3), (200, 3, 1)),
    ],
)
def test_settings_are_rounded_up_to_whole_parts(given, expected):
    settings = Settings(**dict(zip(("steps", "batch", "chunk", "devices"), given, strict=True)))
    assert (settings.steps, settings.batch, settings.chunk) == expected
    assert settings.batch % (settings.chunk * settings.devices) == 0
    # A second time changes nothing: a checkpoint is read through the same rounding.
    assert Settings(**dataclasses.asdict(settings)) == settings


@pytest.mark.parametrize("name", ["steps", "batch", "chunk", "devices", "n_validation"])
@pytest.mark.parametrize("value", [0, -3])
def test_a_setting_below_1_is_a_sentence(name, value):
    with pytest.raises(EstimatorError, match=f"{name} is {value}, expected 1 or more"):
        Settings(**{name: value})


def test_0_steps_are_refused():
    with pytest.raises(EstimatorError, match="steps is 0"):
        train_tiny(steps=0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"minutes": 1.0, "steps": 10}, "minutes or steps, not both"),
        ({"minutes": 0.0, "steps": None}, "minutes is 0.0, expected more than 0"),
        ({"minutes": math.nan, "steps": None}, "minutes is nan"),
        ({"preset": "fast"}, "no preset fast, only default and paper"),
        ({"settings": {"bach": 8}}, "no setting bach; known: .*batch"),
        ({"network": "grru"}, "no network grru; did you mean gru"),
        ({"n_steps": 0}, "0 samples was asked for"),
    ],
)
def test_what_cannot_be_trained_is_a_sentence(given, words):
    with pytest.raises(gb.GreybayesError, match=words):
        train_tiny(**given)


def test_steps_among_the_settings_are_the_steps(monkeypatch):
    """And not a number that five minutes, given by nobody, would settle."""
    asked = {}
    monkeypatch.setattr(training, "run", lambda *a, **k: asked.update(k, settings=a[1]) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        gb.train("linear-gaussian", settings={"steps": 30})
    assert (asked["settings"].steps, asked["minutes"]) == (30, None)


# The optimiser.


def learning_rates(settings, gradient=1e-3):
    """A constant gradient of one number makes steps of exactly the learning rate."""
    chain = optimiser(settings)
    state = chain.init(jnp.zeros(1))

    def step(state, _):
        change, state = chain.update(jnp.full(1, gradient), state)
        return state, -change[0]

    return np.asarray(jax.jit(lambda: jax.lax.scan(step, state, length=settings.steps)[1])())


@pytest.mark.parametrize(("steps", "warm_up"), [(200, 0.1), (100, 0.03), (10, 0.0)])
def test_the_rate_rises_over_the_warm_up_and_falls_as_a_cosine(steps, warm_up):
    settings = Settings(steps=steps, learning_rate=0.02, warm_up=warm_up)
    warm = max(1, round(warm_up * steps))
    k = np.arange(steps)
    cosine = 0.5 * (1 + np.cos(np.pi * (k - warm) / (steps - warm)))
    expected = np.where(k < warm, k / warm, 0.01 + 0.99 * cosine) * 0.02
    # Its first step is none: the first gradient only sets the optimiser's basis.
    np.testing.assert_allclose(learning_rates(settings)[1:], expected[1:], rtol=1e-3)


def test_a_gradient_is_clipped_to_its_largest_norm():
    chain = optimiser(Settings(steps=100, clip=2.0))
    gradients = np.array([[0.3, 0.4], [1.0, 0.0], [3e4, 4e4], [0.1, 0.2]], np.float32)
    clipped = gradients.copy()
    clipped[2] = [1.2, 1.6]
    last = []
    for sequence in (gradients, clipped):
        state = chain.init(jnp.zeros(2))
        for gradient in sequence:
            change, state = chain.update(jnp.asarray(gradient), state)
        last.append(change)
    np.testing.assert_allclose(last[0], last[1], rtol=1e-5)
    assert np.abs(last[0]).min() > 0


# The same seed, the same weights.


def test_the_same_seed_gives_the_same_bits(tiny):
    assert_same_weights(tiny, train_tiny())


def test_another_seed_gives_other_first_weights_and_other_records():
    model = gb.get_model("linear-gaussian")
    experiment = training.Experiment(model, model.design, N_STEPS)
    first = [
        training.make_weights(experiment, Settings(**SETTINGS).architecture, seed).head.out.weight
        for seed in (0, 1)
    ]
    assert np.abs(first[0] - first[1]).min() > 0
    paths = [training.pilot(experiment, seed)[0] for seed in (0, 1)]
    assert np.abs(paths[0].theta - paths[1].theta).min() > 0


def test_minutes_settle_the_steps_and_a_rerun_with_them_gives_the_same_weights():
    timed = train_tiny(minutes=1e-6, steps=None)
    steps = timed.header["settings"]["steps"]
    assert steps % BLOCK == 0
    assert timed.header["history"][-1]["step"] == steps
    assert_same_weights(timed, train_tiny(steps=steps))


@pytest.mark.parametrize("minutes", [0.002, 0.01])
def test_steps_are_settled_from_the_measured_speed(minutes):
    def block(state):
        time.sleep(0.004)
        return state

    state = State(None, None, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))
    started = time.perf_counter()
    steps = settle_steps(block, state, minutes, started)
    trial = time.perf_counter() - started
    # A sleep can only last longer than asked for, and a busy machine makes it so.
    assert BLOCK <= steps <= (60 * minutes) / 0.004 * BLOCK
    assert steps % BLOCK == 0
    assert trial < 60 * minutes
    assert steps > 0.2 * (60 * minutes - trial) / 0.004 * BLOCK


# What training tells.


def test_validation_risk_falls(tiny):
    history = tiny.header["history"]
    first, last = history[0], history[-1]
    assert first["validation_risk"] > 0.9
    assert last["validation_risk"] < 0.85 * first["validation_risk"]
    assert last["training_risk"] < 0.9 * first["training_risk"]


def test_history_and_settings_are_saved(tiny):
    history = tiny.header["history"]
    steps = [entry["step"] for entry in history]
    assert steps == list(range(BLOCK, STEPS + 1, BLOCK))
    assert all(math.isfinite(value) for entry in history for value in entry.values())
    assert tiny.header["settings"] == dataclasses.asdict(Settings(steps=STEPS, **SETTINGS))
    assert tiny.header["share_diverged"] == 0.0
    assert tiny.header["n_steps"] == N_STEPS


def test_progress_is_told_after_every_block(tiny):
    seen = []
    again = train_tiny(watch=seen.append)
    assert_same_weights(tiny, again)  # To watch changes nothing.
    assert [p.step for p in seen] == list(range(BLOCK, STEPS + 1, BLOCK))
    assert all(p.steps == STEPS and p.paths_per_second > 0 for p in seen)
    assert seen[-1].seconds_left == 0 < seen[0].seconds_left
    assert seen[-1].validation_risk == again.header["history"][-1]["validation_risk"]


def test_a_risk_that_is_not_finite_stops_with_a_sentence(monkeypatch):
    monkeypatch.setattr(
        training,
        "make_block",
        lambda *_: lambda state: (state._replace(step=state.step + BLOCK), jnp.nan),
    )
    with pytest.raises(EstimatorError, match=r"lost its way at step 10.*lower learning_rate"):
        train_tiny()


# Simulations that diverge.


class Breaking(gb.Model):
    """y = a in noise, until the sixth sample; then infinite where a is above a limit."""

    limit: float = 0.97
    a = gb.Parameter(dist.Uniform(0.0, 1.0))
    states, inputs, outputs = ("x",), ("u",), ("y",)
    design = Cosine()

    def initial(self, u, p):
        return gb.Known(0.0)

    def transition(self, x, u, p, t):
        return gb.Known(x)

    def observation(self, x, u, p, t):
        return dist.Normal(jnp.where((p.a > self.limit) & (t.k > 5), jnp.inf, p.a), 0.1)


def test_diverged_paths_are_counted_and_left_out():
    estimator = train_tiny(Breaking(limit=0.97), steps=100)
    share, count = estimator.header["share_diverged"], 100 * SETTINGS["batch"]
    assert abs(share - 0.03) < 5 * np.sqrt(0.03 * 0.97 / count)
    assert share > 0
    assert all(np.isfinite(array).all() for array in estimator.arrays.values())
    history = estimator.header["history"]
    assert history[-1]["validation_risk"] < 0.5


def test_above_5_percent_training_is_refused_with_a_sentence_about_the_prior():
    with pytest.raises(EstimatorError, match=r"diverged.*at most 5% may.*prior") as error:
        train_tiny(Breaking(limit=0.9))
    # The share is of 4096 draws: 10 %, with a standard error of half a per cent.
    percent = int(str(error.value).split("(")[1].split("%")[0])
    assert 8 <= percent <= 12


@pytest.mark.parametrize(("lost", "refused"), [(0, False), (50, False), (51, True)])
def test_5_percent_themselves_are_allowed(lost, refused):
    if refused:
        with pytest.raises(EstimatorError, match=f"{lost} of 1000 simulations diverged"):
            training.check_diverged(lost, 1000)
    else:
        training.check_diverged(lost, 1000)


# Parameters of very different scale.


class Scales(gb.Model):
    """Two constants, each seen in noise of a third of its range: one problem on two scales."""

    small = gb.Parameter(dist.Uniform(0.0, 1e-3))
    large = gb.Parameter(dist.Uniform(0.0, 1e4))
    states, inputs, outputs = ("x",), ("u",), ("y1", "y2")
    design = Cosine()

    def initial(self, u, p):
        return gb.Known(0.0)

    def transition(self, x, u, p, t):
        return gb.Known(x)

    def observation(self, x, u, p, t):
        scale = jnp.array([1e-3, 1e4])
        return dist.Normal(jnp.stack([p.small, p.large]), scale / 3)


def exact_risk(n_steps, noise=1 / 3, grid=2001):
    """Of the conditional mean, for a uniform on (0, 1) seen n times: by quadrature."""
    theta = np.linspace(0, 1, grid)
    error = noise / np.sqrt(n_steps)
    mean_y = np.linspace(-6 * error, 1 + 6 * error, grid)
    joint = np.exp(-0.5 * ((mean_y[:, None] - theta) / error) ** 2)
    mean = joint @ theta / joint.sum(1)
    variance = (joint @ theta**2) / joint.sum(1) - mean**2
    return 12 * np.average(variance, weights=joint.sum(1))


def test_parameters_of_scale_1e_minus_3_and_1e4_train_equally_well():
    # A batch of 32: with 8 the noise of the gradient is larger than the difference sought.
    settings = {"batch": 32, "chunk": 32}
    estimator = train_tiny(Scales(), n_steps=4, steps=300, settings=settings)
    risk = gb.bayes_risk(estimator, 4000)
    small, large = risk.per_parameter["small"], risk.per_parameter["large"]
    exact = exact_risk(4)
    assert 0.9 * exact < min(small, large)
    assert max(small, large) < 1.25 * exact, (small, large, exact)
    assert 1 / 1.2 < small / large < 1.2


# Killed, interrupted, resumed.

# The command line, which kills itself: at a step, or while it writes its n-th checkpoint.
DRIVER = """
import contextlib, functools, os, signal, sys
from pathlib import Path
from greybayes.amortized import training
from greybayes.cli import app, estimators

step, write, every = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
die = functools.partial(os.kill, os.getpid(), signal.SIGKILL)

@contextlib.contextmanager
def watched(task):
    yield lambda progress: die() if progress.step == step else None

written, fsync = [], os.fsync

def counted(number):
    written.append(number)
    if len(written) == write:
        os.ftruncate(number, 1000)  # Half of it is on the disk.
        die()
    fsync(number)

os.fsync = counted
estimators._watched = watched
training.run = functools.partial(training.run, every_seconds=every)
app(sys.argv[4:])
"""
NEVER = -1
TRAIN = ["train", "linear-gaussian", *map(str, OPTIONS)]


def child(code, *arguments, environment, folder):
    source = str(Path(gb.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        env={**os.environ, **environment, "PYTHONPATH": source},
    )


def checkpoint_step(path):
    """The step at which a checkpoint was written."""
    header, _ = read_file(path)
    assert header["kind"] == "checkpoint"
    return max(entry["step"] for entry in header["history"]) if header["history"] else 0


def test_killed_at_several_moments_it_goes_on_to_the_same_bits(tiny, tmp_path, compiled):
    partial = tmp_path / "a.estimator.partial"

    def killed(*moment, arguments):
        done = child(DRIVER, *moment, *arguments, environment=compiled, folder=tmp_path)
        assert done.returncode == -signal.SIGKILL, done.stderr

    # While it writes its very first checkpoint: there is none, and one starts again.
    killed(NEVER, 1, 0, arguments=[*TRAIN, "-o", "a.estimator"])
    assert not partial.exists()
    # At step 50, after the first checkpoint only.
    killed(50, NEVER, 1e9, arguments=[*TRAIN, "-o", "a.estimator"])
    assert checkpoint_step(partial) == 0
    # Taken up, a checkpoint after every block; while the fifth is written, the fourth counts.
    killed(NEVER, 5, 0, arguments=["train", "--resume", partial])
    assert checkpoint_step(partial) == 30
    # At the last step, before the estimator is written.
    killed(STEPS, NEVER, 0, arguments=["train", "--resume", partial])
    assert checkpoint_step(partial) == STEPS - BLOCK
    assert not (tmp_path / "a.estimator").exists()

    done = CliRunner().invoke(app, ["train", "--resume", str(partial)], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    assert_same_weights(gb.load(tmp_path / "a.estimator"), tiny)
    assert not partial.exists()


@pytest.mark.parametrize("step", [BLOCK, 110])
def test_an_interrupt_saves_and_goes_on_to_the_same_bits(tiny, tmp_path, step):
    def interrupt(progress):
        if progress.step == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_tiny(checkpoint=tmp_path / "a.partial", watch=interrupt)
    assert checkpoint_step(tmp_path / "a.partial") == step
    resumed = gb.resume(tmp_path / "a.partial")
    assert_same_weights(resumed, tiny)
    assert [e["step"] for e in resumed.header["history"]] == [
        e["step"] for e in tiny.header["history"]
    ]
    validation = [[e["validation_risk"] for e in t.header["history"]] for t in (resumed, tiny)]
    assert validation[0] == validation[1]
    assert resumed.header["settings"] == tiny.header["settings"]


def test_ctrl_c_saves_says_how_to_go_on_and_exits_with_130(tmp_path, compiled):
    source = str(Path(gb.__file__).parents[1])
    arguments = [*TRAIN, "--steps", "200000", "-o", "a.estimator"]  # Far longer than the test.
    process = subprocess.Popen(
        [sys.executable, "-m", "greybayes", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **compiled, "PYTHONPATH": source},
        # A background job ignores Ctrl-C, and its children would too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        partial = tmp_path / "a.estimator.partial"
        deadline = time.monotonic() + 240
        while not partial.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert out == ""
    assert "greybayes train --resume a.estimator.partial" in err
    assert "Traceback" not in err
    assert read_file(partial)[0]["settings"]["steps"] == 200000
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.estimator.partial"]


TWO_CORES = """
import sys
import greybayes as gb

gb.configure(cores=2)
import json
settings, n_steps, path = json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

def stop(progress):
    if progress.step == 20:
        raise KeyboardInterrupt

def train(**rest):
    # Few matrices: most of the time is spent on compiling.
    return gb.train(
        "linear-gaussian", steps=30, n_steps=n_steps, settings=settings, network="rnn", **rest
    )

whole = train()
try:
    train(checkpoint=path, watch=stop)
except KeyboardInterrupt:
    pass
resumed = gb.resume(path)
assert whole.header["settings"]["devices"] == 2
assert all((whole.arrays[k] == resumed.arrays[k]).all() for k in whole.arrays)
"""


def test_on_two_cores_too_a_resumed_training_gives_the_same_bits(tmp_path, compiled):
    settings = {name: value for name, value in SETTINGS.items() if name != "devices"}
    arguments = (json.dumps(settings), N_STEPS, tmp_path / "a.partial")
    done = child(TWO_CORES, *arguments, environment=compiled, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    with pytest.raises(EstimatorError, match="ran on 2 cores, here are 1"):
        trainer.resume(tmp_path / "a.partial")


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint at the start of a training."""

    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_tiny(checkpoint=tmp_path / "a.partial", watch=stop)
    return tmp_path / "a.partial"


def test_a_checkpoint_whose_model_has_changed_is_not_taken_up(checkpoint):
    changed = gb.get_model("linear-gaussian").fix(a=0.5)
    with pytest.raises(EstimatorError, match="linear-gaussian"):
        gb.resume(checkpoint, model=changed)
    sooner = gb.get_model("linear-gaussian").free(b=dist.Uniform(0.0, 20.0))
    with pytest.raises(EstimatorError, match="linear-gaussian"):
        gb.resume(checkpoint, model=sooner)


def test_a_finished_estimator_is_not_resumed(tiny, tmp_path):
    path = tiny.save(tmp_path / "a.estimator")
    with pytest.raises(EstimatorError, match="is a finished estimator"):
        gb.resume(path)


def test_a_checkpoint_that_lacks_an_array_is_a_sentence(checkpoint):
    header, arrays = read_file(checkpoint)
    arrays.popitem()
    write_file(checkpoint, header, arrays)
    with pytest.raises(EstimatorError):
        gb.resume(checkpoint)
