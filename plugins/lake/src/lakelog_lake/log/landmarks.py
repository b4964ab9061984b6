"""Places of a log where a record is known to start, found without reading what is between them.

A segment starts with a record. Inside of segments, queues say where records start, and the record
itself is read to prove it: one record per place.
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
"""So many queues, the longest ones, are asked where to cut: few for thousands of cuts."""


@attrs.define(eq=False)
class Landmarks:
    """What is known of one log.

    :ivar queues: all queues with units
    :ivar starts: where each segment starts
    """

    store: lakelog.Store
    queues: Sequence[QueueFiles]
    starts: Sequence[int]

    @classmethod
    @contextmanager
    def of(cls, store: lakelog.Store, files: FileSystem | None = None) -> Iterator[Landmarks]:
        """Look at the directory of a store."""
        with queue_files(store.path, files) as queues:
            yield cls(store, queues, segment_starts(store))

    @cached_property
    def longest(self) -> list[QueueFiles]:
        """The queues, those with most units first."""
        return sorted(self.queues, key=lambda each: each.first - each.end)

    def segment_of(self, offset: int) -> int:
        """Where the segment starts that holds ``offset``, or the one before it."""
        at = bisect_right(self.starts, offset)
        return self.starts[at - 1] if at else (self.starts[0] if self.starts else 0)

    def message(self, offset: int) -> lakelog.StoredMessage | None:
        """The record at ``offset``, if a whole one stands there."""
        try:
            return self.store.look_up(offset)
        except (CorruptRecord, OffsetOutOfRange):
            return None

    def behind(self, target: int, limit: int, asked: int = FEW) -> int | None:
        """The first known start of a record at or behind ``target`` and before ``limit``."""
        found = set()
        for queue in self.longest[:asked]:
            place = queue.place(queue.first_from(target))
            if place is not None and target <= place[0] < limit:
                found.add(place[0])
        return next((each for each in sorted(found) if self.message(each) is not None), None)

    def before(self, target: int, minimum: int) -> int:
        """The last known start of a record at or before ``target``; ``minimum`` at least."""
        found = set()
        for queue in self.longest[:MANY]:
            place = queue.place(queue.first_from(target + 1) - 1)
            if place is not None and minimum < place[0] <= target:
                found.add(place[0])
        proved = (each for each in sorted(found, reverse=True) if self.message(each) is not None)
        return max(minimum, self.segment_of(target), next(proved, minimum))

    def last(self) -> int | None:
        """The start of the last record that a queue leads to."""
        places = (each.place(each.end - 1) for each in self.queues)
        found = sorted({place[0] for place in places if place is not None}, reverse=True)
        return next((each for each in found[:MANY] if self.message(each) is not None), None)

    def last_written(self) -> int | None:
        """Where the last segment starts in which anything stands."""
        folder = log_folder(self.store)
        for start in reversed(self.starts):
            with (folder / f"{start:0{SEGMENT_NAME_DIGITS}d}").open("rb") as file:
                if any(file.read(BLANK.size)):
                    return start
        return None


def log_folder(store: lakelog.Store) -> Path:
    """Where the segments stand."""
    return store.settings.core.commitlog(store.path)


def segment_starts(store: lakelog.Store) -> list[int]:
    """Where the segments that are there start."""
    folder = log_folder(store)
    names = os.listdir(folder) if folder.is_dir() else []
    digits = [each for each in names if len(each) == SEGMENT_NAME_DIGITS]
    return sorted(int(each) for each in digits if each.isascii() and each.isdigit())
