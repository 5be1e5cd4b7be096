"""The verdict: two sentences that say how good, whether to trust it, and what to do."""

import re

import numpy as np
import pytest

import greybayes as gb
from greybayes.errors import Status
from greybayes.estimate import Estimate
from greybayes.report.findings import examine
from greybayes.report.verdict import BAD, CARE, GOOD, verdict

LINEAR = {"a": 0.7, "b": 1.0, "q": 0.1, "r": 0.1}
FIR = gb.get_model("fir")


def fir(u, theta=(1.0, 0.5), scale=1.0, offset=0.0, seed=0, name=""):
    """A record of the filter; its noise has the variance that the model says."""
    noise = np.random.default_rng(seed).normal(size=len(u)) * np.sqrt(
        FIR.parameters["noise_variance"].value
    )
    late = np.append(0.0, u[:-1])
    return gb.Record(scale * (theta[0] * u + theta[1] * late) + offset + noise, u, name=name)


def of(mean, std=0.01, **rest):
    return Estimate(("theta[0]", "theta[1]"), np.array(mean), std**2 * np.eye(2), **rest)


@pytest.fixture(scope="module")
def u():
    return np.random.default_rng(9).choice([-1.0, 1.0], 300)


def test_a_right_estimate_with_validation_is_good(u):
    told = verdict(examine(FIR, fir(u), of([1.0, 0.5]), [fir(u[::-1], seed=1)]))
    assert told.grade == GOOD
    assert "on 1 validation record" in told.how_good
    assert "can be trusted" in told.how_good
    assert told.next_step == "Next: use it."
    assert told.how_good.count(".") == told.next_step.count(".") == 1


def test_without_validation_that_is_the_next_step(u):
    assert "--validate" in verdict(examine(FIR, fir(u), of([1.0, 0.5]))).next_step


def test_an_offset_is_bad_and_said(u):
    told = verdict(examine(FIR, fir(u, offset=2.0), of([1.0, 0.5])))
    assert told.grade == BAD
    assert "not to be trusted" in told.how_good
    assert "have an offset" in told.next_step


def test_a_network_is_told_to_refine_before_the_model_is_blamed(u):
    told = verdict(examine(FIR, fir(u, offset=2.0), of([1.0, 0.5], method="deepbayes")))
    assert "--refine" in told.next_step


def test_another_gain_at_another_amplitude_is_said(u):
    loud, soft = fir(2 * u, scale=1.4, seed=1), fir(0.5 * u, scale=0.6, seed=2)
    told = verdict(examine(FIR, fir(u), of([1.0, 0.5]), [loud, soft]))
    assert told.grade == CARE
    assert "depends on the amplitude of the input" in told.next_step
    assert re.search(r": 1\.4\d at 2 times the amplitude, 0\.\d+ at 0\.5 times", told.next_step)


def test_another_gain_at_the_same_amplitude_is_not_called_one_of_amplitude(u):
    told = verdict(examine(FIR, fir(u), of([1.0, 0.5]), [fir(u, scale=0.6, seed=1, name="late")]))
    assert "is not the same on all records" in told.next_step
    assert "on late" in told.next_step


@pytest.mark.parametrize("status", [Status.unconverged, Status.misfit, Status.collapsed])
def test_a_method_that_did_not_end_well_is_bad(u, status):
    told = verdict(examine(FIR, fir(u), of([1.0, 0.5], status=status)))
    assert told.grade == BAD


def test_process_noise_is_judged_by_the_band():
    record, other = gb.simulate("linear-gaussian", LINEAR, count=2, key=1)
    truth = Estimate(tuple(LINEAR), np.array(list(LINEAR.values())))
    told = verdict(examine(gb.get_model("linear-gaussian"), record, truth, [other]))
    assert told.grade == GOOD
    assert "in the band that should hold 95 %" in told.how_good


def test_a_parameter_at_the_bound_is_named():
    record = gb.simulate("linear-gaussian", LINEAR, key=1)[0]
    model = gb.get_model("linear-gaussian")
    high = model.prior.bounds[1][2] - 1e-6
    estimate = Estimate(tuple(LINEAR), np.array([0.7, 1.0, high, 0.1]))
    found = examine(model, record, estimate)
    assert "q is at the bound" in verdict(found).how_good


def test_what_cannot_be_computed_is_said_and_left_out(u):
    mean = np.array([0.7, 1.0, -1.0, 0.1])
    outside = Estimate(tuple(LINEAR), mean, method="deepbayes")
    record = gb.simulate("linear-gaussian", LINEAR, key=1)[0]
    found = examine(gb.get_model("linear-gaussian"), record, outside)
    assert found.compared is None
    assert found.misfit is None
    assert any("outside the support" in trouble for trouble in found.troubles)
    told = verdict(found)
    assert told.grade == BAD
    assert "and it is not to be trusted yet, because q is outside the prior" in told.how_good
    # It is the network that knows no bounds.
    assert "without the preset paper" in told.next_step
    assert "--refine" not in told.next_step
    other = examine(gb.get_model("linear-gaussian"), record, outside.replace(method="linear"))
    assert "widen the prior of q, or use a method that keeps" in verdict(other).next_step


def test_a_network_without_a_posterior_is_not_told_to_refine(u):
    mean = Estimate(("theta[0]", "theta[1]"), np.array([1.0, 0.5]), method="deepbayes")
    assert "--refine" not in verdict(examine(FIR, fir(u, offset=2.0), mean)).next_step
    assert "--refine" not in verdict(examine(FIR, fir(u), mean)).next_step


@pytest.mark.accuracy
def test_the_drives_tell_of_delay_and_gain(shared_data):
    """The measured drives at their least-squares estimates, without and with the delay."""
    from greybayes.reproduce.drives import _WIDE
    from greybayes.zoo.coupled_drives import CoupledDrives

    records = [
        gb.read_records(f"{shared_data}/DATAPRBS.MAT:y=z{i},u=u{i},dt=0.02")[0] for i in (1, 2, 3)
    ]
    told, fits = [], []
    floors = [1.993, 5.800, 20.14, 0.1156, 0.048], [1.828, 7.075, 21.07, 0.1075, 0.025]
    for delay, theta in enumerate(floors):
        model = CoupledDrives(input_delay=delay).free(**_WIDE)
        std = 0.01 * np.array(theta)
        estimate = Estimate(model.prior.names, np.array(theta), np.diag(std**2))
        found = examine(model, records[0], estimate, records[1:])
        told.append(verdict(found))
        fits.append(found.compared.scores.fit_percent[0])
    assert "samples later than the model says: change input_delay" in told[0].next_step
    assert "later than the model says" not in told[1].next_step
    assert "u arrives 1 sample late as the model says" in told[1].how_good
    assert fits[1] > fits[0] + 5
    for each in told:
        assert "depends on the amplitude of the input" in each.next_step
