"""Services of a former ``serve`` that was killed: ended before they are started again.

Linux asked them to stop when it ended. One that hangs, or is held by a signal, may still be there;
it is known by its environment, so that no other process that has its id now is harmed.
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
"""How long one may take to stop by itself."""


class Later(Protocol):
    """Who calls later."""

    def later(self, seconds: float, act: Callable[[], None]) -> object:
        """Call ``act`` once, then."""


def end_leftovers(files: FileSystem, path: Path, loop: Later) -> None:
    """Ask them to stop, and kill them later; the caller owns the store, and runs no service yet."""
    for pid in _named(files, path):
        if _serves(pid, path):
            _LOG.warning("process %d is of a former run", pid, extra=fields("leftover", pid=pid))
            with suppress(OSError):
                os.kill(pid, signal.SIGTERM)
                os.kill(pid, signal.SIGCONT)
            loop.later(GRACE_SECONDS, _killer(pid, path))


def _named(files: FileSystem, path: Path) -> Iterator[int]:
    """The processes that the former status file has, whatever they are now."""
    processes = (read_status(files, path) or {}).get("processes")
    for row in processes if isinstance(processes, list) else ():
        pid = row.get("pid") if isinstance(row, dict) else None
        if type(pid) is int and pid > 1:
            yield pid


def _serves(pid: int, path: Path) -> bool:
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it is gone, or another user's
        return False
    return os.fsencode(f"{SERVES}={path}") in environ.split(b"\0")


def _killer(pid: int, path: Path) -> Callable[[], None]:
    def kill() -> None:
        if _serves(pid, path):
            with suppress(OSError):
                os.killpg(pid, signal.SIGKILL)

    return kill
