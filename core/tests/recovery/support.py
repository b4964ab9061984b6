"""Stores that somebody left in disorder."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lakelog
from core.tests.store.faults import SeenFiles
from core.tests.store.support import SEGMENT, a_store, open_small, segments
from lakelog import PutResult, RecoveryReport, Store


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


class StoppingFiles(SeenFiles):
    """Files of a machine that stops at the n-th change: from then on, all of them fail.

    :ivar left: how many changes it lives to see
    """

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    @property
    def stopped(self) -> bool:
        """Whether any change came too late."""
        return len(self.seen) > self.left

    def see(self, call: str, path: Path) -> None:
        if call == "open":  # which changes nothing
            return
        super().see(call, path)
        if self.stopped:
            raise OSError(errno.EIO, f"the machine stopped before {call}")


def open_and_close(path: Path, **more: Any) -> Store:
    """Open a store of small segments and close it again."""
    with open_small(path, **more) as store:
        return store
