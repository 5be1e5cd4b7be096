"""greybayes: the parameters of stochastic nonlinear dynamical models, from measured records.

The public names, in the order of the pipeline. Importing the package loads none of them: each is
fetched when it is first used, so that `import greybayes` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING

from greybayes._version import __version__ as __version__

if TYPE_CHECKING:
    from greybayes import inputs as inputs
    from greybayes._configure import configure as configure
    from greybayes.amortized.estimator import Estimator as Estimator
    from greybayes.amortized.estimator import load as load
    from greybayes.amortized.linear import fit_linear as fit_linear
    from greybayes.amortized.linear import linear_limit as linear_limit
    from greybayes.amortized.risk import bayes_risk as bayes_risk
    from greybayes.amortized.trainer import resume as resume
    from greybayes.amortized.trainer import train as train
    from greybayes.amortized.tuning import tune as tune
    from greybayes.classical.cme_mh import cme_mh as cme_mh
    from greybayes.classical.cpf_saem import cpf_saem as cpf_saem
    from greybayes.classical.least_squares import least_squares as least_squares
    from greybayes.classical.map_estimate import map_estimate as map_estimate
    from greybayes.classical.psem import psem as psem
    from greybayes.continuous import euler as euler
    from greybayes.continuous import euler_maruyama as euler_maruyama
    from greybayes.continuous import rk4 as rk4
    from greybayes.continuous import zero_order_hold as zero_order_hold
    from greybayes.diagnose.calibration import Calibration as Calibration
    from greybayes.diagnose.calibration import calibration as calibration
    from greybayes.diagnose.misfit import Misfit as Misfit
    from greybayes.diagnose.misfit import check_fit as check_fit
    from greybayes.diagnose.output import Comparison as Comparison
    from greybayes.diagnose.output import compare_output as compare_output
    from greybayes.diagnose.residuals import residuals as residuals
    from greybayes.errors import GreybayesError as GreybayesError
    from greybayes.errors import Status as Status
    from greybayes.estimate import Estimate as Estimate
    from greybayes.likelihood.grid import grid_log_lik as grid_log_lik
    from greybayes.likelihood.kalman import kalman_filter as kalman_filter
    from greybayes.likelihood.kalman import kalman_log_lik as kalman_log_lik
    from greybayes.likelihood.kalman import kalman_smoother as kalman_smoother
    from greybayes.likelihood.monte_carlo import choose_particles as choose_particles
    from greybayes.likelihood.monte_carlo import particle_filter as particle_filter
    from greybayes.likelihood.monte_carlo import particle_log_lik as particle_log_lik
    from greybayes.likelihood.output_error import output_error_log_lik as output_error_log_lik
    from greybayes.likelihood.particle import Filter as Filter
    from greybayes.likelihood.smoother import smooth as smooth
    from greybayes.model import Model as Model
    from greybayes.model import Time as Time
    from greybayes.noise import Channels as Channels
    from greybayes.noise import Known as Known
    from greybayes.noise import Sampler as Sampler
    from greybayes.prior import Fixed as Fixed
    from greybayes.prior import Parameter as Parameter
    from greybayes.record import Record as Record
    from greybayes.record import read_records as read_records
    from greybayes.record import write_records as write_records
    from greybayes.refining import refine as refine
    from greybayes.report import write_report as write_report
    from greybayes.simulation import Paths as Paths
    from greybayes.simulation import offline_set as offline_set
    from greybayes.simulation import simulate as simulate
    from greybayes.zoo import catalogue as catalogue
    from greybayes.zoo import get_model as get_model

_HOMES = {
    # The model language.
    "Model": "model",
    "Parameter": "prior",
    "Fixed": "prior",
    "Known": "noise",
    "Channels": "noise",
    "Sampler": "noise",
    "Time": "model",
    "zero_order_hold": "continuous",
    "rk4": "continuous",
    "euler": "continuous",
    "euler_maruyama": "continuous",
    "get_model": "zoo",
    "catalogue": "zoo",
    # Data.
    "Record": "record",
    "read_records": "record",
    "write_records": "record",
    # Simulation.
    "simulate": "simulation",
    "offline_set": "simulation",
    "Paths": "simulation",
    # Results.
    "Estimate": "estimate",
    # Likelihoods.
    "kalman_filter": "likelihood.kalman",
    "kalman_smoother": "likelihood.kalman",
    "kalman_log_lik": "likelihood.kalman",
    "output_error_log_lik": "likelihood.output_error",
    "grid_log_lik": "likelihood.grid",
    "particle_filter": "likelihood.monte_carlo",
    "particle_log_lik": "likelihood.monte_carlo",
    "choose_particles": "likelihood.monte_carlo",
    "Filter": "likelihood.particle",
    "smooth": "likelihood.smoother",
    # The classical methods.
    "cme_mh": "classical.cme_mh",
    "psem": "classical.psem",
    "cpf_saem": "classical.cpf_saem",
    "least_squares": "classical.least_squares",
    "map_estimate": "classical.map_estimate",
    # The DeepBayes estimators.
    "train": "amortized.trainer",
    "resume": "amortized.trainer",
    "tune": "amortized.tuning",
    "Estimator": "amortized.estimator",
    "load": "amortized.estimator",
    "bayes_risk": "amortized.risk",
    "fit_linear": "amortized.linear",
    "linear_limit": "amortized.linear",
    # The exact answer.
    "refine": "refining",
    # Can it be trusted?
    "calibration": "diagnose.calibration",
    "Calibration": "diagnose.calibration",
    "check_fit": "diagnose.misfit",
    "Misfit": "diagnose.misfit",
    "residuals": "diagnose.residuals",
    "compare_output": "diagnose.output",
    "Comparison": "diagnose.output",
    "write_report": "report",
    # Odds and ends.
    "Status": "errors",
    "GreybayesError": "errors",
    "configure": "_configure",
}

__all__ = ["inputs", *_HOMES]


def __getattr__(name: str):
    if name == "inputs":
        return importlib.import_module("greybayes.inputs")
    if name in _HOMES:
        value = getattr(importlib.import_module(f"greybayes.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'greybayes' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
