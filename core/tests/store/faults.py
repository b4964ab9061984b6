"""The operating system's files, of which the n-th call that changes something fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from threading import Event, Lock
from typing import TypeAlias

from lakelog.files.filesystem import File, RealFile, RealFileSystem
from lakelog.message import Body

Chosen: TypeAlias = Callable[[str, Path], bool]
"""Whether a call of a name, on a path, counts."""


def in_the_log(_call: str, path: Path) -> bool:
    """Calls on segments, finished or not, their folder, and the checkpoint."""
    if "consumequeue" in path.parts:
        return False
    return path.name.isdigit() or path.name in ("commitlog", "checkpoint")


class NthFails(RealFileSystem):
    """Counts calls from :meth:`arm` on; one of them fails, and does nothing.

    :ivar fired: set once it has
    """

    fired: Event

    def __init__(self) -> None:
        for name, value in (("fired", Event()), ("_lock", Lock()), ("_plan", [0, 0, None])):
            object.__setattr__(self, name, value)

    def arm(self, nth: int, code: int, chosen: Chosen) -> None:
        self.fired.clear()
        with self._lock:  # type: ignore[attr-defined]  # set past a frozen class
            self._plan[:] = [nth, code, chosen]  # type: ignore[attr-defined]  # set past a frozen class

    def check(self, call: str, path: Path) -> None:
        with self._lock:  # type: ignore[attr-defined]  # set past a frozen class
            plan = self._plan  # type: ignore[attr-defined]  # set past a frozen class
            nth, code, chosen = plan
            if not nth or not chosen(call, path):
                return
            plan[0] -= 1
            if plan[0]:
                return
        self.fired.set()
        raise OSError(code, f"this test's {call} fails: {errno.errorcode[code]}", str(path))

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        found = super().open(path, write=write, create=create)
        return _Counted(path, os.dup(found.fileno()), self, found)

    def rename(self, source: Path, target: Path) -> None:
        self.check("rename", target)
        super().rename(source, target)

    def sync_dir(self, path: Path) -> None:
        self.check("sync_dir", path)
        super().sync_dir(path)


class _Counted(RealFile):
    """A file that asks before each change."""

    def __init__(self, path: Path, fd: int, files: NthFails, found: File) -> None:
        super().__init__(path, fd)
        found.close()
        object.__setattr__(self, "_files", files)

    def _check(self, call: str) -> None:
        self._files.check(call, self.path)  # type: ignore[attr-defined]  # set past a frozen class

    def write_at(self, position: int, data: Body) -> None:
        self._check("write_at")
        super().write_at(position, data)

    def allocate(self, length: int, position: int = 0) -> None:
        self._check("allocate")
        super().allocate(length, position)

    def truncate(self, length: int) -> None:
        self._check("truncate")
        super().truncate(length)

    def sync(self) -> None:
        self._check("sync")
        super().sync()
