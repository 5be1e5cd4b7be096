"""Estimators: records in, estimates out; what they refuse; NumPy beside JAX; their risk."""

import functools
import json

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
import pytest
from helpers.tiny import (
    N_STEPS,
    SETTINGS,
    records_of,
    stop_at,
    train_tiny,
    untrained,
    with_arrays,
    write_plant,
)

import greybayes as gb
from greybayes.amortized import estimator as module
from greybayes.amortized import forward
from greybayes.amortized.estimator import PRETRAINED, SUFFIX, Estimator, load
from greybayes.amortized.identity import (
    check_identity,
    describe_theta,
    reference_path,
    weights_from,
)
from greybayes.amortized.risk import bayes_risk
from greybayes.amortized.trained_for import design_text
from greybayes.errors import EstimatorError, RecordError
from greybayes.zoo.fir import Fir

# Interval supports; a vector with a multivariate prior; no inputs; positive supports.
MODELS = ["linear-gaussian", "fir", "stochastic-volatility", "sir"]
SHIPPED = sorted(PRETRAINED.glob(f"*{SUFFIX}"))


@pytest.fixture(scope="module")
def make(compiled):
    """Estimators with random weights, one for each model."""
    return functools.cache(untrained)


@pytest.fixture(scope="module")
def lg(make):
    return make("linear-gaussian")


def means(estimates):
    return np.stack([e.mean for e in estimates])


# Estimates.


def test_an_estimate_of_one_record(tiny):
    record = records_of(tiny, 1)[0]
    estimate = tiny.estimate(record)
    assert estimate.names == ("a", "b", "q", "r") == tiny.names
    assert (estimate.method, estimate.model) == ("deepbayes", "linear-gaussian")
    assert estimate.status is gb.Status.ok
    assert 0 < estimate.seconds < 60
    assert estimate.covariance is not None
    assert estimate.covariance.shape == (4, 4)
    assert 0 < estimate.diagnostics["misfit_p"] <= 1
    assert tiny.model.prior.in_support(jnp.asarray(estimate.mean, jnp.float32))


def test_several_records_in_one_pass_are_one_by_one(tiny):
    records = records_of(tiny, 11)
    together = tiny.estimate(records)
    assert isinstance(together, list)
    np.testing.assert_allclose(means(together), means(map(tiny.estimate, records)), rtol=1e-5)
    assert np.ptp(means(together), axis=0).min() > 1e-3  # Each has its own.
    turned = tiny.estimate(records[::-1])
    np.testing.assert_allclose(means(turned), means(together)[::-1], rtol=1e-5)


def test_several_records_are_one_call(tiny, monkeypatch):
    calls = []
    real = Estimator.outputs
    monkeypatch.setattr(Estimator, "outputs", lambda *a, **k: calls.append(1) or real(*a, **k))
    tiny.estimate(records_of(tiny, 5))
    assert len(calls) == 1


def test_no_records_give_no_estimates(tiny):
    assert tiny.estimate([]) == []


def test_a_record_without_input_takes_the_estimators(tiny):
    record = records_of(tiny, 1)[0]
    bare = gb.Record(y=record.y)
    np.testing.assert_array_equal(tiny.estimate(bare).mean, tiny.estimate(record).mean)


def test_a_trained_estimator_is_better_than_the_prior(tiny):
    risk = bayes_risk(tiny, 2000)
    last = tiny.header["history"][-1]["validation_risk"]
    assert risk.mean < 0.8
    # 200 validation paths beside 2000 draws.
    assert abs(risk.mean - last) < 5 * risk.standard_error * np.sqrt(1 + 2000 / 200)


# Files.


@pytest.mark.parametrize("name", MODELS)
def test_a_file_gives_the_same_estimates(make, name, tmp_path):
    estimator = make(name)
    records = records_of(estimator, 20)
    again = Estimator.load(estimator.save(tmp_path / "a.estimator"))
    np.testing.assert_array_equal(
        means(again.estimate(records)), means(estimator.estimate(records))
    )
    assert again.names == estimator.names
    np.testing.assert_array_equal(again.input, estimator.input)


def test_a_trained_file_gives_the_same_estimates(tiny, tmp_path):
    records = records_of(tiny)
    again = load(str(tiny.save(tmp_path / "a.estimator")))
    np.testing.assert_array_equal(means(again.estimate(records)), means(tiny.estimate(records)))


def test_a_file_may_hold_half_precision(lg, tmp_path):
    kept = {name: array.astype(np.float16) for name, array in lg.arrays.items()}
    again = load(str(with_arrays(lg, kept).save(tmp_path / "a.estimator")))
    assert {array.dtype for array in again.arrays.values()} == {np.dtype(np.float32)}
    for name, array in again.arrays.items():
        np.testing.assert_array_equal(array, kept[name].astype(np.float32))
    half, whole = (
        (tmp_path / "a.estimator").stat().st_size,
        lg.save(tmp_path / "b").stat().st_size,
    )
    assert half < whole
    records = records_of(lg)
    spread = np.sqrt(lg.model.prior.variance)
    moved = (means(again.estimate(records)) - means(lg.estimate(records))) / spread
    assert 0 < np.abs(moved).max() < 0.05


def test_a_file_needs_no_suffix(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny.save("mine")
    assert load("mine").names == tiny.names


def test_an_unknown_name_lists_the_nearest(tmp_path, monkeypatch):
    for name in ("growth1", "growth2", "sir"):
        (tmp_path / f"{name}{SUFFIX}").touch()
    monkeypatch.setattr(module, "PRETRAINED", tmp_path)
    with pytest.raises(EstimatorError, match=r"no estimator grwth2.* did you mean growth2"):
        load("grwth2")
    with pytest.raises(EstimatorError, match=r"known: growth1, growth2, sir\."):
        load("tanks")
    with pytest.raises(EstimatorError, match=r"there is no file .*nowhere\.estimator"):
        load(tmp_path / "nowhere.estimator")


def test_a_folder_of_the_same_name_does_not_hide_a_pretrained_one(tiny, tmp_path, monkeypatch):
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    tiny.save(shipped / f"mine{SUFFIX}")
    (tmp_path / "mine").mkdir()
    monkeypatch.setattr(module, "PRETRAINED", shipped)
    monkeypatch.chdir(tmp_path)
    assert load("mine").names == tiny.names


def test_a_checkpoint_is_refused_with_the_command_that_goes_on(tmp_path):
    path = tmp_path / "a.estimator.partial"
    with pytest.raises(KeyboardInterrupt):
        train_tiny(checkpoint=path, watch=stop_at())
    with pytest.raises(EstimatorError, match=f"unfinished.*greybayes train --resume {path}"):
        load(path)


# What an estimator was not trained for.


def changed(record, **fields):
    values = {"y": record.y, "u": record.u, "dt": record.dt, "name": "tank 3", **fields}
    return gb.Record(**values)


def with_gap(y):
    y = np.array(y)
    y[3:5] = np.nan
    return y


REFUSED = {
    "shorter": (
        lambda r: changed(r, y=r.y[:-4], u=r.u[:-4]),
        # Its input is one that was drawn: of a new length, another one would be.
        ["20 samples", "trained for 24", "train linear-gaussian --input FILE --length 20"],
    ),
    "missing samples": (
        lambda r: changed(r, y=with_gap(r.y)),
        ["2 missing samples", "trained for complete records", "greybayes train linear-gaussian"],
    ),
    "another input": (
        lambda r: changed(r, u=r.u + 0.5),
        ["another input", "trained for", "0.5", "greybayes train linear-gaussian --input"],
    ),
    "one sample of another input": (
        lambda r: changed(r, u=np.r_[r.u[:-1], [[0.9]]]),
        ["another input", "greybayes train linear-gaussian --input"],
    ),
    "two inputs": (
        lambda r: changed(r, u=np.hstack([r.u, r.u])),
        ["(24, 2)", "trained for", "(24, 1)"],
    ),
    "another dt": (
        lambda r: changed(r, dt=0.5),
        ["dt = 0.5", "trained for 1", "train"],
    ),
    "uneven times": (
        lambda r: changed(r, dt=None, times=np.r_[np.arange(23.0), 24.0]),
        ["uneven times", "trained for dt = 1", "Resample"],
    ),
    "a damaged sample": (
        lambda r: changed(r, y=np.r_[r.y[:-1], [[1e300]]]),
        ["outputs up to 1e+300", "wrong unit or a damaged sample"],
    ),
    "another unit by far": (lambda r: changed(r, y=1e12 * r.y), ["out of all proportion"]),
    "two outputs": (
        lambda r: changed(r, y=np.hstack([r.y, r.y])),
        ["2 outputs", "trained for 1", "y"],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("engine", ["jax", "numpy"])
def test_a_record_it_was_not_trained_for_is_refused(lg, case, engine):
    change, words = REFUSED[case]
    good = records_of(lg, 1)[0]
    with pytest.raises(EstimatorError) as error:
        lg.estimate([good, change(good)], engine=engine)
    sentence = str(error.value)
    assert "record tank 3" in sentence  # Which of the records.
    assert [word for word in words if word not in sentence] == [], sentence


@pytest.mark.parametrize("engine", ["jax", "numpy"])
def test_channels_of_the_models_names_in_another_order_are_refused(compiled, engine):
    animals = untrained("lotka-volterra")
    good = records_of(animals, 1)[0]
    unnamed = changed(good, outputs=("y1", "y2"))
    found = [animals.estimate(each, engine=engine).mean for each in (good, unnamed)]
    assert np.array_equal(*found)
    with pytest.raises(RecordError, match="predators, prey and the model prey, predators"):
        animals.estimate(changed(good, outputs=good.outputs[::-1]), engine=engine)


def test_the_refusal_of_an_input_names_the_one_it_was_trained_for(compiled):
    growth = untrained("growth2")
    good = records_of(growth, 1)[0]
    with pytest.raises(EstimatorError, match="cosine"):
        growth.estimate(changed(good, u=-good.u))


def test_the_refusal_of_a_length_tells_what_the_training_must_know_of_the_input(compiled):
    growth = untrained("growth2")
    good = records_of(growth, 1)[0]
    own = " --input cosine:amplitude=1,offset=0,omega=1.2,phase=0"
    for u, option in ((good.u, own), (None, own), (-good.u, " --input FILE")):
        short = changed(good, y=good.y[:-4], u=None if u is None else u[:-4])
        with pytest.raises(EstimatorError, match=f"greybayes train growth2{option} --length 20"):
            growth.estimate(short)


@pytest.mark.parametrize(
    "text",
    [
        *("prbs:amplitude=1.5,hold=5", "cosine:omega=0.5..2", "steps", "prbs:hold=3/chirp"),
        *("multisine", "white_noise", "cosine:omega=0.12345678901"),
    ],
)
def test_the_text_of_a_design_is_that_design_again(text):
    design = gb.inputs.parse(text)
    assert gb.inputs.parse(design_text(design.to_dict())) == design


def test_an_input_rounded_as_a_file_rounds_it_is_the_same(lg):
    record = records_of(lg, 1)[0]
    rounded = changed(record, u=np.round(record.u + 1e-4, 3))
    np.testing.assert_array_equal(lg.estimate(rounded).mean, lg.estimate(record).mean)


def test_one_trained_for_any_input_reads_the_inputs_of_the_records(compiled):
    settings = {**SETTINGS, "n_reference": 50}
    any_input = gb.train(
        "linear-gaussian", inputs="prbs", steps=10, n_steps=N_STEPS, settings=settings
    )
    assert any_input.input is None
    records = list(gb.simulate("linear-gaussian", inputs="prbs", n_steps=N_STEPS, count=2, key=3))
    design = "prbs:amplitude=1,hold=1,offset=0"
    with pytest.raises(EstimatorError, match=f"--input {design} --length 20"):
        any_input.estimate(changed(records[0], y=records[0].y[:20], u=records[0].u[:20]))
    with pytest.raises(EstimatorError, match=f"inputs up to 50, far beyond .* {design}"):
        any_input.estimate(changed(records[0], u=50.0 * records[0].u))
    both = [any_input.estimate(records, engine=engine) for engine in ("jax", "numpy")]
    np.testing.assert_allclose(*([e.mean for e in each] for each in both), atol=1e-5)
    swapped = any_input.estimate(changed(records[0], u=records[1].u))
    assert np.abs(swapped.mean - both[0][0].mean).max() > 1e-6
    with pytest.raises(EstimatorError, match=r"has no input; .* FILE:u=COLUMN"):
        any_input.estimate(changed(records[0], u=None))


# Which model it belongs to.


class Small(gb.Model):
    """An output of a thousandth."""

    a = gb.Parameter(dist.Uniform(0.5e-3, 1.5e-3))
    states, inputs, outputs = ("x",), (), ("y",)
    sign = 1.0

    def initial(self, u, p):
        return gb.Known(0.0)

    def transition(self, x, u, p, t):
        return gb.Known(x)

    def observation(self, x, u, p, t):
        return dist.Normal(self.sign * p.a, 1e-5)


class Turned(Small):
    """The other sign."""

    sign = -1.0


def test_equations_of_small_outputs_are_compared_as_those_of_large_ones(lg):
    header = {
        "model": {"name": "small", "reference": reference_path(Small())},
        "theta": describe_theta(Small().prior),
    }
    check_identity(Small(), header)
    with pytest.raises(EstimatorError, match="equations have changed"):
        check_identity(Turned(), header)


def test_the_model_it_was_trained_for_is_the_one(lg):
    check_identity(gb.get_model("linear-gaussian"), lg.header)


class OtherEquations(type(gb.get_model("linear-gaussian"))):
    """One sign differs."""

    def observation(self, x, u, p, t):
        return dist.Normal(-x, jnp.sqrt(p.r))


MODEL_CHANGES = {
    "another prior": (lambda m: m.free(b=dist.Uniform(0.0, 2.5)), "b differ"),
    "a parameter fewer": (lambda m: m.fix(r=0.1), "r differ"),
    "other equations": (lambda m: OtherEquations(), "equations have changed"),
}


@pytest.mark.parametrize("case", MODEL_CHANGES)
def test_a_model_that_has_changed_is_refused(lg, tmp_path, case):
    change, words = MODEL_CHANGES[case]
    model = change(gb.get_model("linear-gaussian"))
    path = lg.save(tmp_path / "a.estimator")
    with pytest.raises(EstimatorError, match=words) as error:
        Estimator.load(path, model=model)
    assert "greybayes train linear-gaussian" in str(error.value)


def test_a_built_in_model_that_has_changed_is_refused_when_it_is_needed(lg, tmp_path):
    header = json.loads(json.dumps(lg.header))
    header["model"]["reference"][5][0] += 0.1
    stale = Estimator(header, lg.arrays)
    with pytest.raises(EstimatorError, match="equations have changed"):
        stale.estimate(records_of(lg, 1)[0])


def test_a_users_model_is_passed_when_loading(tmp_path):
    estimator = untrained("fir", model=Fir(order=3))
    record = records_of(estimator, 1)[0]
    path = estimator.save(tmp_path / "a.estimator")
    again = load(path, model=Fir(order=3))
    np.testing.assert_array_equal(again.estimate(record).mean, estimator.estimate(record).mean)
    with pytest.raises(EstimatorError, match="other parameters or priors of fir"):
        load(path).estimate(record)  # The built-in one has order 2.


def test_a_file_never_runs_the_program_that_it_names(compiled, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plant = write_plant(tmp_path)
    estimator = untrained(plant)
    record = records_of(estimator, 1)[0]
    expected = estimator.estimate(record).mean
    path = estimator.save("a.estimator")
    (tmp_path / "ran").unlink()

    again = load(path)
    plain = again.estimate(record, engine="numpy")  # Needs no model.
    np.testing.assert_allclose(plain.mean, expected, atol=1e-5)
    sentence = (
        r"plant\.py:Plant, which is not one of ours: pass it as model "
        r"\(gb.load\(FILE, model=...\) in Python, --model plant\.py:Plant"
    )
    for need in (lambda: again.model, lambda: again.estimate(record), lambda: bayes_risk(again, 9)):
        with pytest.raises(EstimatorError, match=sentence):
            need()
    assert not (tmp_path / "ran").exists()
    # The user passes it.
    mine = load(path, model=gb.get_model(plant))
    np.testing.assert_array_equal(mine.estimate(record).mean, expected)


def test_a_reference_path_is_reproduced_and_depends_on_the_model():
    model = gb.get_model("linear-gaussian")
    path = np.array(reference_path(model))
    np.testing.assert_array_equal(path, reference_path(model))
    assert path.shape == (16, 1)
    assert np.abs(path - reference_path(OtherEquations())).max() > 0.1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda arrays: arrays.pop("head.out.weight"), "no weights .*head.out.weight"),
        (lambda arrays: arrays.update({"head.out.bias": np.zeros(9)}), r"shape \(9,\), expected"),
    ],
    ids=["one is missing", "one has another shape"],
)
def test_weights_that_do_not_fit_are_a_sentence(lg, change, words):
    arrays = dict(lg.arrays)
    change(arrays)
    with pytest.raises(EstimatorError, match=words):
        weights_from(lg.model, lg.header, arrays)


# NumPy beside JAX.


@pytest.mark.parametrize("name", MODELS)
def test_numpy_equals_jax(make, name):
    estimator = make(name)
    assert forward.can_run(estimator.header)
    records = records_of(estimator, 20)
    both = [estimator.estimate(records, engine=e) for e in ("jax", "numpy")]
    jax, plain = map(means, both)
    for one, other in zip(*both, strict=True):
        thetas = one.sample(20)
        np.testing.assert_allclose(one.log_prob(thetas), other.log_prob(thetas), atol=1e-2)
        assert one.diagnostics["misfit_p"] == pytest.approx(other.diagnostics["misfit_p"], abs=0.05)
    spread = np.sqrt(estimator.model.prior.variance)
    np.testing.assert_allclose(plain / spread, jax / spread, atol=1e-5)
    # Not near one point, where any two agree.
    assert np.ptp(jax / spread, axis=0).min() > 0.01


@pytest.mark.parametrize("n_steps", [1, 3, 4, 23])
def test_numpy_equals_jax_at_any_length(lg, n_steps):
    """Lengths that are no multiple of the pool."""
    y = np.random.default_rng(0).normal(size=(3, n_steps, 1)).astype(np.float32)
    u = np.tile(lg.input[:n_steps], (3, 1, 1))
    plain, jax = (lg.means(y, u, engine=e) for e in ("numpy", "jax"))
    np.testing.assert_allclose(plain, jax, atol=1e-5)


@pytest.mark.parametrize("settings", [{"network": "gru"}, {"head": "paper"}], ids=str)
def test_what_numpy_does_not_know_runs_in_jax(settings):
    estimator = untrained("linear-gaussian", **settings)
    assert not forward.can_run(estimator.header)
    records = records_of(estimator)
    np.testing.assert_array_equal(
        means(estimator.estimate(records, engine="numpy")), means(estimator.estimate(records))
    )


@pytest.mark.parametrize("engine", ["jax", "numpy"])
def test_the_mean_alone_is_the_same_mean_and_nothing_else(lg, engine):
    records = records_of(lg, 5)
    whole, bare = (lg.estimate(records, engine=engine, mean_only=only) for only in (False, True))
    np.testing.assert_allclose(means(bare), means(whole), rtol=1e-5)
    assert all(each.posterior is not None and "misfit_p" in each.diagnostics for each in whole)
    assert all(each.posterior is None and not each.diagnostics for each in bare)
    assert lg.estimate(records[0], engine=engine, mean_only=True).interval() is None


# The Bayes risk.


@pytest.fixture(scope="module")
def silent(lg):
    """An estimator that does not listen: with zero weights it always answers the middle."""
    zeros = {k: v if k == "input" else np.zeros_like(v) for k, v in lg.arrays.items()}
    return with_arrays(lg, zeros)


def test_the_risk_of_the_prior_mean_is_1(silent):
    risk = bayes_risk(silent, 4000)
    assert risk.n_draws == 4000
    assert abs(risk.mean - 1) < 5 * risk.standard_error
    # The squared error of a uniform, over its variance: mean 1, variance 0.8. Four parameters.
    assert risk.standard_error == pytest.approx(np.sqrt(0.8 / 4 / 4000), rel=0.1)
    for value in risk.per_parameter.values():
        assert abs(value - 1) < 5 * np.sqrt(0.8 / 4000)
    assert risk.mean == pytest.approx(np.mean(list(risk.per_parameter.values())))


def test_the_risk_is_that_of_the_same_draws(silent, lg):
    assert bayes_risk(silent, 500) == bayes_risk(silent, 500)
    assert bayes_risk(silent, 500) != bayes_risk(silent, 500, key=1)
    # By hand, from the draws that are documented to be the same for each estimator of a model.
    paths = gb.simulate(
        lg.model, inputs=lg.input, n_steps=N_STEPS, count=500, key=jr.fold_in(jr.key(987654321), 0)
    )
    error = (lg.means(paths.y) - paths.theta) ** 2 / lg.model.prior.variance
    np.testing.assert_allclose(bayes_risk(lg, 500).mean, error.mean(), rtol=1e-5)


# What the package ships.


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
class TestShipped:
    """Parametrised over the files that are there."""

    def test_is_small_and_says_how_it_was_made_and_how_good_it_is(self, path):
        header = load(path.stem).header
        assert path.stat().st_size < 1_000_000
        assert header["model"]["name"] == path.stem
        assert {"seed", "steps", "batch", "learning_rate"} <= header["settings"].keys()
        risk = header["bayes_risk"]
        assert 0 < risk["mean"] < 1
        assert 0 < risk["standard_error"] < 0.02
        assert risk["n_draws"] >= 19_000
        assert header["history"]
        assert header["seconds"] > 0

    def test_its_model_is_still_the_one(self, path):
        estimator = load(path.stem)
        check_identity(gb.get_model(path.stem), estimator.header)

    def test_numpy_equals_jax_and_its_risk_is_what_it_says(self, path):
        estimator = load(path.stem)
        paths = gb.simulate(
            estimator.model, inputs=estimator.input, n_steps=estimator.n_steps, count=300, key=3
        )
        ok = ~paths.diverged
        y, theta = paths.y[ok], paths.theta[ok]
        jax, plain = (estimator.means(y, engine=e) for e in ("jax", "numpy"))
        spread = np.sqrt(estimator.model.prior.variance)
        np.testing.assert_allclose(plain / spread, jax / spread, atol=1e-5)
        error = (((jax - theta) / spread) ** 2).mean(1)
        says = estimator.header["bayes_risk"]["mean"]
        assert abs(error.mean() - says) < 5 * error.std() / np.sqrt(len(error))


def test_the_names_that_the_package_promises_are_shipped():
    promised = {"growth1", "growth2", "linear-gaussian", "fir", "stochastic-volatility"}
    promised |= {"van-der-pol", "lotka-volterra", "sir"}
    assert promised == {path.stem for path in SHIPPED}
