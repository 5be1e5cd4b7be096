"""The loop: how many steps, what it tells; killed or interrupted it goes on to the same bits."""

import dataclasses
import functools
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from helpers.commands import ok
from helpers.tiny import (
    N_STEPS,
    NEVER,
    OPTIONS,
    SETTINGS,
    SIZES,
    STEPS,
    assert_same_weights,
    child,
    records_of,
    run_killed,
    stop_at,
    train_tiny,
    untrained,
    write_plant,
)

import greybayes as gb
from greybayes.amortized import loop
from greybayes.amortized.loop import risk_on, settle_steps
from greybayes.amortized.store import read_file, write_file
from greybayes.amortized.training import BLOCK, Settings, State, make_block
from greybayes.errors import EstimatorError

pytestmark = pytest.mark.usefixtures("compiled")

# How many steps.


def test_minutes_compile_once_and_a_rerun_with_their_steps_gives_the_same_weights(monkeypatch):
    blocks = []
    with monkeypatch.context() as patch:
        patch.setattr(loop, "make_block", lambda *a: blocks.append(make_block(*a)) or blocks[0])
        # As if the machine were so fast that 40 steps fit: they are not those of the trial.
        patch.setattr(loop, "settle_steps", lambda *a: settle_steps(*a) and 40)
        timed = train_tiny(minutes=1e-6, steps=None)
    assert [part._cache_size() for block in blocks for part in block] == [1, 1]
    assert timed.header["settings"]["steps"] == timed.header["history"][-1]["step"] == 40
    assert_same_weights(timed, train_tiny(steps=40))


def test_in_no_time_a_block_is_trained():
    timed = train_tiny(minutes=1e-6, steps=None)
    assert timed.header["settings"]["steps"] == timed.header["history"][-1]["step"] == BLOCK


@pytest.mark.parametrize("minutes", [0.002, 0.01])
def test_steps_are_settled_from_the_measured_speed(minutes):
    def block(state, steps):
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
    def block(state, steps):
        return state._replace(step=state.step + BLOCK), jnp.nan

    monkeypatch.setattr(loop, "make_block", lambda *_: block)
    with pytest.raises(EstimatorError, match=r"lost its way at step 10.*lower learning_rate"):
        train_tiny()


# Killed, interrupted, resumed.

TRAIN = ["train", "linear-gaussian", *OPTIONS]


def checkpoint_step(path):
    """The step at which a checkpoint was written."""
    header, _ = read_file(path)
    assert header["kind"] == "checkpoint"
    return max(entry["step"] for entry in header["history"]) if header["history"] else 0


def test_killed_at_several_moments_it_goes_on_to_the_same_bits(tiny, tmp_path, compiled):
    partial = tmp_path / "a.estimator.partial"
    killed = functools.partial(run_killed, environment=compiled, folder=tmp_path)

    # While it writes its very first checkpoint: there is none, and one starts again.
    killed(NEVER, 1, 0, *TRAIN, "-o", "a.estimator")
    assert not partial.exists()
    # At step 50, after the first checkpoint only.
    killed(50, NEVER, 1e9, *TRAIN, "-o", "a.estimator")
    assert checkpoint_step(partial) == 0
    # Taken up, a checkpoint after every block; while the fifth is written, the fourth counts.
    killed(NEVER, 5, 0, "train", "--resume", partial)
    assert checkpoint_step(partial) == 30
    # At the last step, before the estimator is written.
    killed(STEPS, NEVER, 0, "train", "--resume", partial)
    assert checkpoint_step(partial) == STEPS - BLOCK
    assert not (tmp_path / "a.estimator").exists()

    ok("train", "--resume", partial)
    assert_same_weights(gb.load(tmp_path / "a.estimator"), tiny)
    assert not partial.exists()


def assert_same_run(ours, theirs):
    """The same weights and the same looks. The training risk is the mean since a look or start."""
    assert_same_weights(ours, theirs)
    looks = [
        [(look["step"], look["validation_risk"]) for look in each.header["history"]]
        for each in (ours, theirs)
    ]
    assert looks[0] == looks[1]
    assert ours.header["settings"] == theirs.header["settings"]


def test_a_training_may_start_from_an_estimator(tiny, tmp_path):
    """With a learning rate of next to nothing, what it started from is what comes out."""
    file = str(tiny.save(tmp_path / "a.estimator"))
    again = train_tiny(steps=BLOCK, settings={"start": file, "learning_rate": 1e-30})
    for name in tiny.arrays:
        if not name.startswith("typical"):
            # A weight that is zero moves by about as much as the learning rate.
            np.testing.assert_allclose(again.arrays[name], tiny.arrays[name], rtol=0, atol=1e-25)
    assert again.scaling == tiny.scaling
    with pytest.raises(EstimatorError, match="another network"):
        train_tiny(steps=BLOCK, settings={"start": file, "sizes": {**SIZES, "width": 12}})


def test_a_gated_network_can_be_given_cues(tmp_path, compiled):
    """They change nothing at first."""
    gated = untrained("linear-gaussian", network="gated")
    start = str(gated.save(tmp_path / "a.estimator"))
    sizes = {**SIZES, "cues": 4, "reach": 3}
    settings = {"start": start, "network": "cued", "sizes": sizes, "learning_rate": 1e-30}
    cued = train_tiny(steps=BLOCK, settings=settings)
    y = np.stack([record.y for record in records_of(gated)]).astype(np.float32)
    np.testing.assert_allclose(cued.means(y), gated.means(y), rtol=1e-6)
    assert cued.arrays["network.near.cue.gain"].shape == (4, 16)
    with pytest.raises(EstimatorError, match="another network"):
        train_tiny(steps=BLOCK, settings={**settings, "sizes": {**sizes, "context": 5}})
    # Cues that were learnt are neither dropped nor put on other features.
    start = str(cued.save(tmp_path / "b.estimator"))
    for others in ({"network": "gated", "sizes": SIZES}, {"sizes": {**sizes, "reach": 2}}):
        with pytest.raises(EstimatorError, match="another network"):
            train_tiny(steps=BLOCK, settings={**settings, "start": start, **others})


def test_a_mean_alone_can_be_given_a_posterior(tmp_path, compiled):
    mean = train_tiny(settings={"head": "bounded"})
    assert mean.estimate(records_of(mean)[0]).posterior is None
    file = str(mean.save(tmp_path / "a.estimator"))
    both = train_tiny(steps=BLOCK, settings={"start": file})
    assert both.estimate(records_of(mean)[0]).posterior is not None


@pytest.mark.parametrize("step", [BLOCK, 110])
def test_an_interrupt_saves_and_goes_on_to_the_same_bits(tiny, tmp_path, step):
    with pytest.raises(KeyboardInterrupt):
        train_tiny(checkpoint=tmp_path / "a.partial", watch=stop_at(step))
    assert checkpoint_step(tmp_path / "a.partial") == step
    assert_same_run(gb.resume(tmp_path / "a.partial"), tiny)


@pytest.mark.parametrize("step", [30, STEPS])
def test_an_interrupt_before_the_look_of_a_step_loses_no_look(tiny, tmp_path, monkeypatch, step):
    looks = []

    def interrupted(*given):
        looks.append(given)
        if len(looks) == step // BLOCK:
            raise KeyboardInterrupt
        return risk_on(*given)

    monkeypatch.setattr(loop, "risk_on", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train_tiny(checkpoint=tmp_path / "a.partial")
    assert_same_run(gb.resume(tmp_path / "a.partial"), tiny)


def test_ctrl_c_saves_says_how_to_go_on_and_exits_with_130(tmp_path, compiled):
    source = str(Path(gb.__file__).parents[1])
    arguments = [
        *map(str, TRAIN),
        "--steps",
        "200000",
        "-o",
        "a.estimator",
    ]  # Far longer than the test.
    process = subprocess.Popen(
        [sys.executable, "-m", "greybayes", *map(str, arguments)],
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


@pytest.mark.accuracy
def test_on_two_cores_too_a_resumed_training_gives_the_same_bits(tmp_path, compiled):
    settings = {name: value for name, value in SETTINGS.items() if name != "devices"}
    arguments = (json.dumps(settings), N_STEPS, tmp_path / "a.partial")
    done = child(TWO_CORES, *arguments, environment=compiled, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    with pytest.raises(EstimatorError, match="devices is 2, here are 1 cores"):
        gb.resume(tmp_path / "a.partial")


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint at the start of a training."""
    with pytest.raises(KeyboardInterrupt):
        train_tiny(checkpoint=tmp_path / "a.partial", watch=stop_at())
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
    with pytest.raises(EstimatorError, match="not that of a training of this network"):
        gb.resume(checkpoint)


def test_a_checkpoint_never_runs_the_program_that_it_names(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plant = write_plant(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        train_tiny(plant, checkpoint="a.partial", watch=stop_at(STEPS - BLOCK))
    (tmp_path / "ran").unlink()
    with pytest.raises(EstimatorError, match=r"greybayes train plant\.py:Plant --resume FILE"):
        gb.resume("a.partial")
    assert not (tmp_path / "ran").exists()
    # The user passes it. It is linear-gaussian under another name.
    assert_same_weights(gb.resume("a.partial", gb.get_model(plant)), tiny)
