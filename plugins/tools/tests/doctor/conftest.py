"""The store that tests of repairs share."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.tests.store.support import fill, open_small
from lakelog import PutResult


@pytest.fixture
def puts(tmp_path: Path) -> list[PutResult]:
    """The results of the puts into a closed store: 100 messages in 4 segments."""
    with open_small(tmp_path / "store") as store:
        return fill(store, 100)


@pytest.fixture
def path(tmp_path: Path, puts: list[PutResult]) -> Path:
    assert puts
    return tmp_path / "store"
