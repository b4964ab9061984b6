"""Stores that somebody left in disorder."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lakelog
from core.tests.store.support import SEGMENT, a_store, open_small, segments
from lakelog import PutResult, RecoveryReport, Store
from lakelog.files.filesystem import File, RealFileSystem

CHANGING = frozenset({"write_at", "allocate", "truncate", "stamp", "sync"})


def a_crashed_store(path: Path, count: int = 110, **more: Any) -> list[PutResult]:
    """Make a store whose owner died when all was written."""
    results = a_store(path, count, **more)
    crash(path)
    return results


def crash(path: Path) -> None:
    """Leave a store as if its owner had died."""
    (path / "abort").write_text("4711")


def alter(path: Path, offset: int, change: Callable[[bytes], bytes], length: int) -> None:
    """Change some bytes of the log."""
    segment = path / "commitlog" / f"{offset - offset % SEGMENT:020d}"
    data = bytearray(segment.read_bytes())
    at = offset % SEGMENT
    data[at : at + length] = change(bytes(data[at : at + length]))
    segment.write_bytes(data)


def flip(path: Path, result: PutResult) -> None:
    """Change one bit in the middle of a record's body."""
    middle = (result.physical_offset + result.end_offset) // 2
    alter(path, middle, lambda data: bytes([data[0] ^ 1]), 1)


def tear(path: Path, result: PutResult) -> None:
    """Lose the second half of a record."""
    size = result.end_offset - result.physical_offset
    alter(path, result.physical_offset + size // 2, lambda data: bytes(len(data)), size - size // 2)


def offsets(store: Store) -> list[int]:
    """Where the records of a store start."""
    return [each.physical_offset for each in store.scan()]


def starts(results: list[PutResult]) -> list[int]:
    """Where records were put."""
    return [each.physical_offset for each in results]


def log_bytes(path: Path) -> bytes:
    """All segments, one behind the other."""
    return b"".join(each.read_bytes() for each in segments(path))


def recover_small(path: Path, **more: Any) -> RecoveryReport:
    """Recover a store of small segments."""
    given = {"plugins": [], "segment_size_bytes": SEGMENT, "preallocate": False, **more}
    return lakelog.recover(path, **given)


def quarantine(path: Path) -> dict[str, bytes]:
    """The copies that are kept, by their names."""
    folder = path / "lakelog" / "quarantine"
    return {each.name: each.read_bytes() for each in sorted(folder.glob("*.bytes"))}


def kept_lines(path: Path) -> list[dict[str, Any]]:
    """What is said about them."""
    text = (path / "lakelog" / "quarantine" / "quarantine.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


class _StoppingFile:
    """A file whose changes the machine may not live to see."""

    def __init__(self, file: File, check: Callable[[str], None]) -> None:
        self._file = file
        self._check = check

    def __getattr__(self, name: str) -> Any:
        if name in CHANGING:
            self._check(name)
        return getattr(self._file, name)

    def map(self, length: int, *, writable: bool, position: int = 0) -> Any:
        if writable:
            self._check("map")
        return self._file.map(length, writable=writable, position=position)


class StoppingFiles(RealFileSystem):
    """Files of a machine that stops at the n-th change: from then on, all of them fail.

    :ivar left: how many changes it lives to see
    :ivar calls: what was changed, and what was not any more
    """

    def __init__(self, left: int) -> None:
        object.__setattr__(self, "left", left)
        object.__setattr__(self, "calls", [])

    left: int
    calls: list[str]

    @property
    def stopped(self) -> bool:
        """Whether any change came too late."""
        return len(self.calls) > self.left

    def _check(self, what: str) -> None:
        self.calls.append(what)
        if self.stopped:
            raise OSError(errno.EIO, f"the machine stopped before {what}")

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        if create and not path.exists():
            self._check("create")
        file: Any = _StoppingFile(super().open(path, write=write, create=create), self._check)
        return file  # type: ignore[no-any-return]  # it is a File by delegation

    def make_dir(self, path: Path, *, durable: bool = True) -> None:
        if not path.is_dir():
            self._check("make_dir")
        super().make_dir(path, durable=durable)

    def rename(self, source: Path, target: Path) -> None:
        self._check("rename")
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._check("unlink")
        super().unlink(path)

    def sync_dir(self, path: Path) -> None:
        self._check("sync_dir")
        super().sync_dir(path)


def open_and_close(path: Path, **more: Any) -> Store:
    """Open a store of small segments and close it again."""
    with open_small(path, **more) as store:
        return store
