"""Finds bytes that belong to no log: behind its end, and behind the end of a segment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from lakelog.files.filesystem import File, FileSystem
from lakelog.files.segment_files import SegmentFile

_WINDOW_BYTES: Final = 4 << 20
BEHIND: Final = "behind the end of the log"
SURPLUS: Final = "behind the end of its segment"


@attrs.frozen
class Tail:
    """Bytes to move to quarantine.

    :ivar path: the segment file; :ivar position: where they begin in it
    :ivar length: up to the last non-zero byte
    :ivar log_offset: where they begin in the log
    :ivar reason: why they are not part of it
    """

    path: Path
    position: int
    length: int
    log_offset: int
    reason: str

    @property
    def end_offset(self) -> int:
        """Offset behind the last byte."""
        return self.log_offset + self.length


def tails(
    files: FileSystem,
    segments: Sequence[SegmentFile],
    size_bytes: int,
    end_offset: int,
    refused: Sequence[int],
    zeros: Mapping[int, int],
) -> Iterator[Tail]:
    """Yield the tails, in log order.

    :param refused: offsets of whole records that do not belong to the log
    :param zeros: by segment start, the offset from which on it is known to be zero
    """
    for each in segments:
        begin = max(end_offset - each.start_offset, 0)
        known = zeros.get(each.start_offset, each.start_offset + size_bytes) - each.start_offset
        stop = min(each.length, size_bytes, known)
        if begin < stop:
            unproven = sum(begin <= at - each.start_offset < stop for at in refused)
            reason = f"{BEHIND}; {unproven} whole records in it are not proved" * bool(unproven)
            yield from _tail(files, each, begin, stop, reason or BEHIND)
        if each.length > size_bytes:
            yield from _tail(files, each, size_bytes, each.length, SURPLUS)


def _tail(
    files: FileSystem, segment: SegmentFile, begin: int, stop: int, reason: str
) -> Iterator[Tail]:
    file = files.open(segment.path)
    try:
        last = last_nonzero(file, begin, stop)
    finally:
        file.close()
    if last is not None:
        yield Tail(segment.path, begin, last + 1 - begin, segment.start_offset + begin, reason)


def last_nonzero(file: File, begin: int, stop: int) -> int | None:
    """The last non-zero byte between two positions of a file."""
    last = None
    for position, data in chunks(file, begin, stop):
        if data != bytes(len(data)):  # faster than to strip, and nearly all bytes are zero
            last = position + len(data.rstrip(b"\x00")) - 1
    return last


def chunks(file: File, begin: int, stop: int) -> Iterator[tuple[int, bytes]]:
    """Yield the possibly non-zero bytes between two positions, in chunks of some MiB."""
    at = file.next_data(begin) if begin < stop else None
    while at is not None and at < stop:
        data = file.read_at(at, min(_WINDOW_BYTES, stop - at))
        if not data:
            return
        yield at, data
        at = file.next_data(at + len(data))
