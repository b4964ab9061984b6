"""Stores that somebody left in disorder."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import lakelog
from core.tests.store.faults import SeenFiles
from core.tests.store.support import SEGMENT, a_store, open_small, overwrite, segments
from lakelog import PutResult, RecoveryReport, Store
from lakelog.files.checkpoint import read_checkpoint, write_checkpoint
from lakelog.files.filesystem import RealFileSystem


def a_crashed_store(path: Path, count: int = 110, **more: Any) -> list[PutResult]:
    results = a_store(path, count, **more)
    crash(path)
    return results


def crash(path: Path) -> None:
    (path / "abort").write_text("4711")


def zero(path: Path, begin: int, end: int) -> None:
    while begin < end:
        length = min(end, begin - begin % SEGMENT + SEGMENT) - begin
        overwrite(path, begin, bytes(length))
        begin += length


def store_at(path: Path, result: PutResult, time_ms: int) -> None:
    """Change the store time of a record, which no checksum of the body covers."""
    overwrite(path, result.physical_offset + 56, time_ms.to_bytes(8, "big"))


def flip_bit(path: Path, offset: int) -> None:
    overwrite(path, offset, bytes([log_bytes(path)[offset] ^ 1]))


def flip(path: Path, result: PutResult) -> None:
    flip_bit(path, (result.physical_offset + result.end_offset) // 2)


def unconfirm(path: Path, offset: int) -> None:
    """Lower the checkpoint, as if it had been written before the bytes from ``offset`` on."""
    files = RealFileSystem()
    found = read_checkpoint(files, path)
    confirmed = min(found.confirm_offset, offset)
    write_checkpoint(files, path, found._replace(confirm_offset=confirmed))


def tear(path: Path, result: PutResult) -> None:
    """Leave half of a record, which no checkpoint confirms."""
    unconfirm(path, result.physical_offset)
    zero(path, (result.physical_offset + result.end_offset) // 2, result.end_offset)


def offsets(store: Store) -> list[int]:
    return [each.physical_offset for each in store.scan()]


def starts(results: list[PutResult]) -> list[int]:
    return [each.physical_offset for each in results]


def log_bytes(path: Path) -> bytes:
    return b"".join(each.read_bytes() for each in segments(path))


def recover_small(path: Path, **more: Any) -> RecoveryReport:
    given = {"plugins": [], "segment_size_bytes": SEGMENT, "preallocate": False, **more}
    return lakelog.recover(path, **given)


def quarantine(path: Path) -> dict[str, bytes]:
    folder = path / "lakelog" / "quarantine"
    return {each.name: each.read_bytes() for each in sorted(folder.glob("*.bytes"))}


def kept_lines(path: Path) -> list[dict[str, Any]]:
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
    with open_small(path, **more) as store:
        return store
