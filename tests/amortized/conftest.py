"""What the tests of the estimators share: compiled code and one tiny trained estimator."""

import pytest
from helpers.tiny import compile_cache, train_tiny


@pytest.fixture(scope="session", autouse=True)
def compiled(request):
    """Trainings are compiled once, and found again by children and by the next run of the tests."""
    with compile_cache(request.config.cache.mkdir("jax")) as environment:
        yield environment


@pytest.fixture(scope="session")
def tiny(compiled):
    """`linear-gaussian`, 200 steps."""
    return train_tiny()
