"""Ends services left by a ``serve`` that was killed, before they are started again.

Linux sent them SIGTERM when it ended. A service that hangs or is stopped may still exist. It is
identified by its environment, so that an unrelated process with a reused id is not killed.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from lakelog.files.filesystem import FileSystem
from lakelog_daemon.child import SERVES
from lakelog_daemon.logs import fields
from lakelog_daemon.runfiles import read_status

_LOG: Final = logging.getLogger("lakelog.serve")
GRACE_SECONDS: Final = 5.0
"""Time that a leftover has to stop by itself, in seconds."""


class Later(Protocol):
    """Schedules calls."""

    def later(self, seconds: float, act: Callable[[], None]) -> object:
        """Call ``act`` once, after ``seconds``."""


def end_leftovers(files: FileSystem, path: Path, loop: Later) -> None:
    """Ask leftovers to stop, and kill them later; call it as owner, before starting services."""
    for pid in _named(files, path):
        if _serves(pid, path):
            _LOG.warning("process %d is of a former run", pid, extra=fields("leftover", pid=pid))
            with suppress(OSError):
                os.kill(pid, signal.SIGTERM)
                os.kill(pid, signal.SIGCONT)
            loop.later(GRACE_SECONDS, _killer(pid, path))


def _named(files: FileSystem, path: Path) -> Iterator[int]:
    """The process ids in the former status file; they may belong to other processes now."""
    processes = (read_status(files, path) or {}).get("processes")
    for row in processes if isinstance(processes, list) else ():
        pid = row.get("pid") if isinstance(row, dict) else None
        if type(pid) is int and pid > 1:
            yield pid


def _serves(pid: int, path: Path) -> bool:
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it ended, or belongs to another user
        return False
    return os.fsencode(f"{SERVES}={path}") in environ.split(b"\0")


def _killer(pid: int, path: Path) -> Callable[[], None]:
    def kill() -> None:
        if _serves(pid, path):
            with suppress(OSError):
                os.killpg(pid, signal.SIGKILL)

    return kill
