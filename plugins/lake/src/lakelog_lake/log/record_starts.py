"""Known starts of records in a log, found without reading the bytes between them.

A segment starts with a record. Inside of segments, units of ConsumeQueues have the starts of
records. The record at such an offset is read to verify it.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Final

import attrs

import lakelog
from lakelog.errors import CorruptRecord, OffsetOutOfRange
from lakelog.files.filesystem import FileSystem
from lakelog.format.layout import BLANK, SEGMENT_NAME_DIGITS
from lakelog_lake.log.queue_files import QueueFiles, queue_files

FEW: Final = 4
MANY: Final = 64
"""Most queues, longest first, that are searched for a cut."""


@attrs.define(eq=False)
class RecordStarts:
    """The known record starts of one log; offsets are physical offsets in bytes.

    :ivar queues: all queues with units
    :ivar starts: the start offset of each segment
    """

    store: lakelog.Store
    queues: Sequence[QueueFiles]
    starts: Sequence[int]

    @classmethod
    @contextmanager
    def of(cls, store: lakelog.Store, files: FileSystem | None = None) -> Iterator[RecordStarts]:
        """Open the queue files of a store."""
        with queue_files(store.path, files) as queues:
            yield cls(store, queues, segment_starts(store))

    @cached_property
    def longest(self) -> list[QueueFiles]:
        """All queues, those with most units first."""
        return sorted(self.queues, key=lambda each: each.first - each.end)

    def segment_of(self, offset: int) -> int:
        """The start of the segment with ``offset``, or of the last one before it."""
        at = bisect_right(self.starts, offset)
        return self.starts[at - 1] if at else (self.starts[0] if self.starts else 0)

    def message(self, offset: int) -> lakelog.StoredMessage | None:
        """The record at ``offset``, or ``None`` if there is no whole one."""
        try:
            return self.store.look_up(offset)
        except (CorruptRecord, OffsetOutOfRange):
            return None

    def behind(self, target: int, limit: int, asked: int = FEW) -> int | None:
        """The first known record start from ``target`` on and before ``limit``, or ``None``.

        :param asked: number of queues to search, longest first
        """
        found = set()
        for queue in self.longest[:asked]:
            place = queue.place(queue.first_from(target))
            if place is not None and target <= place[0] < limit:
                found.add(place[0])
        return next((each for each in sorted(found) if self.message(each) is not None), None)

    def before(self, target: int, minimum: int) -> int:
        """The last known record start up to ``target``; ``minimum`` without one."""
        found = set()
        for queue in self.longest[:MANY]:
            place = queue.place(queue.first_from(target + 1) - 1)
            if place is not None and minimum < place[0] <= target:
                found.add(place[0])
        proved = (each for each in sorted(found, reverse=True) if self.message(each) is not None)
        return max(minimum, self.segment_of(target), next(proved, minimum))

    def last(self) -> int | None:
        """The start of the last record with a unit; ``None`` without one."""
        places = (each.place(each.end - 1) for each in self.queues)
        found = sorted({place[0] for place in places if place is not None}, reverse=True)
        return next((each for each in found[:MANY] if self.message(each) is not None), None)

    def last_written(self) -> int | None:
        """The start of the last segment with any data; ``None`` without one."""
        folder = log_folder(self.store)
        for start in reversed(self.starts):
            with (folder / f"{start:0{SEGMENT_NAME_DIGITS}d}").open("rb") as file:
                if any(file.read(BLANK.size)):
                    return start
        return None


def log_folder(store: lakelog.Store) -> Path:
    """The folder of the log's segments."""
    return store.settings.core.commitlog(store.path)


def segment_starts(store: lakelog.Store) -> list[int]:
    """The start offsets of the existing segments."""
    folder = log_folder(store)
    names = os.listdir(folder) if folder.is_dir() else []
    digits = [each for each in names if len(each) == SEGMENT_NAME_DIGITS]
    return sorted(int(each) for each in digits if each.isascii() and each.isdigit())
