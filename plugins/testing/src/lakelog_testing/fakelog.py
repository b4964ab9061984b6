"""A log without a disk, for tests of flush strategies and replicators."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lakelog.errors import StoreFailed


class FakeLog:
    """A :class:`~lakelog.interfaces.Flushable` that a test appends to, stalls and breaks.

    :ivar appended: end of the appended bytes
    :ivar committed: end of the bytes visible to other processes
    :ivar flushed: end of the durable bytes
    :ivar syncs: number of syncs begun
    :ivar sync_seconds: duration of each sync
    :ivar on_synced: called after each sync
    :ivar staged: whether it acts like a staged writer: commits happen only on request
    """

    def __init__(self, *, staged: bool = False) -> None:
        self.staged = staged
        self.sync_seconds = 0.0
        self.appended = 0
        self.committed = 0
        self.flushed = 0
        self.syncs = 0
        self.on_synced: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._open = threading.Event()
        self._open.set()
        self._broken = self._failed = False
        self._turn = threading.Lock()

    def append(self, size: int = 100) -> int:
        """Append ``size`` bytes; returns the end of the log."""
        with self._lock:
            self.appended += size
            return self.appended

    def commit(self) -> int:
        """Commit everything appended to the page cache."""
        with self._lock:
            self.committed = self.appended
            return self.committed

    def sync(self) -> int:
        """Make earlier appends durable; blocks while stalled, raises when broken."""
        with self._lock:
            self.committed = end = self.appended
            self.syncs += 1
        time.sleep(self.sync_seconds)
        self._open.wait()
        if self._broken:
            self._failed = True
            raise self._failure()
        with self._lock:
            self.flushed = max(self.flushed, end)
        self.on_synced()
        return self.flushed

    def try_sync(self) -> bool:
        """Sync, unless another thread is in this call."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            if self.flushed < self.appended:
                self.sync()
        finally:
            self._turn.release()
        return True

    def wait_flushed(self, end_offset: int, timeout_s: float, ask: Callable[[], object]) -> bool:
        """Poll until everything before ``end_offset`` is durable."""
        deadline = time.monotonic() + timeout_s
        while self.flushed < end_offset:
            if self._failed:
                raise self._failure()
            if time.monotonic() >= deadline:
                return False
            if not self._turn.locked():
                ask()
            time.sleep(0.0005)
        return True

    @staticmethod
    def _failure() -> StoreFailed:
        error = StoreFailed("the disk of this test is broken; reopen the store")
        error.__cause__ = OSError(errno.EIO, "this test's disk fails")
        return error

    def break_disk(self) -> None:
        """Make this and every later sync fail."""
        self._broken = True

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Make every sync wait until :meth:`release` or the end of the ``with`` block."""
        self._open.clear()
        with self.released_behind():
            yield
        self.release()

    @contextmanager
    def released_behind(self) -> Iterator[None]:
        """Release the disk if the block fails; otherwise waiting threads would hang the test."""
        try:
            yield
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Release waiting syncs."""
        self._open.set()

    def await_sync(self, patience_seconds: float) -> None:
        """Wait until a sync has begun, with its end determined."""
        deadline = time.monotonic() + patience_seconds
        while not self.syncs:
            assert time.monotonic() < deadline, "no sync has begun"
            time.sleep(0.001)
