"""Refine: correct the answer of a network with the likelihood, until it is exact.

Thetas are drawn from the network's posterior and weighed by prior and likelihood. Where the network
was good that is all; where it was not, the proposal learns from the weights and draws again; and
where that does not help either, Markov chains take over. The estimate says which of these rungs
gave it.
"""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from greybayes._devices import to_power_of_two
from greybayes._lanes import as_key
from greybayes._types import Seed
from greybayes.amortized.estimator import Estimator, load
from greybayes.classical.cme_mh import cme_mh
from greybayes.classical.methods import Progress, Watch, as_list, like, make_settings
from greybayes.errors import EstimatorError, GreybayesError, ModelError, Status
from greybayes.estimate import Estimate
from greybayes.importance import Defended, Weighed
from greybayes.likelihood.grid import NEAR, PLACED
from greybayes.likelihood.many import ManyLogLiks
from greybayes.likelihood.measured import Measured
from greybayes.model import Model
from greybayes.record import Record

RUNGS = ("importance", "adapted", "mcmc")
# Above this the largest weights have no finite variance (Vehtari et al. 2024).
_TRUSTED_K = 0.7
# A proposal that would need more than so many rounds had better learn.
_FAR = 4
# The share of effective draws below which nodes were placed near the wrong ones.
_ELSEWHERE = 0.5
# The defence: a share of draws from the network's posterior, made so much wider.
_DEFENCE, _WIDER = 0.1, 2.0


@dataclass(frozen=True)
class Refine:
    """Settings of `refine`."""

    n_draws: int = 1024
    """Draws of a round."""
    min_ess: float = 500.0
    """A record is done when it has so many effective draws, and a Pareto shape below 0.7."""
    max_draws: int = 16_384
    max_adaptations: int = 4
    """How often the proposal learns before Markov chains take over."""
    variance: float = 0.3
    """Of the log-likelihood, at the network's estimate: its noise alone divides the effective
    draws by exp of it."""
    n_particles: int | None = None
    """None: for each record so many that the log-likelihood has that variance."""

    def __post_init__(self) -> None:
        for name, least in (("n_draws", 100), ("max_draws", self.n_draws), ("max_adaptations", 0)):
            if getattr(self, name) < least:
                raise GreybayesError(f"{name} is {getattr(self, name)}, expected {least} or more.")
        for name in ("variance", "min_ess"):
            if not 0 < getattr(self, name) < np.inf:
                raise GreybayesError(f"{name} is {getattr(self, name)}, expected more than 0.")
        if self.n_particles is not None and self.n_particles < 1:
            raise GreybayesError(f"n_particles is {self.n_particles}, expected 1 or more.")


def refine(
    estimator: Estimator | str,
    records: Record | Sequence[Record],
    *,
    key: Seed = 0,
    settings: Refine | Mapping[str, Any] | None = None,
    watch: Watch | None = None,
) -> Any:
    """The exact posterior of each record, from a network's, as an `Estimate` with weighted samples.

    Its diagnostics say which rung gave it (`importance`, `adapted` or `mcmc`), how many effective
    draws it is worth, the Pareto shape `k_hat` of its weights and the log evidence.

    >>> import greybayes as gb
    >>> record = gb.simulate("linear-gaussian", key=1)[0]
    >>> estimate = refine("linear-gaussian", record)
    >>> estimate.diagnostics["rung"], estimate.diagnostics["ess"] > 500
    ('importance', True)
    """
    begun = time.perf_counter()
    estimator = load(estimator) if isinstance(estimator, str) else estimator
    settings = make_settings(Refine, settings)
    model = estimator.model
    lacks = ManyLogLiks.missing(model)
    if lacks:
        raise ModelError(f"refine cannot serve {type(model).__name__}: {lacks}.")
    several = as_list(records)
    if not several:
        return []
    fast = estimator.estimate(several)
    if fast[0].posterior is None or estimator.line is None:
        raise EstimatorError(
            "this estimator gives no posterior to refine; train it with the head posterior."
        )
    run = _Run(estimator, several, fast, settings, as_key(key), watch)
    run.draw()
    run.chains()
    seconds = (time.perf_counter() - begun) / len(several)
    return like(records, run.estimates(seconds))


class _Run:
    """The draws of all records, and the rung that each has reached."""

    def __init__(
        self,
        estimator: Estimator,
        records: list[Record],
        fast: list[Estimate],
        settings: Refine,
        key: Key[Array, ""],
        watch: Watch | None,
    ) -> None:
        self.records, self.fast, self.settings = records, fast, settings
        self.model, self.name = estimator.model, estimator.header["model"]["name"]
        assert estimator.line is not None
        self.line = estimator.line
        self.watch = watch or (lambda progress: None)
        key_particles, self._key, key_draws, self._key_chains = jr.split(key, 4)
        self.rng = np.random.default_rng(np.asarray(jr.key_data(key_draws)))
        self.log_liks = ManyLogLiks(
            self.model, _signals(estimator, records), n_particles=settings.n_particles
        )
        first = [_first(estimate) for estimate in fast]
        # Nodes are placed for wide draws, too, and tried on the others.
        near = [
            np.vstack(
                [
                    estimate.mean,
                    proposal.sample(PLACED - 1, self.rng),
                    proposal.narrow.sample(NEAR - PLACED, self.rng),
                ]
            )
            for estimate, proposal in zip(fast, first, strict=True)
        ]
        self.log_liks.choose(
            np.array(near),
            key_particles,
            settings.variance,
            tell=lambda done: self.watch(Progress(done, len(records), "placing nodes")),
        )
        self.weighed = [Weighed.before(proposal, self.model.prior.size) for proposal in first]
        self.adaptations = np.zeros(len(records), int)
        self.followed: set[int] = set()
        self.failed: list[int] = []
        self.chained: dict[int, Estimate] = {}

    def draw(self) -> None:
        """Rounds of draws until each record is done, or given over to chains."""
        wanted = dict.fromkeys(range(len(self.records)), self.settings.n_draws)
        number = 0
        while wanted:
            number += 1
            for count in sorted(set(wanted.values())):
                rows = [row for row, each in wanted.items() if each == count]
                self._round(np.array(rows), count, f"round {number}")
            for row in wanted:
                if self._is_elsewhere(row):
                    self._follow(row)
            left = {row: self._wanted(row) for row in wanted}
            wanted = {row: count for row, count in left.items() if count}

    def _is_elsewhere(self, row: int) -> bool:
        """Whether the nodes of a record may lie where its posterior is not."""
        weighed = self.weighed[row]
        has_nodes = self.log_liks.told(row)["likelihood"] == "grid"
        # Nodes that followed the weights once, and gave enough draws, are where they should be.
        settled = row in self.followed and self._is_done(row)
        return has_nodes and not settled and weighed.ess < _ELSEWHERE * len(weighed.thetas)

    def _follow(self, row: int) -> None:
        """Place nodes where the weights are, and weigh with them all that was drawn so far."""
        weighed = self.weighed[row]
        drawn = weighed.adapted(self.line).sample(NEAR - 1, self.rng)
        near = np.vstack([weighed.mean, drawn])
        self._key, key_nodes, key = jr.split(self._key, 3)
        one = np.array([row])
        # Weights of few draws reach so far that there may be no nodes for all of it; those that
        # followed before are near enough to go on with.
        keep = row in self.followed
        self.log_liks.choose(near[None], key_nodes, self.settings.variance, one, keep=keep)
        self.followed.add(row)
        weighed.weigh(self._log_targets(weighed.thetas[None], one, key)[0])

    def _is_done(self, row: int) -> bool:
        weighed = self.weighed[row]
        return weighed.k_hat <= _TRUSTED_K and weighed.ess >= self.settings.min_ess

    def _wanted(self, row: int) -> int:
        """How many more draws a record needs, from the proposal that it then has."""
        settings, weighed = self.settings, self.weighed[row]
        n, trusted = len(weighed.thetas), weighed.k_hat <= _TRUSTED_K
        if self._is_done(row):
            return 0
        # More of the same where that is not far, or nothing is left to learn.
        needed = int(1.1 * n * settings.min_ess / max(weighed.ess, 1e-9)) - n
        exhausted = self.adaptations[row] >= settings.max_adaptations
        if trusted and n + needed <= (settings.max_draws if exhausted else _FAR * settings.n_draws):
            # A power of two of rounds: few shapes are compiled.
            return settings.n_draws << (needed // settings.n_draws).bit_length()
        if exhausted:
            self.failed.append(row)
            return 0
        self.adaptations[row] += 1
        weighed.proposal = weighed.adapted(self.line)
        return settings.n_draws

    def _round(self, rows: Int[np.ndarray, " record"], count: int, name: str) -> None:
        thetas = np.stack([self.weighed[row].proposal.sample(count, self.rng) for row in rows])
        self._key, key = jr.split(self._key)

        def tell(done: int) -> None:
            self.watch(Progress(done, len(rows) * count, f"{name}, {len(rows)} records"))

        log_targets = self._log_targets(thetas, rows, key, tell)
        for row, drawn, log_target in zip(rows, thetas, log_targets, strict=True):
            self.weighed[row].add(drawn, log_target)

    def _log_targets(
        self,
        thetas: Float[np.ndarray, "record draw param"],
        rows: Int[np.ndarray, " record"],
        key: Key[Array, ""],
        tell: Callable[[int], None] = lambda done: None,
    ) -> Float[np.ndarray, "record draw"]:
        """Log-prior plus log-likelihood."""
        flat = thetas.reshape(-1, thetas.shape[2])
        log_prior = _log_priors(self.model, flat).reshape(thetas.shape[:2])
        found = self.log_liks.at(thetas, rows, key, tell) + log_prior
        return np.nan_to_num(found, nan=-np.inf)

    def chains(self) -> None:
        """Particle MCMC, from the draws, for the records that draws did not serve."""
        if not self.failed:
            return
        start = np.array([self.weighed[row].mean for row in self.failed])
        given = self.settings.n_particles
        settings: dict[str, Any] = {"min_ess": self.settings.min_ess, "likelihood": "exact"}
        if given is not None:
            proposal = self.log_liks.filter.proposal
            settings |= {"likelihood": "particle", "proposal": proposal, "n_particles": given}
        estimates = cme_mh(
            self.model,
            [self.records[row] for row in self.failed],
            key=self._key_chains,
            settings=settings,
            start=start,
            watch=self.watch,
        )
        self.chained = dict(zip(self.failed, estimates, strict=True))

    def estimates(self, seconds: float) -> list[Estimate]:
        """What each record gives."""
        return [self._estimate(row, seconds) for row in range(len(self.records))]

    def _estimate(self, row: int, seconds: float) -> Estimate:
        weighed, fast = self.weighed[row], self.fast[row]
        diagnostics = {
            "rung": RUNGS[2 if row in self.chained else int(self.adaptations[row] > 0)],
            "ess": weighed.ess,
            "n_draws": len(weighed.thetas),
            **self.log_liks.told(row),
            **fast.diagnostics,
        }
        common: dict[str, Any] = {
            "method": "refine",
            "model": self.name,
            "seconds": seconds,
            "settings": asdict(self.settings),
        }
        if row in self.chained:
            chained = self.chained[row]
            # A record that the model cannot have made is the better reason.
            status = chained.status if fast.status is Status.ok else fast.status
            # Weights that did not serve have no say, not of the evidence either.
            diagnostics = {**diagnostics, **chained.diagnostics}
            # One number, as on the other rungs: of the parameter that has fewest.
            diagnostics["ess"] = min(chained.diagnostics["ess"].values())
            return chained.replace(status=status, diagnostics=diagnostics, **common)
        own = {"k_hat": weighed.k_hat, "log_evidence": weighed.log_evidence}
        return Estimate.from_samples(
            fast.names,
            weighed.thetas,
            weighed.weights,
            diagnostics=diagnostics | own,
            status=fast.status,
            **common,
        )


def _first(estimate: Estimate) -> Defended:
    mixture: Any = estimate.posterior
    return Defended(mixture, mixture.widened(_WIDER), _DEFENCE)


def _signals(estimator: Estimator, records: list[Record]) -> Measured:
    """The signals of all records; one without u has the input that was trained for."""
    trained = estimator.input
    inputs = [trained if record.u is None else record.u for record in records]
    return Measured(
        np.stack([record.y for record in records]), np.stack([np.asarray(u) for u in inputs])
    )


def _log_priors(
    model: Model, thetas: Float[np.ndarray, "draw param"]
) -> Float[np.ndarray, " draw"]:
    filled = thetas[to_power_of_two(len(thetas))]
    with jax.enable_x64(True):
        found = _compiled_prior(model, jnp.asarray(filled, jnp.float64))
        return np.array(found)[: len(thetas)]


@functools.partial(jax.jit, static_argnums=0)
def _compiled_prior(model: Model, thetas):
    return jax.vmap(model.prior.log_prob)(thetas)
