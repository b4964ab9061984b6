"""Masters over a log of a test, and slaves that do what the test says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lakelog.files.filesystem import RealFileSystem
from lakelog.interfaces import Context
from lakelog.settings.model import StoreSettings
from lakelog_replication.master.replicator import HaMaster
from lakelog_replication.settings import RocketmqHaSettings
from lakelog_testing import FakeReplicatedLog

PATIENCE_SECONDS = 20.0


def make(path: Path, **settings: Any) -> HaMaster:
    """A master of the store directory ``path``, at any free port."""
    (path / "lakelog").mkdir(parents=True, exist_ok=True)
    section = RocketmqHaSettings(**{"port": 0, "close_timeout_ms": 200, **settings})
    core = StoreSettings(segment_size_bytes=1 << 16)
    return HaMaster(section, Context(path, core, RealFileSystem()))


@contextmanager
def serving(log: FakeReplicatedLog, path: Path, **settings: Any) -> Iterator[HaMaster]:
    """A master that leads, of ``log``; it sends what is written unless it is told otherwise."""
    master = make(path, **{"send": "written", **settings})
    master.lead()
    try:
        master.start(log)
        yield master
    finally:
        master.close()


def eventually(is_so: Callable[[], object]) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.002)
