"""Every mistake in a user's model is found before it runs, and named: the method, what, and why."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
import pytest
from helpers import assert_moments

import greybayes as gb
from greybayes.errors import ModelError
from greybayes.structure import Kind


class Plant(gb.Model):
    """Right as it stands; each test spoils or changes one thing."""

    gain = gb.Parameter(dist.Uniform(0.5, 1.0))
    states, inputs, outputs = ("x1", "x2"), ("u",), ("y",)

    def initial(self, u, p):
        return gb.Known(0.0)

    def transition(self, x, u, p, t):
        return dist.Normal(p.gain * x + u, 0.1)

    def observation(self, x, u, p, t):
        return dist.Normal(x[0], 0.1)


def plant(**changes) -> gb.Model:
    """A plant with something else in place of a method or an attribute."""
    return type("Plant", (Plant,), changes)()


def fails_at_once(self, x, u, p, t):
    raise KeyError("no such tank")


def branches(self, x, u, p, t):
    if x[0] > 0:
        return dist.Normal(x, 0.1)
    return dist.Normal(-x, 0.1)


def broken_prepare(self, p):
    return {"inverse": jnp.linalg.inv(jnp.ones((2, 3)))}


def asks_too_much(self, p):
    return p.gian


NORMAL = dist.Normal(0.0, 1.0)
MISTAKES = {
    "no initial": (
        {"initial": gb.Model.initial},
        ["Plant has no method initial(u, p)", "the distribution of x_1"],
    ),
    "no transition": (
        {"transition": gb.Model.transition},
        ["Plant has no method transition(x, u, p, t)", "the distribution of x_{k+1}"],
    ),
    "no observation": (
        {"observation": gb.Model.observation},
        ["Plant has no method observation(x, u, p, t)", "the distribution of y_k"],
    ),
    "wrong shape of the initial state": (
        {"initial": lambda self, u, p: gb.Known([0.0, 0.0, 0.0])},
        ["Plant.initial", "shape (3,), expected (2,)", "x1, x2"],
    ),
    "wrong shape of the transition": (
        {"transition": lambda self, x, u, p, t: dist.Normal(x[:, None] * x, 1.0)},
        ["Plant.transition", "shape (2, 2), expected (2,)"],
    ),
    "the state is observed whole": (
        {"observation": lambda self, x, u, p, t: dist.Normal(x, 1.0)},
        ["Plant.observation", "shape (2,), expected (1,)", "each of y."],
    ),
    "a number instead of a distribution": (
        {"transition": lambda self, x, u, p, t: p.gain * x},
        ["Plant.transition returned", "expected a distribution", "gb.Known(value)"],
    ),
    "nothing is returned": (
        {"initial": lambda self, u, p: None},
        ["Plant.initial returned NoneType", "expected a distribution"],
    ),
    "a parameter that is not declared": (
        {"transition": lambda self, x, u, p, t: dist.Normal(p.gian * x, 1.0)},
        ["Plant.transition", "asks for p.gian", "not declared", "did you mean gain?"],
    ),
    "an if on a value that is not known yet": (
        {"transition": branches},
        ["Plant.transition", "branches on a value", "use jnp.where instead of if"],
    ),
    "an exception in a method": (
        {"observation": fails_at_once},
        ["Plant.observation", "KeyError: 'no such tank'"],
    ),
    "a wrong number of arguments": (
        {"transition": lambda self, x, u, p: dist.Normal(x, 1.0)},
        ["Plant.transition", "TypeError", "positional argument"],
    ),
    "states as a string": (
        {"states": "x"},
        ["Plant.states is 'x'", "expected a tuple of names", "needs a comma"],
    ),
    "outputs that are no names": ({"outputs": (1,)}, ["Plant.outputs is (1,)", "tuple of names"]),
    "a name twice": ({"states": ("x", "x")}, ["Plant.states has a name twice: x, x."]),
    "an output called as an input": ({"outputs": ("u",)}, ["Plant", "u"]),
    "no outputs": ({"outputs": ()}, ["Plant has no outputs", "outputs = ('y',)"]),
    "nothing to estimate": (
        {"gain": gb.Fixed(1.0)},
        ["Plant has no free parameter", "gb.Parameter(prior)"],
    ),
    "channels of other names": (
        {"initial": lambda self, u, p: gb.Channels(x1=gb.Known(0.0), x3=gb.Known(0.0))},
        ["Plant.initial returned channels x1, x3, expected x1, x2."],
    ),
    "a channel that is a vector": (
        {"initial": lambda self, u, p: gb.Channels(x1=gb.Known(0.0), x2=gb.Known([0.0, 0.0]))},
        ["Plant.initial", "x2 has shape (2,), expected a scalar"],
    ),
    "a sampler of the wrong shape": (
        {"transition": lambda self, x, u, p, t: gb.Sampler(lambda key: jr.normal(key, (3,)))},
        ["Plant.transition drew a value of shape (3,), expected (2,)", "x1, x2"],
    ),
    "a sampler that fails": (
        {"transition": lambda self, x, u, p, t: gb.Sampler(lambda key: x[:, 0])},
        ["Plant.transition", "Too many indices"],
    ),
    "a design with too many inputs": (
        {"design": gb.inputs.Stack(gb.inputs.Cosine(), gb.inputs.Cosine())},
        ["Plant.design gives 2 inputs, expected 1: u."],
    ),
    "an exception in prepare": ({"prepare": broken_prepare}, ["Plant.prepare", "failed with"]),
    "an undeclared parameter in prepare": (
        {"prepare": asks_too_much},
        ["Plant.prepare", "asks for p.gian", "did you mean gain?"],
    ),
    "time that stands still": ({"dt": 0.0}, ["Plant.dt is 0.0, expected a positive number."]),
    "time that is no number": ({"dt": "fast"}, ["Plant.dt is 'fast', expected a positive number."]),
    "an input from the future": ({"input_delay": -1}, ["Plant.input_delay is -1", "0 or more"]),
    "half a sample of delay": ({"input_delay": 0.5}, ["Plant.input_delay is 0.5", "0 or more"]),
    "no samples": ({"n_steps": -5}, ["Plant.n_steps is -5, expected 1 or more samples."]),
    "a design by its name": ({"design": "prbs"}, ["Plant.design is 'prbs'", "gb.inputs.PRBS()"]),
    "counting from one": (
        {"observation": lambda self, x, u, p, t: dist.Normal(x[2], 0.1)},
        ["Plant.observation", "index 2 out of bounds", "with size 2; the first one has index 0."],
    ),
    "a number for a parameter": (
        {"gain": 0.7},
        ["Plant.gain is 0.7, but gain is a parameter", "write gain = gb.Fixed(0.7)."],
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_with_what_came_and_what_was_expected(mistake):
    changes, words = MISTAKES[mistake]
    with pytest.raises(ModelError) as error:
        _ = plant(**changes).structure
    message = str(error.value)
    assert all(word in message for word in words), message
    assert "\n" not in message.split("\n-----")[0], "a message is one sentence"


@pytest.mark.parametrize("function", [fails_at_once, branches], ids=lambda f: f.__name__)
def test_a_mistake_is_shown_where_it_is(function):
    # Methods are found in the traceback by their name.
    source = {"fails_at_once": "observation", "branches": "transition"}[function.__name__]
    code = function.__code__.replace(co_name=source)
    method = type(function)(code, function.__globals__, source)
    with pytest.raises(ModelError, match=rf"Plant\.{source} \(line \d+ of .*test_structure\.py\)"):
        _ = plant(**{source: method}).structure


def test_simulation_finds_the_mistake_too():
    with pytest.raises(ModelError, match=r"Plant\.initial returned NoneType"):
        gb.simulate(plant(initial=lambda self, u, p: None), inputs="cosine")


NAN_AT_ONCE = {
    "initial": lambda self, u, p: gb.Known(jnp.log(-p.gain)),
    "transition": lambda self, x, u, p, t: dist.Normal(jnp.sqrt(x - p.gain), 1.0),
    "observation": lambda self, x, u, p, t: dist.Normal(jnp.where(p.gain > 0.9, jnp.nan, 0.0), 1),
}


@pytest.mark.parametrize("method", NAN_AT_ONCE)
def test_nan_at_the_first_step_is_a_mistake_and_shows_its_theta(method):
    model = plant(**{method: NAN_AT_ONCE[method]})
    sentence = rf"Plant\.{method} gives NaN at the first step for gain = 0\.\d+; look for a square"
    with pytest.raises(ModelError, match=sentence) as error:
        gb.simulate(model, inputs="cosine", count=64, n_steps=3)
    shown = float(str(error.value).split("gain = ")[1].split(";")[0])
    assert shown > 0.9 or method != "observation"


def noisy(self, u, p):
    return dist.Normal(0.0, 1.0)


def still(self, x, u, p, t):
    return gb.Known(x)


def jumps(self, x, u, p, t):
    return gb.Sampler(lambda key: x + jr.cauchy(key, (2,)))


def partly(self, x, u, p, t):
    return gb.Channels(x1=gb.Known(x[0]), x2=dist.Normal(x[1], 1.0))


def known_parts(self, x, u, p, t):
    return gb.Channels(x1=gb.Known(x[0]), x2=gb.Known(x[1]))


def delta(self, x, u, p, t):
    return dist.Delta(x)


@pytest.mark.parametrize(
    ("changes", "kinds", "output_error"),
    [
        ({}, ("known", "density", "density"), False),
        ({"transition": still}, ("known", "known", "density"), True),
        ({"transition": known_parts}, ("known", "known", "density"), True),
        ({"transition": delta}, ("known", "known", "density"), True),
        ({"transition": partly}, ("known", "singular", "density"), False),
        ({"transition": jumps}, ("known", "sampler", "density"), False),
        ({"transition": still, "initial": noisy}, ("density", "known", "density"), False),
    ],
    ids=["usual", "output error", "known channels", "delta", "mixed", "sampler", "noisy start"],
)
def test_the_kind_of_every_distribution_is_noticed(changes, kinds, output_error):
    structure = plant(**changes).structure
    found = (structure.initial, structure.transition, structure.observation)
    assert found == tuple(Kind[kind] for kind in kinds)
    assert structure.output_error is output_error
    assert structure.lanes


def test_structure_can_be_asked_for_inside_compiled_code():
    model = plant(transition=still)

    @jax.jit
    def compiled(x):
        return x + float(model.structure.output_error)

    assert compiled(1.0) == 2.0


def test_a_signal_as_the_models_own_design_may_have_any_length():
    short = gb.inputs.Signal(np.linspace(0.0, 1.0, 30))
    assert gb.simulate(plant(design=short)).y.shape == (1, 30, 1)


@pytest.fixture(scope="module")
def counter() -> gb.Model:
    class Counter(gb.Model):
        rate = gb.Parameter(dist.Uniform(1.0, 5.0))
        states, inputs, outputs = ("x",), (), ("count",)

        def initial(self, u, p):
            return gb.Known(1.0)

        def transition(self, x, u, p, t):
            return gb.Known(x + 1.0)

        def observation(self, x, u, p, t):
            return dist.Poisson(p.rate * x)

    return Counter()


def test_noise_that_refuses_lanes_is_drawn_from_ordinary_keys(counter):
    assert not counter.structure.lanes
    paths = gb.simulate(counter, {"rate": 3.0}, count=4000, n_steps=3, key=1)
    expected = 3.0 * np.arange(1, 4)
    assert_moments(paths.y[:, :, 0], expected, expected)
