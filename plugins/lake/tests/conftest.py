"""What the tests of this folder share, and those of Spark with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog_lake.tasks.task import LandingSource
from lakelog_testing.samples import copy_store
from plugins.lake.tests.landing.tables import KINDS, SinkTable
from plugins.lake.tests.stores import filled
from tests.support.fixtures import StoreFixtures


@pytest.fixture(scope="session")
def store_fixtures(tmp_path_factory: pytest.TempPathFactory) -> StoreFixtures:
    """Store directories that RocketMQ wrote."""
    return StoreFixtures(tmp_path_factory.mktemp("store_fixtures"))


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of table."""
    return str(request.param)


@pytest.fixture(scope="session")
def store_of_300(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store to be copied, which takes less time than to put its messages again."""
    return filled(tmp_path_factory.mktemp("of_300") / "store", 300)


@pytest.fixture
def store_path(store_of_300: Path, tmp_path: Path) -> Path:
    """300 messages, durable."""
    return copy_store(store_of_300, tmp_path / "store")


@pytest.fixture
def source(store_path: Path) -> LandingSource:
    return LandingSource(store_path, "S")


@pytest.fixture
def table(kind: str, tmp_path: Path) -> SinkTable:
    """A table of each kind, which is not made yet."""
    return SinkTable(kind, tmp_path / "t")
