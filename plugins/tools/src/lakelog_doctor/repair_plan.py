"""The steps of a repair, planned before anything is changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import attrs

from lakelog.errors import BadSegment
from lakelog.files.segment_files import SegmentFile, segment_files
from lakelog.format.layout import is_segment_name
from lakelog.log.store_directory import StoreDirectory
from lakelog.recovery.filler import Filling, Step, fillings_of
from lakelog.recovery.report import RecoveryReport
from lakelog_doctor.repair_scan import LogScan


@attrs.frozen
class Stray:
    """A file among the segments that is not a segment: it is moved to quarantine."""

    path: Path
    length: int

    def step(self) -> Step:
        """The step that moves it."""
        return Step(self.path, 0, "move it to quarantine", "it is no segment")


@attrs.frozen
class MissingRange:
    """A segment missing between others: it is replaced by one blank record."""

    path: Path
    start_offset: int
    size_bytes: int

    def step(self) -> Step:
        """The step that creates it."""
        return Step(
            self.path,
            self.start_offset,
            f"make the segment, with one blank record of {self.size_bytes} bytes",
            "it is missing",
        )


@attrs.frozen
class RepairPlan:
    """All steps of a repair.

    :ivar recovery: the report of the recovery that runs first; ``None`` if it is not known until
        strays and missing segments are mended
    """

    strays: tuple[Stray, ...]
    missing: tuple[MissingRange, ...]
    recovery: RecoveryReport | None
    fillings: tuple[Filling, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps in order, without those of the recovery."""
        strays = [each.step() for each in self.strays]
        missing = [each.step() for each in self.missing]
        return (*strays, *missing, *(each.step() for each in self.fillings))

    @property
    def possible(self) -> tuple[Filling, ...]:
        """The gaps that can be filled."""
        return tuple(each for each in self.fillings if each.is_possible)


def check_sizes(segments: Sequence[SegmentFile], size_bytes: int) -> None:
    """Refuse a wrong setting of the segment size: nearly every file would seem to be wrong.

    Raises :class:`~lakelog.errors.BadSegment`.
    """
    odd = [each for each in segments if each.length != size_bytes or each.start_offset % size_bytes]
    if len(odd) > 1 and 2 * len(odd) > len(segments):
        raise BadSegment(
            f"{len(odd)} of {len(segments)} segments do not have the length or place that "
            f"segment_size_bytes = {size_bytes} requires; check this setting. Nothing was changed",
            path=odd[0].path,
            offset=odd[0].start_offset,
            expected=size_bytes,
            found=odd[0].length,
        )


def find_strays(directory: StoreDirectory, size_bytes: int) -> Iterator[Stray]:
    """Yield files whose name or length no segment can have."""
    for name, length in directory.files.list(directory.commitlog):
        if not is_segment_name(name) or int(name) % size_bytes:
            yield Stray(directory.commitlog / name, length)


def find_missing(directory: StoreDirectory, size_bytes: int) -> Iterator[MissingRange]:
    """Yield segments missing between others; a loss at either end only shortens the log."""
    starts = [each.start_offset for each in _segments(directory, size_bytes)]
    for before, behind in pairwise(starts):
        for start in range(before + size_bytes, behind, size_bytes):
            yield MissingRange(directory.segment(start), start, size_bytes)


def _segments(directory: StoreDirectory, size_bytes: int) -> list[SegmentFile]:
    found = segment_files(directory.commitlog, directory.files.list(directory.commitlog))
    return [each for each in found if not each.start_offset % size_bytes]


def find_fillings(
    directory: StoreDirectory, scanned: LogScan, size_bytes: int, missing: Sequence[MissingRange]
) -> Iterator[Filling]:
    """Yield the filling of each gap that is not a missing segment."""
    absent = {each.start_offset for each in missing}
    for gap in scanned.gaps:
        for filling in fillings_of(directory, gap, size_bytes):
            if filling.start_offset not in absent:
                yield filling
