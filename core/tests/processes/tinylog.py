"""A log of records of three numbers, appended to by the section, and read back to be judged.

A record: ``u64 queue + 1 | u64 queue offset | u64 number``, in the machine's byte order. Its store
time is how many records there are with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Final

import attrs

from lakelog.files.filesystem import File, RealFileSystem
from lakelog.processes.append_section import AppendLock, AppendSection
from lakelog.processes.queue_table import QueueTable
from lakelog.processes.shared_page import APPENDED, FAILED, LAST_TIMESTAMP, SharedPage

RECORD: Final = Struct("=QQQ")
LOG_BYTES: Final = 1 << 20
AT: Final = 8
BUSY_MS: Final = 60_000

MakeLock = Callable[[File, int, SharedPage], AppendLock]


class Failed(Exception):
    """The store has failed."""


@attrs.define
class TinyLog:
    """One process's view."""

    page: SharedPage
    section: AppendSection
    table: QueueTable
    descriptor: int

    @classmethod
    def make(cls, path: Path) -> TinyLog:
        files = RealFileSystem()
        (path / "lakelog").mkdir()
        SharedPage.make(files, path).reset(LOG_BYTES, {})
        QueueTable.make(files, path, 1, {})
        (path / "log").write_bytes(bytes(LOG_BYTES))
        return cls.open(path)

    @classmethod
    def open(cls, path: Path, busy_ms: int = BUSY_MS, make_lock: MakeLock = AppendLock) -> TinyLog:
        """As one more process would."""
        files = RealFileSystem()
        page, table = SharedPage.join(files, path), QueueTable(files, path, 1)
        file = files.open(path / "lock", write=True, create=True)
        lock = make_lock(file, AT, page)
        repaired = _Repaired(table, os.open(path / "log", os.O_RDWR))

        def fail(error: OSError | None) -> Exception:
            page.words[FAILED] = 1
            return Failed(str(error))

        section = AppendSection(page, file, lock, repaired.zero, repaired.raise_ends, fail, busy_ms)
        return cls(page, section, table, repaired.descriptor)

    def append(self, queue: int, numbers: list[int]) -> int:
        """Append a record for each number; the offset of the first."""
        section = self.section
        section.check()
        try:
            section.enter()
            start = self.page.words[APPENDED]
            first = self.table.next(("t", queue))
            data = b"".join(
                RECORD.pack(queue + 1, first + at, number) for at, number in enumerate(numbers)
            )
            section.begin(start + len(data))
            half = len(data) // 2
            os.pwrite(self.descriptor, data[half:], start + half)  # as a copy at a page fault may
            os.pwrite(self.descriptor, data[:half], start)
            section.commit(start + len(data), (start + len(data)) // RECORD.size)
            self.table.advance(("t", queue), len(numbers))
            section.finish()
            section.leave()
        except BaseException:
            if section.is_mine():
                section.leave()
            raise
        return start

    def inside(self, work: Callable[[], object]) -> None:
        self.section.enter()
        try:
            work()
        finally:
            self.section.leave()

    def records(self) -> list[tuple[int, int]]:
        """Queue and number of each record, as a reader finds them; behind them are zeros."""
        end = self.page.words[APPENDED]
        data = os.pread(self.descriptor, LOG_BYTES, 0)
        ends: dict[int, int] = {}
        found = []
        for queue, offset, number in RECORD.iter_unpack(data[:end]):
            assert queue, f"a hole in front of {end}"
            assert offset == ends.get(queue, 0)
            ends[queue] = offset + 1
            found.append((queue - 1, number))
        assert not any(data[end:])
        assert self.page.words[LAST_TIMESTAMP] == end // RECORD.size
        assert self.table.snapshot() == {("t", queue - 1): end for queue, end in ends.items()}
        return found


@attrs.frozen
class _Repaired:
    table: QueueTable
    descriptor: int

    def zero(self, start: int, end: int) -> None:
        os.pwrite(self.descriptor, bytes(end - start), start)

    def raise_ends(self, start: int, end: int) -> int:
        for queue, offset, _ in RECORD.iter_unpack(os.pread(self.descriptor, end - start, start)):
            self.table.raise_to(("t", queue - 1), offset + 1)
        return end // RECORD.size
