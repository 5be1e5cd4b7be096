"""The model language, written as a user writes it."""

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import greybayes as gb
from greybayes.errors import ModelError


# The twelve lines of DESIGN.md, word for word.
class Growth2(gb.Model):
    """Simplified growth model, M2 of the paper."""

    theta2 = gb.Parameter(dist.Uniform(0.0, 1.0))
    theta6 = gb.Parameter(dist.Uniform(0.1, 2.0))
    theta7 = gb.Parameter(dist.Uniform(0.0, 1.0), doc="variance of the process noise")
    theta8 = gb.Parameter(dist.Uniform(0.0, 1.0), doc="variance of the measurement noise")
    states, inputs, outputs = ("x",), ("u",), ("y",)

    def initial(self, u, p):
        return gb.Known(0.0)

    def transition(self, x, u, p, t):
        return dist.Normal(p.theta2 * x / (0.04 * x**2 + 1) + u, jnp.sqrt(p.theta7))

    def observation(self, x, u, p, t):
        return dist.Normal(p.theta6 * x**2, jnp.sqrt(p.theta8))


class Plant(gb.Model):
    gain = gb.Parameter(dist.Uniform(0.0, 2.0), unit="V/m", doc="gain of the sensor")
    taps = gb.Parameter(dist.Normal(0.0, 1.0), shape=(2,), doc="feedback")
    noise = gb.Fixed(0.5, unit="V", doc="standard deviation")
    offset = gb.Fixed([1.0, -1.0])
    dt = 0.02
    order: int = 3

    def initial(self, u, p):
        return gb.Known(0.0)

    def transition(self, x, u, p, t):
        return gb.Known(p.taps[0] * x + p.taps[1] * u + p.offset.sum())

    def observation(self, x, u, p, t):
        return dist.Normal(p.gain * x, p.noise)


class Child(Plant):
    gain = gb.Fixed(1.0)
    extra = gb.Parameter(dist.Normal(0.0, 1.0))
    dt = 0.5


def test_the_model_of_the_design_equals_the_built_in_one():
    ours = gb.simulate(Growth2(), inputs="cosine:omega=1.2", count=5, n_steps=20, key=1)
    built_in = gb.simulate("growth2", count=5, n_steps=20, key=1)
    np.testing.assert_array_equal(ours.theta, built_in.theta)
    np.testing.assert_array_equal(ours.u, built_in.u)
    np.testing.assert_allclose(ours.y, built_in.y, rtol=1e-3, atol=1e-4)


def test_parameters_are_declared_in_order():
    model = Plant()
    assert list(model.parameters) == ["gain", "taps", "noise", "offset"]
    assert model.prior.names == ("gain", "taps[0]", "taps[1]")


def test_p_holds_every_parameter_in_its_shape():
    p = Plant().p(jnp.array([0.5, 1.0, 2.0]))
    assert p._fields == ("gain", "taps", "noise", "offset")
    shown = [np.asarray(value).tolist() for value in p]
    assert shown == [0.5, [1.0, 2.0], 0.5, [1.0, -1.0]]


def test_fixing_makes_a_new_model_and_keeps_the_labels():
    model = Plant()
    fixed = model.fix(gain=0.7)
    assert type(fixed) is Plant
    assert fixed is not model
    assert model.prior.names == ("gain", "taps[0]", "taps[1]")
    assert fixed.prior.names == ("taps[0]", "taps[1]")
    gain = fixed.parameters["gain"]
    assert isinstance(gain, gb.Fixed)
    assert (gain.value, gain.unit, gain.doc) == (0.7, "V/m", "gain of the sensor")
    assert list(fixed.parameters) == list(model.parameters)
    assert float(fixed.p(jnp.zeros(2)).gain) == pytest.approx(0.7)


def test_freeing_makes_a_new_model_and_keeps_the_labels():
    model = Plant(dt=0.1, order=5)
    freed = model.free(noise=dist.HalfNormal(1.0))
    assert freed.prior.names == ("gain", "taps[0]", "taps[1]", "noise")
    assert (freed.parameters["noise"].unit, freed.parameters["noise"].doc) == (
        "V",
        "standard deviation",
    )
    assert (freed.dt, freed.order) == (0.1, 5)
    assert model.prior.size == 3


def test_a_scalar_prior_frees_a_vector_entry_by_entry():
    freed = Plant().free(offset=dist.Normal(0.0, 1.0))
    assert freed.prior.names[-2:] == ("offset[0]", "offset[1]")


def test_changes_add_up_and_can_be_taken_back():
    model = Plant().fix(gain=0.7).fix(taps=[0.1, 0.2]).free(gain=dist.Uniform(0.5, 0.6))
    assert model.prior.names == ("gain",)
    assert float(model.prior.mean[0]) == pytest.approx(0.55)
    np.testing.assert_allclose(model.p(jnp.array([0.5])).taps, [0.1, 0.2])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.fix(gian=0.7), ["Plant has no parameter gian", "did you mean gain?"]),
        (lambda m: m.free(tabs=dist.Normal(0, 1)), ["Plant has no parameter tabs", "taps"]),
        (lambda m: m.fix(gain=[1.0, 2.0]), ["gain", "shape (2,)", "expected ()"]),
        (lambda m: m.fix(taps=0.5), ["taps", "shape ()", "expected (2,)"]),
        (lambda m: m.free(gain=dist.Normal(jnp.zeros(2), 1)), ["gain", "(2,)", "()"]),
        (lambda m: m.free(taps=dist.Normal(jnp.zeros(3), 1)), ["(2,)", "(3,)"]),
        (lambda m: m.fix(gain="high"), ["'high'", "expected a number"]),
    ],
)
def test_a_change_that_does_not_fit_is_refused(change, words):
    with pytest.raises(ModelError) as error:
        change(Plant())
    assert all(word in str(error.value) for word in words), str(error.value)


def test_a_bare_attribute_changes_a_default_and_the_constructor_overrides_it():
    assert (gb.Model.dt, Plant().dt, Child().dt) == (1.0, 0.02, 0.5)
    assert (Plant(dt=0.1).dt, Child(dt=0.1).dt) == (0.1, 0.1)
    assert (Plant().order, Plant(order=4).order, Child(order=4).order) == (3, 4, 4)
    assert Plant(input_delay=2, input_before=-1.0, n_steps=7).n_steps == 7


def test_parameters_are_no_constructor_fields():
    with pytest.raises(TypeError, match="gain"):
        Plant(gain=0.5)


def test_a_subclass_inherits_parameters_and_overrides_some():
    child = Child()
    assert list(child.parameters) == ["gain", "taps", "noise", "offset", "extra"]
    assert child.prior.names == ("taps[0]", "taps[1]", "extra")
    assert Plant().prior.names == ("gain", "taps[0]", "taps[1]")


def test_declare_may_depend_on_a_field():
    class Filter(Plant):
        def declare(self):
            return {"b": gb.Parameter(dist.Normal(0.0, 1.0), shape=(self.order,))}

    assert Filter(order=2).prior.names == ("b[0]", "b[1]")
    assert Filter(order=2).fix(b=[1.0, 2.0]).prior.names == ()
    assert Filter().prior.size == 3


@pytest.mark.parametrize("name", ["dt", "order", "gain", "anything"])
def test_a_model_is_frozen(name):
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(Plant(), name, 1.0)


def test_two_models_are_two_even_where_they_agree():
    # Compiled functions are cached by the model: equal ones with different priors must not meet.
    model = Plant()
    assert hash(model) == hash(model)
    assert model != Plant()


class Prepared(NamedTuple):
    squared: jax.Array
    matrix: jax.Array


def test_prepare_is_computed_once_for_each_theta_and_used_as_computed():
    calls = []

    class Turning(gb.Model):
        rate = gb.Parameter(dist.Uniform(0.0, 1.0))
        states, inputs, outputs = ("a", "b"), (), ("a_seen", "squared")

        def prepare(self, p):
            jax.debug.callback(lambda rate: calls.append(float(rate)), p.rate)
            c, s = jnp.cos(p.rate), jnp.sin(p.rate)
            return Prepared(p.rate**2, jnp.array([[c, -s], [s, c]]))

        def initial(self, u, p):
            return gb.Known([1.0, 0.0])

        def transition(self, x, u, p, t):
            return gb.Known((p.matrix * x).sum(-1))

        def observation(self, x, u, p, t):
            return gb.Known(jnp.stack([x[0], p.squared]))

    model = Turning()
    assert model.structure.output_error
    jax.effects_barrier()
    calls.clear()
    rates = np.array([[0.1], [0.2], [0.3]])
    paths = gb.simulate(model, rates, count=3, n_steps=6)
    jax.effects_barrier()
    assert sorted(calls) == pytest.approx([0.1, 0.2, 0.3])
    np.testing.assert_allclose(paths.y[:, :, 0], np.cos(rates * np.arange(6)), atol=1e-5)
    np.testing.assert_allclose(paths.y[:, :, 1], np.broadcast_to(rates**2, (3, 6)), rtol=1e-5)


# A wrong type never comes as far as the sentence for it where the run-time shape check is on, so
# these run as a user runs them: in a Python of their own.
MISTYPED = {
    "gb.Parameter(0.5)": "a Parameter got 0.5 as its prior, expected a distribution such as",
    "gb.Channels(speed=0.0)": "Channels: speed is float, expected a distribution with a density",
    "gb.Sampler(0.5)": "Sampler got float, expected a function of a key.",
    "gb.get_model(0.5)": "0.5 is not a model, expected a gb.Model or the name of one.",
}


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    program = f"""
import greybayes as gb
for text in {list(MISTYPED)!r}:
    try:
        eval(text)
    except gb.GreybayesError as error:
        print(error)
    else:
        print("accepted")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("index", range(len(MISTYPED)), ids=MISTYPED)
def test_a_value_of_the_wrong_type_is_refused_in_a_sentence(sentences, index):
    assert sentences[index].startswith(list(MISTYPED.values())[index])


def test_every_public_name_can_be_fetched():
    missing = [name for name in gb.__all__ if not hasattr(gb, name)]
    assert missing == []
    with pytest.raises(AttributeError, match="simulat"):
        _ = gb.simulat


def test_no_public_name_is_also_a_module():
    # Importing the module would put it in the place of the function, and gb.simulate(...) fail.
    modules = {path.stem for path in Path(gb.__file__).parent.iterdir()}
    assert modules & set(gb.__all__) == {"inputs"}
    assert callable(gb.simulate)
