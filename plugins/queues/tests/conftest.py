"""A store of each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelog import Store
from plugins.queues.tests.groups.support import open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path) as opened:
        yield opened
