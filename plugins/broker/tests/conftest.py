"""A store of each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import lakelog


@pytest.fixture
def store(tmp_path: Path) -> Iterator[lakelog.Store]:
    """An open store, which this process owns."""
    with lakelog.open(tmp_path / "store", mode="exclusive") as opened:
        yield opened
