"""Importance sampling with several proposals: what is drawn, and what each draw weighs.

Draws of all proposals of a record count together, each weighed against the mixture of all of them
(the balance heuristic of Veach and Guibas 1995; Cornuet et al. 2012), so that a proposal that was
bad costs draws and does no harm. The largest weights are smoothed by a Pareto tail (Vehtari et al.
2024), whose shape says whether they can be trusted at all.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln, logsumexp

from greybayes._arviz import load_arviz
from greybayes.amortized.line import Line
from greybayes.estimate import Posterior

# An adapted proposal has heavier tails than a normal, and is a little wider than what was seen.
_FREEDOM, _WIDER = 5.0, 1.2


@dataclass(frozen=True, eq=False)
class Student:
    """A Student-t on the line, taken into the support of the prior."""

    line: Line
    centre: Float[np.ndarray, " param"]
    root: Float[np.ndarray, "param param"]
    freedom: float = _FREEDOM

    def sample(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n param"]:
        """Draws."""
        normal = rng.standard_normal((n, len(self.centre))) @ self.root.T
        heavy = np.sqrt(self.freedom / rng.chisquare(self.freedom, n))
        return self.line.from_line(np, self.centre + heavy[:, None] * normal)[0]

    def log_prob(self, theta: Float[np.ndarray, "*lanes param"]) -> Float[np.ndarray, "*lanes"]:
        """The log-density of theta."""
        z = self.line.to_line(np, theta)
        size, freedom = len(self.centre), self.freedom
        scaled = np.linalg.solve(self.root, (z - self.centre)[..., None])[..., 0]
        constant = gammaln((freedom + size) / 2) - gammaln(freedom / 2)
        constant -= 0.5 * size * np.log(freedom * np.pi) + np.log(np.diag(self.root)).sum()
        density = constant - 0.5 * (freedom + size) * np.log1p((scaled**2).sum(-1) / freedom)
        return density - self.line.from_line(np, z)[1]


@dataclass(frozen=True, eq=False)
class Defended:
    """A proposal with a share of wider draws: no region that it forgot has a weight without end."""

    narrow: Posterior
    wide: Posterior
    share: float = 0.1

    def sample(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n param"]:
        """Draws; the share of wide ones is exact, which is less noisy than a coin for each."""
        n_wide = round(self.share * n)
        drawn = [self.narrow.sample(n - n_wide, rng), self.wide.sample(n_wide, rng)]
        return np.concatenate(drawn)

    def log_prob(self, theta: Float[np.ndarray, "*lanes param"]) -> Float[np.ndarray, "*lanes"]:
        """The log-density of theta."""
        return np.logaddexp(
            np.log1p(-self.share) + self.narrow.log_prob(theta),
            np.log(self.share) + self.wide.log_prob(theta),
        )


@dataclass
class Weighed:
    """All draws of one record so far, and what they weigh."""

    proposal: Posterior
    """The one that draws next."""
    thetas: Float[np.ndarray, "draw param"]
    log_target: Float[np.ndarray, " draw"]
    """Log-prior plus log-likelihood of each draw."""
    used: list[tuple[Posterior, int]] = field(default_factory=list)
    log_weights: Float[np.ndarray, " draw"] | None = None
    k_hat: float = np.inf

    @classmethod
    def before(cls, proposal: Posterior, size: int) -> "Weighed":
        """Nothing drawn yet."""
        return cls(proposal, np.empty((0, size)), np.empty(0))

    def add(self, thetas: Float[np.ndarray, "draw param"], log_target: np.ndarray) -> None:
        """Draws of the proposal, and a new look at all weights."""
        self.thetas = np.concatenate([self.thetas, thetas])
        self.used.append((self.proposal, len(thetas)))
        self.weigh(np.concatenate([self.log_target, log_target]))

    def weigh(self, log_target: Float[np.ndarray, " draw"]) -> None:
        """All weights, for this target."""
        self.log_target = log_target
        log_weights = self.log_target - self._log_mixture()
        self.log_evidence = float(logsumexp(log_weights) - np.log(len(log_weights)))
        if not np.isfinite(log_weights).any():
            self.log_weights, self.k_hat = None, np.inf
            return
        # What has no weight takes no part in the tail.
        lowest = log_weights[np.isfinite(log_weights)].min()
        finite = np.where(np.isfinite(log_weights), log_weights, lowest - 700)
        with np.errstate(all="ignore"):
            smoothed, k_hat = load_arviz().psislw(finite)
        self.log_weights, self.k_hat = np.asarray(smoothed, float), float(k_hat)

    def _log_mixture(self) -> Float[np.ndarray, " draw"]:
        """The log-density of the mixture of all proposals that drew."""
        counts: dict[int, tuple[Posterior, int]] = {}
        for proposal, count in self.used:
            counts[id(proposal)] = (proposal, counts.get(id(proposal), (proposal, 0))[1] + count)
        total = len(self.thetas)
        terms = [np.log(n / total) + q.log_prob(self.thetas) for q, n in counts.values()]
        return np.asarray(logsumexp(terms, axis=0))

    @property
    def weights(self) -> Float[np.ndarray, " draw"]:
        """Smoothed, and normalised to one."""
        if self.log_weights is None:
            return np.full(len(self.thetas), 1 / max(1, len(self.thetas)))
        return np.exp(self.log_weights - logsumexp(self.log_weights))

    @property
    def ess(self) -> float:
        """How many draws of the posterior these are worth."""
        return 0.0 if self.log_weights is None else float(1 / (self.weights**2).sum())

    @property
    def mean(self) -> Float[np.ndarray, " param"]:
        """The weighted mean of the draws."""
        return self.weights @ self.thetas

    def adapted(self, line: Line) -> Student:
        """A proposal that has learned from the draws, with their weights as far as they reach."""
        z = line.to_line(np, self.thetas)
        log_weights = self.log_target - self._log_mixture()
        log_weights = np.nan_to_num(log_weights, nan=-np.inf, neginf=-1e300)
        weights = _flattened(log_weights - log_weights.max(), 10 * z.shape[1])
        centre = weights @ z
        off = z - centre
        covariance = (weights[:, None] * off).T @ off + 1e-6 * np.eye(z.shape[1])
        return Student(line, centre, np.sqrt(_WIDER) * np.linalg.cholesky(covariance))


def _flattened(log_weights: np.ndarray, enough: int) -> np.ndarray:
    """Weights to a power, the largest of a few that leaves enough effective draws."""
    weights = np.full(len(log_weights), 1 / len(log_weights))
    for power in (1.0, 0.5, 0.25, 0.1, 0.03, 0.01):
        weights = np.exp(power * log_weights)
        weights /= weights.sum()
        if 1 / (weights**2).sum() >= enough:
            break
    return weights
