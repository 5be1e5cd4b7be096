"""CME-MH: the conditional mean by Metropolis-Hastings with a particle likelihood.

Algorithm 1 of the paper (particle marginal Metropolis-Hastings, Andrieu, Doucet and Holenstein
2010): a random walk in the unconstrained space, with the Jacobian of the way to theta in the
acceptance, here for many chains and many records at once. Started from the prior or from any
estimate; what the proposals need to know is learned during the burn-in.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax.random as jr
import numpy as np
from jaxtyping import Float

from greybayes._arviz import load_arviz
from greybayes._lanes import as_key
from greybayes._types import Seed
from greybayes.classical.methods import Progress, Watch, as_list, like, make_settings
from greybayes.classical.metropolis import (
    ACCEPTANCE,
    Kernel,
    Points,
    adapted,
    first_kernel,
    move,
)
from greybayes.classical.posterior import Guides, Posterior
from greybayes.classical.starts import starts
from greybayes.errors import GreybayesError, ModelError, Status
from greybayes.estimate import Estimate
from greybayes.likelihood.density import without_density
from greybayes.likelihood.grid import NEAR
from greybayes.likelihood.measured import measured_batch
from greybayes.likelihood.particle import Filter
from greybayes.model import Model
from greybayes.record import Record
from greybayes.zoo import get_model

# How often the kernel learns, and how often log-likelihoods are drawn anew, during the burn-in.
_LEARN, _REFRESH = 25, 10
# Draws between two looks at whether a record has converged.
_LOOK = 100
# Draws of an estimate's density from which the first kernel learns.
_KNOWN = 200
# Draws after which a record that has not converged gets more particles: chains stick to lucky
# log-likelihoods where those are noisy.
_PATIENCE = 1500
# So many times patience may a record have cost when it is helped again: twice, as they go.
_LAST_HELP = 1
# Draws of the prior from which each chain picks its start, and those that are looked at again.
_CANDIDATES, _FINALISTS = 32, 4


@dataclass(frozen=True)
class CmeMh:
    """Settings of `cme_mh`."""

    n_chains: int = 4
    burn_in: int = 500
    min_ess: float = 400.0
    """A record is done when every parameter has this many effective draws, over all chains, ..."""
    max_r_hat: float = 1.02
    """... and the chains agree this well (split, rank-normalised R-hat)."""
    min_draws: int = 200
    max_draws: int = 10_000
    """Draws of a chain after which a record that is not done is given up: `unconverged`."""
    likelihood: str = "particle"
    """`exact`: without noise where the model has it (closed form, Kalman, or nodes for one state)
    and the record allows it."""
    n_particles: int | None = None
    """None: for each record so many that its log-likelihood has a variance of about 1."""
    proposal: str = "bootstrap"
    resampling: str = "systematic"
    threshold: float = 0.5
    jump: float = 0.5
    """The share of proposals that do not start from where the chain is; 0 is the paper's walk."""
    walk: str = "adapted"
    """`diagonal` learns no correlations, as the published variant."""
    variances: str = "stated"
    """`std`: a uniform prior on a variance is taken as one on its standard deviation s, and E[s]^2
    is reported, as the published variant does."""

    def __post_init__(self) -> None:
        at_least = {"n_chains": 2, "burn_in": 2 * _LEARN, "min_draws": 4, "max_draws": 4}
        for name, least in at_least.items():
            if getattr(self, name) < least:
                raise GreybayesError(f"{name} is {getattr(self, name)}, expected {least} or more.")
        if self.n_particles is not None and self.n_particles < 1:
            raise GreybayesError(f"n_particles is {self.n_particles}, expected 1 or more.")
        if self.n_particles is not None and self.likelihood == "exact":
            raise GreybayesError("an exact likelihood takes no n_particles; leave one of them out.")
        if not 0 <= self.jump < 1:
            raise GreybayesError(f"jump is {self.jump}, expected a share from 0 to below 1.")
        for name, known in (
            ("walk", ("adapted", "diagonal")),
            ("variances", ("stated", "std")),
            ("likelihood", ("particle", "exact")),
        ):
            if getattr(self, name) not in known:
                raise GreybayesError(
                    f"{name} is {getattr(self, name)!r}, expected {' or '.join(known)}."
                )
        self.filter  # noqa: B018  # Checks the rest.

    @property
    def filter(self) -> Filter:
        """The settings of the particle filter."""
        return Filter(self.proposal, self.resampling, self.threshold)


def missing(model: Model) -> str | None:
    """What a model lacks for this method."""
    return without_density(model, "observation")


def cme_mh(
    model: Model | str,
    records: Record | Sequence[Record],
    *,
    key: Seed = 0,
    settings: CmeMh | Mapping[str, Any] | None = None,
    start: Any = None,
    watch: Watch | None = None,
) -> Any:
    """The conditional mean of theta, and samples of its posterior, for each record.

    `start` is None (chains pick from draws of the prior), an estimate or one for each record, or an
    array of thetas. Estimates that have a density, as a network's do, serve the chains to the end:
    they start at draws of it, and jump to draws of it, which are accepted so that the answer stays
    exact. A record leaves the batch when its chains have converged.

    >>> import greybayes as gb
    >>> record = gb.simulate("fir", n_steps=30, key=1)[0]
    >>> estimate = cme_mh("fir", record, settings={"burn_in": 50, "max_draws": 100})
    >>> estimate.samples.shape[0], sorted(estimate.diagnostics)
    (4, ['acceptance', 'ess', 'n_particles', 'r_hat'])
    """
    begun = time.perf_counter()
    name = model if isinstance(model, str) else ""
    model = get_model(model)
    clause = missing(model)
    if clause:
        raise ModelError(f"cme-mh cannot serve {type(model).__name__}: {clause}.")
    settings = make_settings(CmeMh, settings)
    several = as_list(records)
    if not several:
        return []
    key_start, key_chains, key_moves = jr.split(as_key(key), 3)
    # One stream for the moves of all chains; NumPy makes it from the bits of the key.
    rng = np.random.default_rng(np.asarray(jr.key_data(key_moves)))
    posterior = Posterior(model, measured_batch(model, several), settings, key_chains)
    run = _Run(posterior, settings, rng, watch)
    points = run.begin(key_start, start)
    points, kernel = run.burn_in(points)
    found = run.sample(points, kernel)
    seconds = (time.perf_counter() - begun) / len(several)
    common = {
        "method": "cme-mh",
        "model": name or type(model).__name__,
        "seconds": seconds,
        "settings": asdict(settings),
    }
    estimates = [_estimate(model, settings, each, common) for each in found]
    for row, each in enumerate(estimates):
        # Chains that found together need no particles to speak for them.
        if each.status is Status.unconverged and posterior.is_lost(row, each.mean):
            estimates[row] = each.replace(status=Status.collapsed)
    return like(records, estimates)


class _Run:
    """The three phases of a run, and what they share."""

    def __init__(self, posterior: Posterior, settings: CmeMh, rng, watch: Watch | None) -> None:
        self.posterior, self.settings, self.rng = posterior, settings, rng
        self.watch = watch or (lambda progress: None)
        self.total = settings.burn_in + settings.max_draws
        self.guides: Guides | None = None
        self.exact = settings.likelihood == "exact"

    def begin(self, key, start: Any) -> Points:
        """Points that the prior and the record agree on, each chain on its own, or those given."""
        n_chains, posterior = self.settings.n_chains, self.posterior
        self.guides = Guides.of(posterior, start)
        if self.guides is not None:
            z = self.guides.draw(self.rng, max(n_chains, NEAR))
            posterior.choose(posterior.constrain(z[:, : NEAR if self.exact else 1])[0])
            return posterior.at(z[:, :n_chains])
        if start is not None:
            given = starts(posterior.model, key, 1, posterior.n_records, start)
            z = posterior.unconstrain(np.repeat(given, n_chains, axis=1))
            # A little apart, so that R-hat can tell whether they found together.
            z = z + 0.1 * posterior.spread * self.rng.standard_normal(z.shape)
            if not self.exact:  # That waits until the chains have come nearer.
                posterior.choose(given)
            return posterior.at(z)
        thetas = starts(posterior.model, key, n_chains * _CANDIDATES, posterior.n_records)
        z = posterior.unconstrain(thetas)
        points = posterior.at(z)
        z = z.reshape(len(z), n_chains, _CANDIDATES, -1)
        worst_first = points.log_lik.reshape(z.shape[:-1]).argsort(-1)
        z = np.take_along_axis(z, worst_first[..., -_FINALISTS:, None], axis=2)
        # The number of particles is chosen where the record is, not in the middle of nowhere.
        if not self.exact:
            posterior.choose(posterior.constrain(z[:, :1, -1])[0])
        again = posterior.at(z.reshape(len(z), -1, z.shape[-1])).log_lik.reshape(z.shape[:-1])
        picked = np.take_along_axis(z, again.argmax(-1)[..., None, None], axis=2)[:, :, 0]
        return posterior.at(picked)

    def burn_in(self, points: Points) -> tuple[Points, Kernel]:
        """Move and learn; what was drawn is forgotten."""
        settings, posterior = self.settings, self.posterior
        wide = np.broadcast_to(0.3 * posterior.spread, points.z[:, 0].shape)
        kernel = first_kernel(points.z.mean(1), wide)
        if self.guides is not None:
            drawn = self.guides.draw(self.rng, _KNOWN)[None]
            right = np.full(posterior.n_records, ACCEPTANCE)
            kernel = adapted(kernel, drawn, right, 0.0, diagonal=settings.walk == "diagonal")
        history, accepted = [], []
        for i in range(1, settings.burn_in + 1):
            points, moved = move(self.rng, points, kernel, posterior.at, 0.0)
            history.append(points.z)
            accepted.append(moved)
            # Nodes are for where the chains are, so they are placed again at the end.
            if i == settings.burn_in // 2 or (self.exact and i == settings.burn_in):
                posterior.choose(posterior.constrain(self._near(history))[0])
            if i % _REFRESH == 0 or i in (settings.burn_in // 2, settings.burn_in):
                # A lucky log-likelihood must not hold a chain back while the kernel learns.
                points = posterior.at(points.z)
            if i % _LEARN == 0:
                rate = np.mean(accepted[-_LEARN:], axis=(0, 2))
                learned = np.stack(history[i // 2 :])
                kernel = adapted(kernel, learned, rate, 2.0, diagonal=settings.walk == "diagonal")
            if i % _REFRESH == 0:
                self._tell(i, "burn-in", accepted)
        return points, kernel

    def _near(self, history: list[np.ndarray]) -> Float[np.ndarray, "record place free"]:
        """Where the chains are; for an exact likelihood, also where they have been lately."""
        if not self.exact:
            return history[-1]
        lately = np.concatenate(history[len(history) // 2 :], axis=1)
        picked = np.linspace(0, lately.shape[1] - 1, NEAR).astype(int)
        return lately[:, self.rng.permutation(picked)]

    def sample(self, points: Points, kernel: Kernel) -> "list[_Found]":
        """Draw until every record is done or given up."""
        settings, posterior = self.settings, self.posterior
        rows = np.arange(posterior.n_records)
        found: list[_Found | None] = [None] * len(rows)
        draws: list[np.ndarray] = []
        accepted: list[np.ndarray] = []
        first = np.zeros(len(rows), int)
        guides = self.guides
        while len(rows):
            points, moved = move(
                self.rng,
                points,
                kernel,
                lambda z, rows=rows: posterior.at(z, rows),
                settings.jump,
                guides,
            )
            draws.append(points.z)
            accepted.append(moved)
            n = len(draws)
            last = n >= settings.max_draws
            if n % _REFRESH == 0:
                share = f"{posterior.n_records - len(rows)} of {posterior.n_records} done"
                self._tell(settings.burn_in + n, share, accepted)
            if not last and (n < settings.min_draws or n % _LOOK):
                continue
            z = np.moveaxis(np.stack(draws), 0, 2)  # record, chain, draw, free
            thetas = posterior.constrain(z)[0]
            done, stuck, needed = [], [], [0.0]
            for i, row in enumerate(rows):
                rate = float(np.mean([moved[i] for moved in accepted[first[i] :]]))
                kept = thetas[i, :, first[i] :]
                each = _look(kept, rate, posterior.told(int(row)), settings)
                if last or each.converged:
                    found[row] = each
                    done.append(i)
                    continue
                least = max(np.nan_to_num(each.ess).min(), 1.0)
                needed.append(kept.shape[1] * settings.min_ess / least)
                if n - first[i] >= _PATIENCE and first[i] <= _LAST_HELP * _PATIENCE:
                    stuck.append(i)
            # As many draws as the slowest record seems to need.
            likely = int(np.clip(max(needed), n + _LOOK, settings.max_draws))
            self.total = settings.burn_in + likely
            if stuck and posterior.add_particles(rows[stuck]):
                # What was drawn with too few particles is forgotten, and every one starts anew.
                first[stuck] = n
                points = _replaced(points, stuck, posterior.at(points.z[stuck], rows[stuck]))
            keep = np.setdiff1d(np.arange(len(rows)), done)
            first = first[keep]
            rows = rows[keep]
            guides = None if guides is None else guides.keep(rows)
            points, kernel = Points(*(a[keep] for a in points)), Kernel(*(a[keep] for a in kernel))
            draws, accepted = [d[keep] for d in draws], [a[keep] for a in accepted]
        return [each for each in found if each is not None]

    def _tell(self, i: int, phase: str, accepted: list[np.ndarray]) -> None:
        rate = np.mean([moved.mean() for moved in accepted[-_LEARN:]])
        self.watch(Progress(i, self.total, f"{phase}, acceptance {rate:.2f}"))


def _replaced(points: Points, places: list[int], new: Points) -> Points:
    """The same points, with others at some places."""
    changed = Points(*(np.array(each) for each in points))
    for old, part in zip(changed, new, strict=True):
        old[places] = part
    return changed


@dataclass(frozen=True)
class _Found:
    """The draws of one record."""

    thetas: Float[np.ndarray, "chain draw param"]
    acceptance: float
    told: dict[str, Any]
    r_hat: Float[np.ndarray, " param"]
    ess: Float[np.ndarray, " param"]
    converged: bool


def _look(thetas: np.ndarray, acceptance: float, told: dict[str, Any], settings: CmeMh) -> _Found:
    arviz = load_arviz()
    columns = np.moveaxis(thetas, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        r_hat = np.array([float(arviz.rhat(column)) for column in columns])
        ess = np.array([float(arviz.ess(column)) for column in columns])
    converged = bool((r_hat < settings.max_r_hat).all() and (ess >= settings.min_ess).all())
    return _Found(thetas, acceptance, told, r_hat, ess, converged)


def _estimate(model: Model, settings: CmeMh, found: _Found, common: dict[str, Any]) -> Estimate:
    names = model.prior.names
    diagnostics = {
        "acceptance": found.acceptance,
        "ess": dict(zip(names, found.ess.tolist(), strict=True)),
        "r_hat": dict(zip(names, found.r_hat.tolist(), strict=True)),
        **found.told,
    }
    status = Status.ok if found.converged else Status.unconverged
    if found.acceptance == 0:
        status = Status.collapsed
    estimate = Estimate.from_samples(
        names, found.thetas, diagnostics=diagnostics, status=status, **common
    )
    if settings.variances == "std":
        # Others may be negative.
        squares = np.where(model.prior.is_variance, found.thetas, 0.0)
        std = np.sqrt(squares).mean((0, 1))
        estimate = estimate.replace(mean=np.where(model.prior.is_variance, std**2, estimate.mean))
    return estimate
