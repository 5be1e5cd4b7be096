"""What several test files share: the reference data beside the project, where they are present."""

from pathlib import Path

import pytest

_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of reference data, which is not part of the product."""
    if not _DATA.is_dir():
        pytest.skip(f"the reference data are not here: {_DATA} does not exist")
    return _DATA
