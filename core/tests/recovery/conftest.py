"""Store directories that the real store left, for tests of recovery."""

from __future__ import annotations

import pytest

from tests.support.fixtures import StoreFixtures


@pytest.fixture(scope="session")
def store_fixtures(tmp_path_factory: pytest.TempPathFactory) -> StoreFixtures:
    """Give store directories: `.get(name)` to read, `.copy(name, tmp_path)` to write."""
    return StoreFixtures(tmp_path_factory.mktemp("store_fixtures"))
