"""Training: settings, schedule, the same seed the same bits, divergence, scales."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest
from helpers.tiny import N_STEPS, SETTINGS, assert_same_weights, train_tiny

import greybayes as gb
from greybayes.amortized import loop, training
from greybayes.amortized.paper import PaperSettings
from greybayes.amortized.training import Experiment, Settings, optimiser, rate
from greybayes.errors import EstimatorError
from greybayes.inputs import Cosine
from greybayes.zoo.linear_gaussian import LinearGaussian

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
    with pytest.raises(EstimatorError, match=f"{name} is {value}, expected a whole number"):
        Settings(**{name: value})


@pytest.mark.parametrize("cls", [Settings, PaperSettings])
@pytest.mark.parametrize("seed", [-1, 2**32])
def test_what_is_no_seed_is_a_sentence(cls, seed):
    with pytest.raises(EstimatorError, match=f"seed is {seed}, expected a whole number from 0"):
        cls(seed=seed)


def test_0_steps_are_refused():
    with pytest.raises(EstimatorError, match="steps is 0"):
        train_tiny(steps=0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"minutes": 1.0, "steps": 10}, "minutes or steps, not both"),
        ({"minutes": 0.0, "steps": None}, "minutes is 0.0, expected a number"),
        ({"minutes": math.nan, "steps": None}, "minutes is nan"),
        ({"steps": 10, "settings": {"steps": 20}}, "steps is given twice, 10 and 20"),
        ({"minutes": 1.0, "steps": None, "settings": {"steps": 20}}, "minutes or steps, not both"),
        ({"seed": 3, "settings": {"seed": 7}}, "seed is given twice, 3 and 7"),
        ({"seed": -1}, "seed is -1, expected a whole number from 0"),
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
    monkeypatch.setattr(loop, "run", lambda *a, **k: asked.update(k, settings=a[1]) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        gb.train("linear-gaussian", settings={"steps": 30})
    assert (asked["settings"].steps, asked["minutes"]) == (30, None)


def test_a_class_is_a_model_with_its_own_fields(tmp_path):
    """In a training, and where a file is read."""
    estimator = train_tiny(LinearGaussian, steps=10)
    assert estimator.header["model"]["name"] == "linear-gaussian"
    file = estimator.save(tmp_path / "a.estimator")
    assert isinstance(gb.load(file, model=LinearGaussian).model, LinearGaussian)


# The optimiser.


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        # The first 20 of 200 steps are the warm-up, 0.02 is the top, the bottom is 1 % of it.
        (0, 0.0),
        (10, 0.01),
        (20, 0.02),
        (65, 0.02 * (0.01 + 0.99 * (1 + math.sqrt(0.5)) / 2)),
        (110, 0.0101),
        (200, 0.0002),
        (210, 0.0002),
    ],
)
def test_the_rate_by_hand(step, expected):
    settings = Settings(learning_rate=0.02, warm_up=0.1)
    assert rate(settings, jnp.asarray(step), 200) == pytest.approx(expected, abs=2e-8)


@pytest.mark.parametrize(("steps", "warm_up"), [(200, 0.1), (100, 0.03), (1000, 0.05), (10, 0.0)])
def test_the_rate_is_optaxs_where_the_warm_up_is_whole(steps, warm_up):
    settings = Settings(learning_rate=0.02, warm_up=warm_up)
    warm = max(1, round(warm_up * steps))
    theirs = optax.warmup_cosine_decay_schedule(0.0, 0.02, warm, steps, end_value=0.0002)
    k = jnp.arange(steps + 1)
    for given in (steps, jnp.asarray(steps)):  # As a constant, and as a compiled block has it.
        np.testing.assert_allclose(rate(settings, k, given), theirs(k), atol=1e-6 * 0.02)


@pytest.mark.accuracy
def test_a_block_makes_its_steps_at_their_rate(compiled):
    """In a warm-up so long that the weights hardly move, they move as far as the rate says."""
    model = gb.get_model("linear-gaussian")
    experiment, settings = Experiment(model, model.design, N_STEPS), Settings(**SETTINGS)
    weights = training.make_weights(experiment, settings.architecture, 0)
    state = training.first_state(weights, settings)
    block = training.make_block(experiment, settings, training.pilot(experiment, 0)[1], weights)

    def way(state, steps):
        moved = block(state, steps)[0].weights
        return optax.tree.norm(jax.tree.map(jnp.subtract, moved, state.weights))

    once = way(state, 20_000)
    assert once > 0
    np.testing.assert_allclose(once / way(state, 40_000), 2, rtol=0.02)
    # From step 10 on, runs of 5 and of 10 steps are both at the bottom.
    later = state._replace(step=jnp.asarray(10))
    assert 0 < way(later, 5) == way(later, 10)


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
    experiment = Experiment(model, model.design, N_STEPS)
    first = [
        training.make_weights(experiment, Settings(**SETTINGS).architecture, seed).head.out.weight
        for seed in (0, 1)
    ]
    assert np.abs(first[0] - first[1]).min() > 0
    paths = [training.pilot(experiment, seed)[0] for seed in (0, 1)]
    assert np.abs(paths[0].theta - paths[1].theta).min() > 0


# Simulations that diverge.


class Constant(gb.Model):
    """A state that stays where it is: all that is seen is made by the observation."""

    design = Cosine()

    def initial(self, u, p):
        return gb.Known(0.0)

    def transition(self, x, u, p, t):
        return gb.Known(x)


class Breaking(Constant):
    """y = a in noise, until the sixth sample; then infinite where a is above a limit."""

    limit: float = 0.97
    a = gb.Parameter(dist.Uniform(0.0, 1.0))

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


class Scales(Constant):
    """Two constants, each seen in noise of a third of its range: one problem on two scales."""

    small = gb.Parameter(dist.Uniform(0.0, 1e-3))
    large = gb.Parameter(dist.Uniform(0.0, 1e4))
    outputs = ("y1", "y2")

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


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learning_rate": -1.0}, "learning_rate is -1.0, expected a number more than 0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"clip": 0.0}, "clip is 0.0"),
        ({"warm_up": 1.0}, "warm_up is 1.0, expected a share from 0 to below 1"),
    ],
)
def test_settings_with_which_nothing_is_learnt_are_refused(changes, words):
    with pytest.raises(EstimatorError, match=words):
        Settings(**changes)
