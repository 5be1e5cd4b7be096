"""Input designs against oracles in plain NumPy and scipy, with none of our formulas in the path."""

import doctest
import inspect
import json
import math
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.signal
import scipy.stats

from greybayes import inputs
from greybayes._lanes import lane_keys
from greybayes.errors import InputError
from greybayes.inputs import (
    DESIGNS,
    PRBS,
    Chirp,
    Cosine,
    Design,
    Multisine,
    Signal,
    Stack,
    Steps,
    WhiteNoise,
    crest_factor,
    from_dict,
    parse,
)

N = 120
DETERMINISTIC = [
    Cosine(),
    Chirp(f0=0.0, f1=0.3, phase=-math.pi / 2),
    Multisine(phases="schroeder"),
    Signal(np.linspace(-1, 1, N)),
    Stack(Cosine(), Chirp()),
]
RANDOM = [
    Cosine(omega=(0.5, 2.0), phase=(0, 6.283)),
    Chirp(f0=0.0, f1=(0.1, 0.3)),
    PRBS(order=16),
    PRBS(amplitude=(0.5, 2.0), hold=3, order=7),
    Multisine(),
    Multisine(lines=10, band=(0.05, 0.2), rms=0.5, offset=1.0),
    Multisine(amplitude=(1.0, 2.0), phases="schroeder"),
    Steps(),
    Steps(low=0, high=3, hold=(2, 9)),
    WhiteNoise(),
    WhiteNoise(low=0, high=1, offset=(-1, 1)),
    Stack(PRBS(), PRBS(), Cosine(), Signal(np.zeros((N, 2)))),
]


def label(design: Design) -> str:
    return repr(design)[:60]


# Where types are wrong on purpose: the type checker of the test run would speak first.
bare: Any = inspect.unwrap
everyone = pytest.mark.parametrize("design", DETERMINISTIC + RANDOM, ids=label)


def draw(design: Design, seed: int = 0, n_steps: int = N, dt: float = 1.0) -> np.ndarray:
    return np.asarray(design.draw(jr.key(seed), n_steps, dt), np.float64)


def test_table_covers_the_registry() -> None:
    assert {each.name for each in DETERMINISTIC + RANDOM} == set(DESIGNS)


# Identities: every design meets every check.


@everyone
def test_shape_and_type(design: Design) -> None:
    u = design.draw(jr.key(0), N)
    assert isinstance(u, jax.Array)
    assert u.dtype == jnp.float32
    assert u.shape == (N, design.n_inputs)
    assert bool(jnp.isfinite(u).all())


@everyone
def test_same_key_same_bits(design: Design) -> None:
    np.testing.assert_array_equal(draw(design, 3), draw(design, 3))


@everyone
def test_jit_equals_no_jit(design: Design) -> None:
    # Fused arithmetic may round an angle of up to ~200 rad differently: 200 * 2^-23 = 2.4e-5.
    compiled = jax.jit(lambda d, key: d.draw(key, N, 0.9), static_argnums=0)(design, jr.key(1))
    np.testing.assert_allclose(compiled, draw(design, 1, dt=0.9), atol=1e-4, rtol=0)


@everyone
def test_vmap_over_keys(design: Design) -> None:
    keys = jr.split(jr.key(0), 16)
    signals = np.asarray(jax.jit(jax.vmap(lambda key: design.draw(key, N)))(keys))
    np.testing.assert_allclose(signals[3], design.draw(keys[3], N), atol=1e-4, rtol=0)
    distinct = len({signal.tobytes() for signal in signals})
    assert distinct == (16 if design.is_random else 1)


@pytest.mark.parametrize("design", DETERMINISTIC, ids=label)
def test_key_is_ignored_without_randomness(design: Design) -> None:
    assert not design.is_random
    np.testing.assert_array_equal(design.draw(None, N), design.draw(jr.key(5), N))


@pytest.mark.parametrize("design", RANDOM, ids=label)
def test_random_needs_a_key(design: Design) -> None:
    assert design.is_random
    with pytest.raises(InputError, match="pass a key"):
        design.draw(None, N)


@everyone
def test_fixed_is_the_draw(design: Design) -> None:
    fixed = design.fixed(jr.key(7), N, 0.9)
    assert not fixed.is_random
    assert fixed == design.fixed(7, N, 0.9)
    np.testing.assert_array_equal(fixed.draw(None, N), draw(design, 7, dt=0.9))


@everyone
def test_round_trip_through_json(design: Design) -> None:
    plain = design.to_dict()
    text = json.dumps(plain, allow_nan=False)
    again = from_dict(json.loads(text))
    assert again == design
    assert hash(again) == hash(design)
    assert json.loads(text) == plain
    np.testing.assert_array_equal(draw(again, 2), draw(design, 2))


@pytest.mark.parametrize("design", RANDOM, ids=label)
def test_float32_under_the_scoped_float64_switch(design: Design) -> None:
    with jax.enable_x64(True):
        u = design.draw(jr.key(1), N)
    assert u.dtype == jnp.float32
    np.testing.assert_allclose(u, draw(design, 1), atol=1e-4, rtol=0)


@everyone
def test_lane_keys_work(design: Design) -> None:
    keys = lane_keys(jr.key(0), jnp.arange(32, dtype=jnp.uint32))
    signals = np.asarray(jax.jit(jax.vmap(lambda key: design.draw(key, N)))(keys))
    assert len({signal.tobytes() for signal in signals}) == (32 if design.is_random else 1)


@everyone
def test_legacy_keys_work(design: Design) -> None:
    assert design.draw(jr.PRNGKey(0), N).shape == (N, design.n_inputs)


@pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS.keys())
def test_summary_is_one_line_with_the_formula(design: type[Design]) -> None:
    summary, blank = (design.__doc__ or "").splitlines()[:2]
    assert "u_k = " in summary
    assert not blank


def test_doctests() -> None:
    modules = (inputs.design, inputs.sines, inputs.levels, inputs.text)
    results = [doctest.testmod(module) for module in modules]
    assert sum(each.attempted for each in results) >= 14
    assert sum(each.failed for each in results) == 0


# Each design against its oracle.


def test_cosine_is_the_papers() -> None:
    k = np.arange(1, 201)
    np.testing.assert_array_equal(draw(Cosine(), n_steps=200)[:, 0], np.cos(1.2 * k).astype("f4"))


def test_cosine_units() -> None:
    t = np.arange(1, N + 1) * 0.05
    u = draw(Cosine(amplitude=2, omega=30, phase=0.4, offset=-1), dt=0.05)[:, 0]
    np.testing.assert_allclose(u, 2 * np.cos(30 * t + 0.4) - 1, atol=1e-6)


def test_cosine_stays_exact_on_long_records() -> None:
    u = draw(Cosine(), n_steps=1_000_000)[-5:, 0]
    np.testing.assert_allclose(u, np.cos(1.2 * np.arange(999_996, 1_000_001)), atol=1e-6)


def test_a_pair_is_uniform_and_drawn_once_per_signal() -> None:
    design = Cosine(amplitude=0.0, offset=(2.0, 5.0))
    u = np.asarray(jax.vmap(lambda key: design.draw(key, 4))(jr.split(jr.key(0), 2000)))[..., 0]
    assert (u == u[:, :1]).all()
    assert scipy.stats.kstest((u[:, 0] - 2) / 3, "uniform").pvalue > 1e-3


def test_pairs_are_independent() -> None:
    design = Cosine(amplitude=(1.0, 2.0), omega=0.0, offset=(100.0, 101.0))
    other = Cosine(amplitude=(1.0, 2.0), omega=0.0, phase=math.pi, offset=(100.0, 101.0))
    keys = jr.split(jr.key(0), 2000)
    plus, minus = (jax.vmap(lambda key, d=d: d.draw(key, 1))(keys) for d in (design, other))
    amplitude, offset = np.ravel(plus - minus) / 2, np.ravel(plus + minus) / 2
    assert abs(np.corrcoef(amplitude, offset)[0, 1]) < 4 / math.sqrt(2000)


@pytest.mark.parametrize("order", range(2, 21))
def test_prbs_sequence_is_scipys(order: int) -> None:
    expected = 2 * scipy.signal.max_len_seq(order)[0].astype(int) - 1
    np.testing.assert_array_equal(inputs.levels._max_length(order), expected)


@pytest.mark.parametrize(("order", "seed"), [(4, 0), (7, 1), (9, 2), (10, 5)])
def test_prbs_is_maximum_length(order: int, seed: int) -> None:
    period = 2**order - 1
    u = draw(PRBS(order=order), seed, 3 * period)[:, 0]
    one = u[:period]
    np.testing.assert_array_equal(u, np.tile(one, 3))
    assert set(u) == {-1.0, 1.0}
    assert abs(one.sum()) == 1
    correlation = np.array([one @ np.roll(one, lag) for lag in range(period)])
    assert correlation[0] == period
    assert (correlation[1:] == -1).all()


def test_prbs_hold_level_and_offset() -> None:
    u = draw(PRBS(amplitude=0.5, hold=5, offset=2.0), n_steps=103)[:, 0]
    assert set(u) == {1.5, 2.5}
    assert (u[:100].reshape(20, 5) == u[:100:5, None]).all()


@pytest.mark.parametrize(
    ("n_steps", "hold", "order"), [(3, 1, 2), (127, 1, 7), (128, 1, 8), (128, 2, 7)]
)
def test_prbs_chooses_the_shortest_order_that_covers(n_steps: int, hold: int, order: int) -> None:
    chosen, given = PRBS(hold=hold), PRBS(hold=hold, order=order)
    np.testing.assert_array_equal(draw(chosen, 4, n_steps), draw(given, 4, n_steps))


def test_prbs_starts_everywhere_with_either_sign() -> None:
    keys = jr.split(jr.key(0), 500)
    signals = np.asarray(jax.jit(jax.vmap(lambda key: PRBS(order=4).draw(key, 15)))(keys))
    assert len({signal.tobytes() for signal in signals}) == 2 * 15


@pytest.mark.parametrize("phases", ["random", "schroeder"])
@pytest.mark.parametrize("n_steps", [200, 251])
def test_multisine_spectrum_is_flat_and_only_in_the_lines(phases: str, n_steps: int) -> None:
    design = Multisine(lines=20, band=(0.5, 2.0), rms=0.7, phases=phases)
    u = draw(design, n_steps=n_steps, dt=0.1)[:, 0]
    spectrum = np.abs(np.fft.rfft(u)) * 2 / n_steps
    frequency = np.fft.rfftfreq(n_steps, 0.1)
    lines = spectrum > 1e-4
    assert lines.sum() == 20
    assert frequency[lines].min() >= 0.5
    assert frequency[lines].max() <= 2.0
    # The ends of the band are taken, whatever lies between.
    inside = frequency[(frequency >= 0.5) & (frequency <= 2.0)]
    assert frequency[lines][[0, -1]].tolist() == inside[[0, -1]].tolist()
    np.testing.assert_allclose(spectrum[lines], 0.7 * math.sqrt(2 / 20), rtol=1e-4)
    assert np.sqrt(np.mean(u**2)) == pytest.approx(0.7, rel=1e-4)


def test_multisine_schroeder_formula_from_k_1() -> None:
    k, h = np.arange(1, 51)[:, None], np.arange(1, 6)
    wave = np.cos(2 * np.pi * h * k / 50 - np.pi * h * (h - 1) / 5).sum(axis=1)
    u = draw(Multisine(band=(0.02, 0.1), amplitude=3, phases="schroeder", offset=1), n_steps=50)[
        :, 0
    ]
    np.testing.assert_allclose(u, 1 + 3 * wave / abs(wave).max(), atol=1e-5)


def test_multisine_band_edges_belong_to_the_band() -> None:
    for n_steps in (30, 70, 100):
        for h in range(1, (n_steps - 1) // 2 - 1):
            design = Multisine(band=(h / (n_steps * 0.1), (h + 1) / (n_steps * 0.1)))
            assert bare(Multisine._harmonics)(design, n_steps, 0.1).tolist() == [h, h + 1]


def test_multisine_amplitude_is_the_peak() -> None:
    for seed in range(5):
        assert abs(draw(Multisine(amplitude=2.5), seed)).max() == pytest.approx(2.5, rel=1e-6)


def test_schroeder_lowers_the_crest_factor() -> None:
    low = crest_factor(draw(Multisine(phases="schroeder"), n_steps=500))[0]
    high = [crest_factor(draw(Multisine(), seed, 500))[0] for seed in range(20)]
    assert low < 1.8 < min(high)


def test_chirp_is_scipys() -> None:
    n_steps, dt = 400, 0.02
    t = np.arange(1, n_steps + 1) * dt
    u = draw(Chirp(f0=1.0, f1=8.0, amplitude=2.0, phase=0.3), n_steps=n_steps, dt=dt)[:, 0]
    expected = scipy.signal.chirp(t, 1.0, n_steps * dt, 8.0, phi=math.degrees(0.3))  # pyright: ignore[reportArgumentType]
    np.testing.assert_allclose(u, 2 * expected, atol=1e-5)


def test_chirp_instantaneous_frequency() -> None:
    n_steps, dt = 4000, 0.01
    u = draw(Chirp(f0=2.0, f1=20.0), n_steps=n_steps, dt=dt)[:, 0]
    angle = np.unwrap(np.angle(np.asarray(scipy.signal.hilbert(u))))
    frequency = np.gradient(angle, dt) / (2 * np.pi)
    t = np.arange(1, n_steps + 1) * dt
    middle = slice(400, -400)  # the Hilbert transform rings at both ends
    expected = 2.0 + 18.0 * t / (n_steps * dt)
    np.testing.assert_allclose(frequency[middle], expected[middle], atol=0.3)


def test_random_chirp_sweeps_within_its_pairs() -> None:
    design = Chirp(f0=0.0, f1=(0.1, 0.2))
    for seed in range(5):
        u = draw(design, seed, 2000)[:, 0]
        end = np.abs(np.fft.rfft(u[-200:] * np.hanning(200))).argmax() / 200
        assert 0.09 < end < 0.205


def runs(u: np.ndarray) -> np.ndarray:
    edges = np.flatnonzero(np.diff(u)) + 1
    return np.diff(np.concatenate([[0], edges, [len(u)]]))


def test_steps_hold() -> None:
    u = draw(Steps(low=2, high=3, hold=7), n_steps=703)[:, 0]
    assert (runs(u)[:-1] == 7).all()
    assert runs(u)[-1] == 703 % 7
    assert u.min() >= 2
    assert u.max() <= 3


def test_steps_random_hold() -> None:
    u = draw(Steps(low=2, high=3, hold=(3, 9)), n_steps=20_000)[:, 0]
    length = runs(u)[:-1]
    counts = np.bincount(length, minlength=10)[3:10]
    assert length.min() == 3
    assert length.max() == 9
    assert scipy.stats.chisquare(counts).pvalue > 1e-3
    levels = u[np.cumsum(length) - 1]
    assert scipy.stats.kstest(levels - 2, "uniform").pvalue > 1e-3


def test_steps_longer_than_the_signal() -> None:
    assert len(runs(draw(Steps(hold=1000))[:, 0])) == 1
    assert len(runs(draw(Steps(hold=(2**20, 2**30 - 1)))[:, 0])) == 1


def test_white_noise_moments() -> None:
    n = 100_000
    u = draw(WhiteNoise(std=2.0, offset=3.0), n_steps=n)[:, 0]
    assert abs(u.mean() - 3) < 4 * 2 / math.sqrt(n)
    assert abs(u.var() - 4) < 4 * 4 * math.sqrt(2 / n)
    lagged = np.array([np.mean((u[lag:] - 3) * (u[: n - lag] - 3)) / 4 for lag in range(1, 21)])
    assert abs(lagged).max() < 4.5 / math.sqrt(n)
    assert scipy.stats.kstest((u - 3) / 2, "norm").pvalue > 1e-3


def test_white_noise_uniform_is_the_fir_models() -> None:
    n = 100_000
    u = draw(WhiteNoise(low=0, high=1), n_steps=n)[:, 0]
    assert u.min() >= 0
    assert u.max() <= 1
    assert abs(u.mean() - 0.5) < 4 * math.sqrt(1 / 12 / n)
    assert abs(np.mean((u - 0.5) ** 2) - 1 / 12) < 4 * math.sqrt((1 / 80 - 1 / 144) / n)
    assert scipy.stats.kstest(u, "uniform").pvalue > 1e-3


def test_signal_takes_the_first_samples() -> None:
    values = np.arange(10.0).reshape(5, 2)
    np.testing.assert_array_equal(Signal(values).draw(None, 3), values[:3])
    np.testing.assert_array_equal(Signal([1, 2, 3]).draw(None, 3), [[1], [2], [3]])


def test_signal_too_short() -> None:
    with pytest.raises(InputError, match=r"^u has 180 samples; 200 are needed\. "):
        Signal(np.zeros(180)).draw(None, 200)


def test_signal_is_frozen() -> None:
    given = np.zeros(3, np.float32)
    signal = Signal(given)
    given[0] = 1
    assert signal == Signal([0, 0, 0])
    assert signal != Signal([[0], [0], [1]])
    assert signal != 0
    assert hash(Signal([-0.0])) == hash(Signal([0.0]))
    with pytest.raises(ValueError, match="read-only"):
        signal.values[0] = 1


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            [0.0, math.nan, math.inf],
            "u has 2 values that are not finite in float32, the first at k = 2",
        ),
        ([1e39], "not finite"),
        ([], "shape"),
        (3.0, "shape"),
        (np.zeros((2, 2, 2)), "shape"),
        (["1", "2"], "real numbers"),
        ([1j], "real numbers"),
        ([None, 1.0], "real numbers"),
        ([True, False], "real numbers"),
        ([[1.0], [1.0, 2.0]], "different lengths"),
    ],
)
def test_signal_refuses(values: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        bare(Signal.__init__)(object.__new__(Signal), values)


def test_stack_draws_its_channels_independently() -> None:
    stack = Stack(PRBS(order=8), PRBS(order=8), Signal(np.ones((N, 2))), Cosine())
    u = draw(stack)
    assert u.shape == (N, 5)
    assert not np.array_equal(u[:, 0], u[:, 1])
    np.testing.assert_array_equal(u[:, 2:4], 1)
    np.testing.assert_array_equal(u[:, 4], draw(Cosine())[:, 0])


def test_crest_factor() -> None:
    k = np.arange(1000)
    u = np.stack(
        [np.sin(2 * np.pi * k / 100), np.sign(np.sin(2 * np.pi * (k + 0.5) / 100))], axis=1
    )
    np.testing.assert_allclose(crest_factor(u), [math.sqrt(2), 1], rtol=1e-9)
    for bad in ([], [0.0, 0.0], [1.0, math.nan]):
        with pytest.raises(InputError, match="crest factor"):
            crest_factor(bad)


# The border: text, dictionaries, arguments.


@pytest.mark.parametrize(
    ("text", "design"),
    [
        ("cosine", Cosine()),
        (" Cosine : omega = 0.5 , phase=0..6.283", Cosine(omega=0.5, phase=(0, 6.283))),
        ("prbs:amplitude=1.5,hold=5", PRBS(amplitude=1.5, hold=5)),
        ("multisine:lines=20,band=1e-2..0.2", Multisine(lines=20, band=(0.01, 0.2))),
        ("multisine:rms=.5,phases=schroeder", Multisine(rms=0.5, phases="schroeder")),
        ("chirp:f0=0,f1=.1...4", Chirp(f0=0, f1=(0.1, 0.4))),
        ("steps:low=-2,high=-1,hold=2..8", Steps(low=-2, high=-1, hold=(2, 8))),
        ("white-noise:low=0,high=1", WhiteNoise(low=0, high=1)),
        ("white_noise", WhiteNoise(std=1.0)),
        ("prbs:hold=5/cosine/steps", Stack(PRBS(hold=5), Cosine(), Steps())),
    ],
)
def test_parse(text: str, design: Design) -> None:
    assert parse(text) == design


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no input design is called ''"),
        ("cosinus", "no input design is called 'cosinus'; did you mean cosine?"),
        ("prbs:hol=5", "prbs has no field 'hol', its fields are amplitude, hold, offset, order"),
        ("prbs:hol=5", "did you mean hold?"),
        ("prbs:5", "prbs: '5' is not of the form field=value; its fields are amplitude, hold"),
        ("prbs:hold=", "not of the form"),
        ("prbs:hold=5,", "not of the form"),
        ("prbs:hold=5,hold=6", "prbs: 'hold=6' comes twice"),
        ("prbs:hold=2.5", "prbs: hold is 2.5; a whole number of 1 or more is expected."),
        (
            "prbs:amplitude=big",
            "prbs: amplitude is 'big'; a finite number, or a pair low < high, is",
        ),
        (
            "cosine:omega=2..1",
            "omega is (2, 1); a finite number, or a pair low < high, is expected",
        ),
        ("cosine:omega=nan", "omega is nan"),
        ("steps:low=1..2", "low is (1, 2); a finite number is expected"),
        ("signal", "signal cannot be typed"),
        ("stack:designs=1", "stack cannot be typed"),
        ("prbs//cosine", "no input design is called ''"),
    ],
)
def test_parse_refuses(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("plain", "words"),
    [
        (3, "3 is no input design"),
        ({"omega": 1}, "is no input design"),
        ({"design": ["cosine"]}, "is no input design"),
        ({"design": "prbz"}, "no input design is called 'prbz'; did you mean prbs?"),
        ({"design": "__import__"}, "no input design is called"),
        ({"design": "cosine", "omga": 1}, "cosine has no field 'omga'"),
        ({"design": "cosine", "omga": 1}, "did you mean omega?"),
        ({"design": "cosine", "name": "x"}, "cosine has no field 'name'"),
        ({"design": "cosine", "omega": [1, 2, 3]}, "omega is [1, 2, 3]"),
        ({"design": "signal"}, "signal lacks its field values"),
        ({"design": "signal", "values": ["a"]}, "real numbers"),
        ({"design": "stack"}, "stack lacks its field designs"),
        ({"design": "stack", "designs": "ab"}, "a list is expected"),
        ({"design": "stack", "designs": []}, "nothing came; designs are expected"),
        ({"design": "stack", "designs": [{"design": "prbz"}]}, "did you mean prbs?"),
    ],
)
def test_from_dict_refuses(plain: object, words: str) -> None:
    with pytest.raises(InputError) as caught:
        bare(from_dict)(plain)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("design", "fields", "words"),
    [
        (Cosine, {"amplitude": True}, "amplitude is True"),
        (Cosine, {"amplitude": None}, "amplitude is None"),
        (Cosine, {"offset": 1e39}, "offset is 1e"),
        (Cosine, {"phase": (1.0, 1.0)}, "low < high"),
        (Chirp, {"f0": -0.1}, "f0 is -0.1; a finite number of 0 or more"),
        (PRBS, {"order": 1}, "order is 1; 2 to 20 is expected"),
        (PRBS, {"order": 21}, "order is 21"),
        (PRBS, {"hold": 0}, "hold is 0; a whole number of 1 or more is expected"),
        (PRBS, {"hold": (1, 2)}, "hold is (1, 2); a whole number"),
        (PRBS, {"hold": 2**40}, "hold is"),
        (Multisine, {"phases": "zero"}, "random or schroeder"),
        (Multisine, {"phases": 1}, "phases is 1; text is expected"),
        (Multisine, {"rms": 1.0, "amplitude": 1.0}, "give one of them"),
        (Multisine, {"band": 0.1}, "band is 0.1; a pair low < high"),
        (Multisine, {"lines": 0}, "lines is 0"),
        (Steps, {"low": 1.0}, "low is 1 and high 1; low < high is expected"),
        (Steps, {"hold": (0, 3)}, "hold is (0, 3)"),
        (WhiteNoise, {"low": 0.0}, "low and high go together"),
        (WhiteNoise, {"low": 0, "high": 1, "std": 1}, "give std (normal), or low and high"),
        (WhiteNoise, {"low": 1, "high": 0}, "low < high is expected"),
        (WhiteNoise, {"std": -1}, "std is -1"),
    ],
)
def test_construction_refuses(design: type[Design], fields: dict[str, object], words: str) -> None:
    with pytest.raises(InputError) as caught:
        design(**fields)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{design.name}: ")


def test_stack_refuses_what_is_no_design() -> None:
    with pytest.raises(InputError, match="'prbs' came; designs are expected"):
        bare(Stack.__init__)(object.__new__(Stack), "prbs")


@pytest.mark.parametrize(
    ("design", "n_steps", "dt", "words"),
    [
        (Cosine(), 0, 1.0, "n_steps is 0"),
        (Cosine(), 2.5, 1.0, "n_steps is 2.5"),
        (Cosine(), 10, 0.0, "dt is 0.0; a positive, finite number is expected"),
        (Cosine(), 10, math.nan, "dt is nan"),
        (Cosine(omega=(1.0, 4.0)), 10, 1.0, "omega reaches 4, above the Nyquist limit 3.14"),
        (Cosine(omega=-4.0), 10, 1.0, "omega reaches 4, above"),
        (Chirp(f1=10.0), 10, 0.1, "f1 reaches 10, above the Nyquist limit 5 at dt = 0.1"),
        (Multisine(band=(0.1, 0.6)), 100, 1.0, "band reaches 0.6"),
        (Multisine(lines=20), 30, 1.0, "20 lines are asked for; a signal of 30 samples has 14"),
        (Multisine(), 2, 1.0, "has 0 harmonics"),
        (Stack(Cosine(), Signal([1.0])), 2, 1.0, "u has 1 samples; 2 are needed"),
    ],
)
def test_draw_refuses(design: Design, n_steps: int, dt: float, words: str) -> None:
    with pytest.raises(InputError) as caught:
        bare(Design.draw)(design, jr.key(0), n_steps, dt)
    assert words in str(caught.value)


@pytest.mark.parametrize("dt", [0.1, 1.0, 0.02, 1 / 3])
def test_nyquist_itself_is_allowed(dt: float) -> None:
    assert draw(Chirp(f0=0.0, f1=0.5 / dt), dt=dt).shape == (N, 1)
    assert draw(Multisine(band=(0.0, 0.5 / dt)), dt=dt).shape == (N, 1)
    assert draw(Cosine(omega=math.pi / dt), dt=dt).shape == (N, 1)


def test_numbers_of_numpy_are_numbers() -> None:
    given: Any = {"hold": np.int64(3), "amplitude": np.float32(0.5)}
    assert PRBS(**given) == PRBS(hold=3, amplitude=0.5)
    assert json.loads(json.dumps(PRBS(**given).to_dict()))["hold"] == 3
