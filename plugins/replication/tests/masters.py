"""Masters over a log of a test, and slaves that do what the test says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

from lakelog.files.filesystem import RealFileSystem
from lakelog.hooks import Context
from lakelog.hooks.kinds import StoreSettings
from lakelog_replication.master.replicator import HaMaster
from lakelog_replication.settings import RocketmqHaSettings
from lakelog_testing import FakeReplicatedLog, ScriptedSlave
from tests.support.waiting import until

PATIENCE_SECONDS = 60.0
SLOW_MS = 60_000
"""A time that no test waits for."""
eventually = until


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


def slave(master: HaMaster, source: str = "127.0.0.1", **more: Any) -> ScriptedSlave:
    """A slave that has connected, and has reported nothing yet."""
    assert master.port is not None
    return ScriptedSlave(master.port, source=source, **more)


class Replica:
    """A slave in a thread, which reports each frame until one side closes.

    :ivar bytes: of the log, from where it began
    :ivar reports: clear it to hold reports back
    """

    def __init__(self, port: int, begin: int = 1, source: str = "127.0.0.1") -> None:
        self.peer = ScriptedSlave(port, source=source, patience_seconds=PATIENCE_SECONDS)
        self.peer.report(begin)
        self.bytes = b""
        self.reports, self.begun, self.ended = Event(), Event(), Event()
        self.reports.set()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with suppress(EOFError, OSError, ValueError):  # the master, or the test, has closed
            while True:
                _, body = self.peer.frame()
                self.bytes += body
                self.reports.wait(PATIENCE_SECONDS)
                self.peer.report(self.peer.end)
                self.begun.set()
        self.ended.set()

    def close(self) -> None:
        self.reports.set()
        self.peer.close()
        self._thread.join()
