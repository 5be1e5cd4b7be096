"""What several test files share: the reference data beside the project, where they are present."""

import gc
from pathlib import Path

import jax
import pytest
from helpers.tiny import compile_cache, train_tiny

_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of reference data, which is not part of the product."""
    if not _DATA.is_dir():
        pytest.skip(f"the reference data are not here: {_DATA} does not exist")
    return _DATA


@pytest.fixture(scope="session", autouse=True)
def compiled(request):
    """What is compiled is found again by the other workers, by children and by the next run."""
    with compile_cache(request.config.cache.mkdir("jax")) as environment:
        yield environment


_MAPS = Path("/proc/self/maps")
# Of 65,530 that Linux gives a process, about twelve for each program. A worker of a whole run
# crashed in the compiler, probably because they were used up.
_MANY_MAPS = 20_000


@pytest.fixture(scope="module", autouse=True)
def few_programs():
    """Compiled programs are forgotten before there are more than a process can map."""
    yield
    if _MAPS.exists() and _MAPS.read_bytes().count(b"\n") > _MANY_MAPS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture(scope="session")
def tiny(compiled):
    """`linear-gaussian`, 200 steps."""
    return train_tiny()
