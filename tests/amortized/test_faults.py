"""Statistics of records, records that are spoilt, and the small network that tells them."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from helpers.tiny import records_of, train_tiny, untrained

import greybayes as gb
from greybayes.amortized import spoilt
from greybayes.amortized.faults import score, statistics
from greybayes.amortized.spoilt import learn, spoil
from greybayes.amortized.trainer import compared_anew
from greybayes.errors import EstimatorError
from greybayes.zoo.linear_gaussian import LinearGaussian


def channels(y, u):
    return np.concatenate([y, np.ones_like(y), u], axis=-1)


def drawn(n=4, n_steps=40, n_outputs=1, n_inputs=1, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, n_steps, n_outputs)), rng.normal(size=(n, n_steps, n_inputs))


def test_statistics_by_hand():
    y, u = drawn()
    found = statistics(np, channels(y, u), 1)[2]
    one, v = y[2, :, 0], u[2, :, 0]
    z, w, w2 = ((a - a.mean()) / a.std() for a in (one, v, v**2))
    n = len(z)
    by_hand = [one.mean(), np.log(one.std()), np.log(np.abs(np.diff(one)).sum() / n)]
    by_hand += [(z**3).mean(), np.log((z**4).mean())]
    by_hand += [(z[lag:] * z[: n - lag]).sum() / n for lag in (1, 2, 3, 4)]
    by_hand += [(z[lag:] * d[: n - lag]).sum() / n for d in (w, w2) for lag in range(5)]
    np.testing.assert_allclose(found, by_hand, atol=1e-4)


@pytest.mark.parametrize("n_steps", [1, 2, 3, 40])
def test_every_record_has_as_many_statistics_and_all_are_numbers(n_steps):
    y, u = drawn(n_steps=n_steps, n_outputs=2, n_inputs=3)
    y[1] = 7.0  # A sensor that stands still.
    found = statistics(np, channels(y, u), 2)
    assert found.shape == (4, 2 * (9 + 2 * 5 * 3))
    assert np.isfinite(found).all()
    same = statistics(jnp, jnp.asarray(channels(y, u)), 2)
    np.testing.assert_allclose(same[0], found[0], atol=1e-4)


@pytest.fixture(scope="module")
def paths(compiled):
    return gb.simulate("linear-gaussian", n_steps=30, count=300, key=1)


def test_every_record_is_spoilt_and_stays_finite(paths):
    y = spoil(paths, np.random.default_rng(0))
    assert y.shape == paths.y.shape
    assert y.dtype == np.float32
    assert np.isfinite(y).all()
    assert (np.abs(y - paths.y).max((1, 2)) > 0).mean() > 0.98
    np.testing.assert_array_equal(y, spoil(paths, np.random.default_rng(0)))


def test_faults_of_many_kinds_are_among_them(paths):
    before, after = paths.y[:, :, 0].astype(float), spoil(paths, np.random.default_rng(0))[:, :, 0]
    off = after - before
    still = np.diff(after, axis=1) == 0
    found = {
        "an offset": np.ptp(off, axis=1) < 1e-5,
        "a gain": np.ptp(after / before, axis=1) < 1e-3,
        "late": [
            any(np.allclose(a, np.roll(b, k)) for k in (1, 2, 3))
            for a, b in zip(after, before, strict=True)
        ],
        "turned round": np.isclose(after, before[:, ::-1]).all(1),
        "standing still": still[:, -1] & (still.sum(1) > 1),
        "another plant": np.isclose(off, 0).any(1) & ~np.isclose(off, 0).all(1) & ~still[:, -1],
    }
    # Of 300 records 27 have each; half of that is five standard deviations away.
    assert {name: np.sum(each) > 10 for name, each in found.items()} == dict.fromkeys(found, True)


def test_what_is_no_number_is_not_learnt():
    good, bad = np.random.default_rng(0).normal(size=(2, 600, 3))
    bad[5, 1], bad[7, 2] = np.inf, np.nan
    assert all(np.isfinite(array).all() for array in learn(good, bad, seed=1).values())


def test_a_kind_of_fault_can_be_left_out(paths):
    still = [
        np.sum(np.diff(spoil(paths, np.random.default_rng(0), without)[:, -3:, 0]) == 0)
        for without in ((), ("dead",))
    ]
    assert still[0] > 10
    assert still[1] == 0
    with pytest.raises(EstimatorError, match="no fault daed; did you mean dead"):
        spoil(paths, np.random.default_rng(0), ["daed"])


def test_kinds_have_their_names(paths):
    y = paths.y.astype(float)
    assert tuple(spoilt._kinds(y, y, np.random.default_rng(0))) == spoilt.KINDS


def test_noise_with_a_memory_has_the_same_variance():
    noise = np.random.default_rng(0).normal(size=(2000, 60, 1))
    memory = np.full((2000, 1, 1), 0.8)
    found = spoilt._with_memory(noise, memory)
    np.testing.assert_allclose(found.var((0, 2)), 1.0, atol=0.15)
    neighbours = np.mean(found[:, 1:] * found[:, :-1])
    assert neighbours == pytest.approx(0.8, abs=0.02)


def test_what_is_measured_without_noise_is_the_mean_of_the_observation():
    model = gb.get_model("growth2")
    paths = gb.simulate(model, n_steps=20, count=5, key=2)
    mean = spoilt._without_noise(paths)
    np.testing.assert_allclose(mean, paths.theta[:, 1, None, None] * paths.x**2, rtol=1e-5)


class Drawn(gb.Model):
    """Its output has no density, and so no mean that anybody knows."""

    a = gb.Parameter(dist.Uniform(0.5, 1.0))
    states, inputs, outputs = ("x",), (), ("y",)

    def initial(self, u, p):
        return gb.Known(0.0)

    def transition(self, x, u, p, t):
        return dist.Normal(p.a * x, 1.0)

    def observation(self, x, u, p, t):
        return gb.Sampler(lambda key: x + 0.1 * dist.Normal(0.0, 1.0).sample(key, (1,)))


def test_an_output_without_a_mean_is_spoilt_in_other_ways():
    paths = gb.simulate(Drawn(), n_steps=20, count=50, key=3)
    assert spoilt._without_noise(paths) is None
    assert np.isfinite(spoil(paths, np.random.default_rng(0))).all()


def test_it_learns_what_differs():
    rng = np.random.default_rng(0)
    good, bad = rng.normal(size=(2, 2000, 6))
    bad[:, 2] += 2.0
    arrays = learn(good, bad, seed=1)
    new, spoiled = rng.normal(size=(2, 500, 6))
    spoiled[:, 2] += 2.0
    scores = score(np, arrays, new), score(np, arrays, spoiled)
    assert scores[1].mean() > scores[0].mean() + 2
    # The best there is tells them by one number, which is right in 84 of 100 cases.
    right = np.mean([(scores[0] < 0).mean(), (scores[1] > 0).mean()])
    assert 0.78 < right < 0.88


class Plant(LinearGaussian):
    """A user's own, which no name finds again."""


def test_a_misfit_check_can_be_made_anew(compiled):
    trained = train_tiny(Plant(), settings={"n_reference": 64})
    same, other = (compared_anew(trained, without=kinds) for kinds in ((), ("offset", "gain")))
    for name, array in trained.arrays.items():
        np.testing.assert_array_equal(same.arrays[name], array)
    faults, weight = "typical.faults.first", "network.first.weight"
    assert not np.allclose(other.arrays[faults], trained.arrays[faults])
    np.testing.assert_array_equal(other.arrays[weight], trained.arrays[weight])
    assert len(compared_anew(trained, n_reference=96).arrays["typical.reference"]) == 96
    before, after = (each.estimate(records_of(trained, 1)[0]) for each in (trained, same))
    assert before.diagnostics == after.diagnostics


def test_an_estimator_knows_faults(compiled):
    arrays = untrained("linear-gaussian", n_reference=64).arrays
    assert {"typical.faults.first", "typical.scales", "typical.reference"} <= arrays.keys()
    assert all(np.isfinite(a).all() for n, a in arrays.items() if n.startswith("typical."))
