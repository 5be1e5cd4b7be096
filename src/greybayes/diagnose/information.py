"""What a record says of each parameter: is it at a bound, is more known than before?"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from greybayes.errors import ModelError
from greybayes.estimate import Estimate
from greybayes.prior import Prior

OUTSIDE = "outside the prior"
AT_THE_BOUND = "at the bound"
LIKE_THE_PRIOR = "no more information than the prior"
# An exponential that begins at a bound has its mean one standard deviation away, a normal whose top
# is at the bound 1.3, a uniform from bound to bound 1.7: what is nearer than this leans on it.
_LEANS = 1.2
# And as a share of the prior's spread: what is wide leans on a bound without wanting to leave it.
_NEAR = 0.1
# As a share of the prior's spread: the distance that is none, where no uncertainty is known.
_TOUCHES = 1e-3
# A standard deviation above this share of the prior's has learnt next to nothing.
_LEARNT = 0.9


class Information(NamedTuple):
    """What is to be said of one parameter."""

    name: str
    flags: tuple[str, ...]
    share: float | None
    """Its standard deviation over that of the prior; None where the method gives none."""


def prior_spread(prior: Prior) -> Float[np.ndarray, " param"]:
    """The standard deviation of each parameter before the record; NaN where one has none.

    >>> import numpyro.distributions as dist
    >>> from greybayes.prior import Parameter
    >>> prior_spread(Prior({"a": Parameter(dist.Normal(0.0, 2.0))}))
    array([2.])
    """
    try:
        return np.sqrt(prior.variance)
    except ModelError:
        return np.full(prior.size, np.nan)


def information(prior: Prior, estimate: Estimate) -> list[Information]:
    """For each parameter, whether it is at a bound and whether the record said anything of it.

    One outside the prior comes from a method that knows no bounds: the paper's networks, or a
    linear estimator.

    >>> import numpyro.distributions as dist
    >>> from greybayes.prior import Parameter
    >>> prior = Prior({name: Parameter(dist.Uniform(0.0, 1.0)) for name in "abc"})
    >>> std = np.diag([0.01, 0.28, 0.02])
    >>> found = information(prior, Estimate(prior.names, np.array([0.5, 0.5, 0.99]), std**2))
    >>> [each.flags for each in found]
    [(), ('no more information than the prior',), ('at the bound',)]
    """
    spread = prior_spread(prior)
    std = estimate.std
    found = []
    for i, (name, low, high) in enumerate(zip(prior.names, *prior.bounds, strict=True)):
        # The ends are single numbers, and what is one of them is not outside.
        distance = min(np.float32(estimate.mean[i]) - low, high - np.float32(estimate.mean[i]))
        known = std is not None and np.isfinite(std[i] / spread[i])
        share = float(std[i] / spread[i]) if known and std is not None else None
        like_prior = share is not None and share > _LEARNT
        # What knows nothing reaches all bounds.
        reach = 0.0 if share is None else min(_LEANS * share, _NEAR) * spread[i]
        leans = not like_prior and distance < reach
        at_the_bound = leans or distance < _TOUCHES * spread[i]
        flags = [OUTSIDE] if distance < 0 else [AT_THE_BOUND] if at_the_bound else []
        flags += [LIKE_THE_PRIOR] if like_prior else []
        found.append(Information(name, tuple(flags), share))
    return found
