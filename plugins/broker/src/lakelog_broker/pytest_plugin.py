"""Fixtures for tests of programs that use RocketMQ: a broker in the process of the tests.

Its store has small files, and is in a temporary folder of pytest.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from lakelog_broker.embedded import EmbeddedBroker

SMALL: Final[dict[str, Any]] = {
    "segment_size_bytes": 16 << 20,
    "preallocate": False,
    "allocation_step_bytes": 64 << 10,
}
_GRPC: Final = ("grpc", "cryptography")
_INDEX: Final = {"slots": 1_000, "entries": 4_000}


@pytest.fixture
def rocketmq_broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A running broker of this test alone, at a free port of this machine."""
    with _broker(tmp_path) as broker:
        yield broker


@pytest.fixture(scope="session")
def rocketmq_broker_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A running broker for all tests of the run; with pytest-xdist, one for each worker."""
    with _broker(tmp_path_factory.mktemp("rocketmq")) as broker:
        yield broker


@contextmanager
def _broker(folder: Path) -> Iterator[EmbeddedBroker]:
    # Imported here, so that a test run without a test of the broker does not import it.
    from importlib.util import find_spec

    from lakelog_broker.embedded import EmbeddedBroker

    index = {} if find_spec("lakelog_hash_index") is None else {"hash-index": _INDEX}
    running = EmbeddedBroker(folder / "rocketmq-store", **SMALL, **index)
    # The import of grpcio takes longer than the start of a broker; most tests do not need it.
    running.has_endpoints_on_demand = all(find_spec(each) for each in _GRPC)
    with running as broker:
        yield broker
