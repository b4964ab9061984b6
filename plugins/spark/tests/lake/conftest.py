"""Each test of a table runs for each kind of table."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugins.spark.tests.landing.tables import KINDS
from plugins.spark.tests.stores import messages, open_small


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    """300 messages, durable."""
    path = tmp_path / "store"
    with open_small(path) as store:
        store.put_batch(list(messages(300)))
    return path
