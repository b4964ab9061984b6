"""The lock of the process that writes queues and index, on byte 3 of ``lock``.

The process with the services holds it. The next one waits for it, so that two processes never
write queues at once.
"""

from __future__ import annotations

import fcntl
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from lakelog.errors import StoreLocked
from lakelog.files.filesystem import File, FileSystem
from lakelog.files.pages.page_view import PageView
from lakelog.files.shared.ofd_lock import set_lock
from lakelog.format.layout import LOCK_FILE
from lakelog.runtime.forks import tell_of_forks

WAIT_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.01
DISPATCHING: Final = 3
"""The byte of ``lock``."""


@attrs.define(eq=False)
class DispatchLock:
    """The held lock; gone when it is released or the process ends."""

    _file: File
    _is_open: bool = attrs.field(default=True, init=False)

    @classmethod
    def take(cls, files: FileSystem, path: Path, wait_s: float | None = None) -> DispatchLock:
        """Acquire the lock; raises :class:`~lakelog.errors.StoreLocked` on timeout.

        :param wait_s: the timeout; ``None`` is :data:`WAIT_SECONDS`
        """
        wait_s = WAIT_SECONDS if wait_s is None else wait_s
        lock = cls(files.open(path / LOCK_FILE, write=True, create=True))
        tell_of_forks(lock)
        end = time.monotonic() + wait_s
        try:
            while not lock._try(fcntl.F_WRLCK):
                if time.monotonic() >= end:
                    raise _held(files, path, wait_s)
                time.sleep(_LOOK_SECONDS)
        except BaseException:
            lock.release()
            raise
        return lock

    def _try(self, kind: int) -> bool:
        return set_lock(self._file, DISPATCHING, kind)

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._is_open:
            with suppress(OSError):  # closing also unlocks, but not while a child has the file open
                self._try(fcntl.F_UNLCK)
            self.forked()

    def forked(self) -> None:
        """Close the copy in a forked child, which would otherwise keep the lock alive."""
        if self._is_open:
            self._is_open = False
            self._file.close()


def _held(files: FileSystem, path: Path, wait_s: float) -> StoreLocked:
    page = PageView.open(files, path)
    pid = (page.dispatcher[0] if page is not None else 0) or None
    who = f"process {pid}" if pid else "another process"
    return StoreLocked(
        f"{who} still writes queues and index of this store, {wait_s:.0f} s after its owner "
        "ended; end this process too, then open the store again",
        path=path,
        owner_pid=pid,
    )
