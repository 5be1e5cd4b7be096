"""The `particles` package (Chopin) on M2, in a Python of its own: it needs an older NumPy.

Reads one job a line, as JSON, and answers each with one line: `{"job": "filter", ...}` runs a
bootstrap filter, `{"job": "pmmh", ...}` a particle marginal Metropolis-Hastings chain.
"""

import json
import sys
import time
from collections import OrderedDict

import numpy as np
import particles
from particles import distributions as dists
from particles import mcmc
from particles import state_space_models as ssm


class Growth2(ssm.StateSpaceModel):
    """M2: x_1 = 0, y_k from x_k, u_k = cos(1.2 k)."""

    default_params = {"theta2": 0.7, "theta6": 1.0, "theta7": 0.1, "theta8": 0.1}

    def PX0(self):
        return dists.Dirac(loc=0.0)

    def PX(self, t, xp):
        mean = self.theta2 * xp / (0.04 * xp**2 + 1) + np.cos(1.2 * t)
        return dists.Normal(loc=mean, scale=np.sqrt(self.theta7))

    def PY(self, t, xp, x):
        return dists.Normal(loc=self.theta6 * x**2, scale=np.sqrt(self.theta8))


PRIOR = dists.StructDist(
    OrderedDict(
        theta2=dists.Uniform(0.0, 1.0),
        theta6=dists.Uniform(0.1, 2.0),
        theta7=dists.Uniform(0.0, 1.0),
        theta8=dists.Uniform(0.0, 1.0),
    )
)


def run_filter(y, n_particles):
    """Seconds and log-likelihood of one pass, resampling as ours does."""
    start = time.perf_counter()
    smc = particles.SMC(
        fk=ssm.Bootstrap(ssm=Growth2(), data=y), N=n_particles, resampling="systematic"
    )
    smc.run()
    return {"seconds": time.perf_counter() - start, "log_lik": float(smc.logLt)}


def run_pmmh(y, n_particles, n_draws, start):
    """Seconds and draws of a chain that adapts its walk, as the package does by default."""
    theta0 = np.zeros(1, dtype=[(name, float) for name in PRIOR.laws])
    for name, value in zip(PRIOR.laws, start, strict=True):
        theta0[name] = value
    begun = time.perf_counter()
    chain = mcmc.PMMH(
        ssm_cls=Growth2, prior=PRIOR, data=y, Nx=n_particles, niter=n_draws, theta0=theta0
    )
    chain.run()
    seconds = time.perf_counter() - begun
    draws = np.stack([chain.chain.theta[name] for name in PRIOR.laws], 1)
    return {"seconds": seconds, "draws": draws.tolist()}


def main() -> None:
    """Answer jobs until there are no more."""
    jobs = {"filter": run_filter, "pmmh": run_pmmh}
    for line in sys.stdin:
        given = json.loads(line)
        job = jobs[given.pop("job")]
        np.random.seed(given.pop("seed"))  # noqa: NPY002  # The package draws from this one.
        given["y"] = np.array(given["y"])
        print(json.dumps(job(**given)), flush=True)


if __name__ == "__main__":
    main()
