"""The number of devices is chosen before JAX starts, and never silently after."""

import os
import subprocess
import sys

import pytest

import greybayes as gb

SCRIPT = """
import os
import greybayes as gb
print(gb.configure())
print(gb.configure(cores=2))
import jax
import jax.numpy as jnp
print(jnp.ones(3).sum() and jax.device_count())
print(gb.configure(cores=2))
try:
    gb.configure(cores=3)
except gb.GreybayesError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def printed() -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_core_is_used_by_default(printed):
    assert printed[0] == str(len(os.sched_getaffinity(0)))


def test_the_cores_asked_for_become_devices(printed):
    assert printed[1:3] == ["2", "2"]


def test_the_same_number_may_be_asked_for_again(printed):
    assert printed[3] == "2"


def test_another_number_is_too_late_once_something_was_computed(printed):
    assert printed[4:] == [
        "JAX already runs on 2 device(s); call greybayes.configure before anything is computed, "
        "or start Python anew."
    ]


@pytest.mark.parametrize("cores", [0, -2])
def test_there_is_at_least_one_core(cores):
    with pytest.raises(gb.GreybayesError, match=f"cores is {cores}, expected 1 or more"):
        gb.configure(cores=cores)
