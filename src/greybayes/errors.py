"""What can go wrong, in words: exceptions for the border, statuses for inside a computation.

Every message says what came, what was expected, and what to do. The command line prints it as one
sentence and exits with 2, so messages are written for the user of a model, not for its author.
"""

import difflib
import enum
from collections.abc import Iterable


class GreybayesError(Exception):
    """Base of every error a user can mend: catch this one to catch them all."""


class ModelError(GreybayesError):
    """A model is written wrongly, unknown, or lacks what a method needs."""


class ThetaError(GreybayesError):
    """A parameter has an unknown name, a wrong shape, or lies outside the support of its prior."""


class RecordError(GreybayesError):
    """A record, or the file it should come from, cannot be used."""


class InputError(GreybayesError):
    """An input signal or design cannot be used."""


class EstimatorError(GreybayesError):
    """An estimator cannot be trained, loaded, or used for this record."""


class Status(enum.Enum):
    """How a computation ended. Inside compiled code failure is a value; this is its name."""

    ok = "ok"
    diverged = "diverged"
    collapsed = "collapsed"
    unconverged = "unconverged"
    misfit = "misfit"

    @property
    def sentence(self) -> str:
        """The status for a human, with what to do about it."""
        return _SENTENCES[self]


_SENTENCES = {
    Status.ok: "no problem was found.",
    Status.diverged: (
        "a path left the range of numbers (overflow or NaN); narrow the prior, shorten dt, or "
        "take more substeps."
    ),
    Status.collapsed: (
        "the particles lost the record: at some sample hardly one of them could have made it, so "
        "the log-likelihood is not to be trusted; raise n_particles or use the guided proposal."
    ),
    Status.unconverged: (
        "the iterations ended before they agreed; allow more of them, or start elsewhere."
    ),
    Status.misfit: (
        "the model and its prior hardly ever make a record like this one, so the estimate is not "
        "to be trusted; look at the record (units, offset, delay, a dead sensor), then widen the "
        "prior or mend the model, and train again."
    ),
}


def nearest(name: str, names: Iterable[str]) -> str:
    """A clause that offers the names most like `name`, or all of them where none is like it.

    >>> nearest("grwth2", ["fir", "growth1", "growth2"])
    'did you mean growth2 or growth1?'
    >>> nearest("tanks", ["fir", "growth1"])
    'known: fir, growth1.'
    """
    names = list(names)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"known: {', '.join(names) or 'none'}."
