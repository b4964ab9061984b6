"""Files of the operating system that tell of each change, and those of which the n-th fails."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from threading import Event, Lock
from typing import Any, Final, TypeAlias

from lakelog.files.filesystem import File, RealFileSystem

Chosen: TypeAlias = Callable[[str, Path], bool]
"""Whether a call of a name, on a path, counts."""
CHANGING: Final = frozenset({"write_at", "allocate", "truncate", "stamp", "sync"})


class SeenFiles(RealFileSystem):
    """They call :meth:`see` before each change.

    :ivar seen: each change, and the path that it is made to
    """

    def __init__(self) -> None:
        self.seen: list[tuple[str, Path]] = []

    def see(self, call: str, path: Path) -> None:
        """Note the change; what raises here prevents it."""
        self.seen.append((call, path))

    def named(self, *calls: str) -> list[tuple[str, str]]:
        return [(call, path.name) for call, path in self.seen if not calls or call in calls]

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        if create and not path.exists():
            self.see("create", path)
        if write:
            self.see("open", path)
        file: Any = _SeenFile(super().open(path, write=write, create=create), self.see)
        return file  # type: ignore[no-any-return]  # it is a File by delegation

    def make_dir(self, path: Path, *, durable: bool = True) -> None:
        if not path.is_dir():
            self.see("make_dir", path)
        super().make_dir(path, durable=durable)

    def rename(self, source: Path, target: Path) -> None:
        self.see("rename", target)
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self.see("unlink", path)
        super().unlink(path)

    def sync_dir(self, path: Path) -> None:
        self.see("sync_dir", path)
        super().sync_dir(path)


class _SeenFile:
    def __init__(self, file: File, see: Callable[[str, Path], None]) -> None:
        self._file = file
        self._see = see

    def __getattr__(self, name: str) -> Any:
        if name in CHANGING:
            self._see(name, self._file.path)
        return getattr(self._file, name)

    def map(self, length: int, *, writable: bool, position: int = 0) -> Any:
        if writable:
            self._see("map", self._file.path)
        return self._file.map(length, writable=writable, position=position)


def in_the_log(_call: str, path: Path) -> bool:
    if "consumequeue" in path.parts:
        return False
    return path.name.isdigit() or path.name in ("commitlog", "checkpoint")


class NthFails(SeenFiles):
    """Counts calls from :meth:`arm` on; one of them fails, and does nothing.

    :ivar fired: set once it has
    """

    COUNTED: Final = CHANGING - {"stamp"} | {"rename", "sync_dir"}

    def __init__(self) -> None:
        self.fired, self._lock = Event(), Lock()
        self._left, self._code = 0, 0
        self._chosen: Chosen = in_the_log

    def arm(self, nth: int, code: int, chosen: Chosen) -> None:
        self.fired.clear()
        with self._lock:
            self._left, self._code, self._chosen = nth, code, chosen

    def see(self, call: str, path: Path) -> None:
        if call not in self.COUNTED:
            return
        with self._lock:
            if not self._left or not self._chosen(call, path):
                return
            self._left -= 1
            if self._left:
                return
        self.fired.set()
        name = errno.errorcode[self._code]
        raise OSError(self._code, f"this test's {call} fails: {name}", str(path))
