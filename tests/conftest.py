"""Fixtures for every test below this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.oracle import java
from tests.support import required
from tests.support.fixtures import StoreFixtures

if TYPE_CHECKING:
    from tests.oracle.java import Oracle

# The first use of a cold checkout downloads the jars and compiles.
_JAVA_TIMEOUT_SECONDS = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "oracle" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.java)
            item.add_marker(pytest.mark.timeout(_JAVA_TIMEOUT_SECONDS))


@pytest.fixture(scope="session")
def store_fixtures(tmp_path_factory: pytest.TempPathFactory) -> StoreFixtures:
    """Give store directories: `.get(name)` to read, `.copy(name, tmp_path)` to write."""
    return StoreFixtures(tmp_path_factory.mktemp("store_fixtures"))


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """Give the real RocketMQ store; without a JDK and Maven tests skip, but in CI they fail."""
    reason = java.missing()
    if reason is not None:
        required.missing(reason)
    built = java.build_oracle()
    yield built
    built.close()
