"""ArviZ, imported when it is needed, without what it says of its next version."""

import warnings
from typing import Any


def load_arviz() -> Any:
    """The package."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        import arviz
    return arviz
