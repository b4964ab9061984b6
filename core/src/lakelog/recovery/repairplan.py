"""What a repair is going to do, step by step, so that it can be told before anything is changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import attrs

from lakelog.errors import BadSegment
from lakelog.files.segment_files import SegmentFile, segment_files
from lakelog.format.layout import BLANK_MIN_BYTES, is_segment_name
from lakelog.log.store_directory import StoreDirectory
from lakelog.recovery.filler import LogGap, fits, least_filler_bytes
from lakelog.recovery.repairscan import LogLook, by_segment
from lakelog.recovery.report import RecoveryReport


@attrs.frozen
class Step:
    """One thing that a repair does, or cannot do.

    :ivar path: the file; :ivar offset: where in the log, in bytes
    :ivar what: what is done; :ivar why: what is wrong
    :ivar is_possible: whether it can be mended
    """

    path: Path
    offset: int
    what: str
    why: str
    is_possible: bool = True

    def __str__(self) -> str:
        """For a terminal."""
        return f"{self.path}: offset {self.offset}: {self.what}: {self.why}"


@attrs.frozen
class Stray:
    """A file among the segments that is none: it goes to quarantine."""

    path: Path
    length: int

    def step(self) -> Step:
        """In words."""
        return Step(self.path, 0, "move it to quarantine", "it is no segment")


@attrs.frozen
class MissingRange:
    """A segment that is missing between others: a blank record takes its place."""

    path: Path
    start_offset: int
    size_bytes: int

    def step(self) -> Step:
        """In words."""
        return Step(
            self.path,
            self.start_offset,
            f"make the segment, with one blank record of {self.size_bytes} bytes",
            "it is missing",
        )


@attrs.frozen
class Filling:
    """A gap of one segment, and what takes its place.

    :ivar path: the segment file; :ivar start_offset: where it starts
    :ivar to_the_end: whether the gap reaches the segment's end, so that a blank record can fill it
    """

    path: Path
    start_offset: int
    gap: LogGap
    to_the_end: bool

    @property
    def is_possible(self) -> bool:
        """Whether anything is as short as the gap."""
        return self.gap.size_bytes >= BLANK_MIN_BYTES if self.to_the_end else fits(self.gap)

    def step(self) -> Step:
        """In words."""
        size, least = self.gap.size_bytes, BLANK_MIN_BYTES
        made = "a blank record" if self.to_the_end else "records that say so"
        what = f"keep {size} bytes in quarantine, and put {made} in their place"
        if not self.is_possible:
            if not self.to_the_end:
                least = least_filler_bytes(sealed=self.gap.sealed)
            what = f"nothing: no record is as short as {size} bytes; the shortest takes {least}"
        return Step(self.path, self.gap.offset, what, self.gap.reason, self.is_possible)


@attrs.frozen
class RepairPlan:
    """Everything that is to be done.

    :ivar recovery: what a recovery does before; ``None`` where it cannot be told before strays
        and missing segments are mended
    """

    strays: tuple[Stray, ...]
    missing: tuple[MissingRange, ...]
    recovery: RecoveryReport | None
    fillings: tuple[Filling, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        """In their order, without what a recovery does by itself."""
        strays = [each.step() for each in self.strays]
        missing = [each.step() for each in self.missing]
        return (*strays, *missing, *(each.step() for each in self.fillings))

    @property
    def possible(self) -> tuple[Filling, ...]:
        """The gaps that can be filled."""
        return tuple(each for each in self.fillings if each.is_possible)


def check_sizes(segments: Sequence[SegmentFile], size_bytes: int) -> None:
    """Refuse to act on a wrong setting: then nearly every file would look wrong.

    Raises :class:`~lakelog.errors.BadSegment`.
    """
    odd = [each for each in segments if each.length != size_bytes or each.start_offset % size_bytes]
    if len(odd) > 1 and 2 * len(odd) > len(segments):
        raise BadSegment(
            f"{len(odd)} of {len(segments)} segments have another length, or place, than "
            f"segment_size_bytes, {size_bytes}; is that setting right? Nothing was changed",
            path=odd[0].path,
            offset=odd[0].start_offset,
            expected=size_bytes,
            found=odd[0].length,
        )


def find_strays(directory: StoreDirectory, size_bytes: int) -> Iterator[Stray]:
    """Files whose names are none of a segment's, or which no segment can have."""
    for name, length in directory.files.list(directory.commitlog):
        if not is_segment_name(name) or int(name) % size_bytes:
            yield Stray(directory.commitlog / name, length)


def find_missing(directory: StoreDirectory, size_bytes: int) -> Iterator[MissingRange]:
    """Segments between others; a log that lost its first or last ones only begins or ends there."""
    starts = [each.start_offset for each in _segments(directory, size_bytes)]
    for before, behind in pairwise(starts):
        for start in range(before + size_bytes, behind, size_bytes):
            yield MissingRange(directory.segment(start), start, size_bytes)


def _segments(directory: StoreDirectory, size_bytes: int) -> list[SegmentFile]:
    found = segment_files(directory.commitlog, directory.files.list(directory.commitlog))
    return [each for each in found if not each.start_offset % size_bytes]


def find_fillings(
    directory: StoreDirectory, look: LogLook, size_bytes: int, missing: Sequence[MissingRange]
) -> Iterator[Filling]:
    """What takes the place of each gap that is not a missing segment."""
    absent = {each.start_offset for each in missing}
    for gap in look.gaps:
        for filling in fillings_of(directory, gap, size_bytes):
            if filling.start_offset not in absent:
                yield filling


def fillings_of(directory: StoreDirectory, gap: LogGap, size_bytes: int) -> Iterator[Filling]:
    """What takes the place of a gap, segment by segment."""
    for part in by_segment(gap, size_bytes):
        start = part.offset - part.offset % size_bytes
        ends = part.end_offset == start + size_bytes
        yield Filling(directory.segment(start), start, part, ends)
