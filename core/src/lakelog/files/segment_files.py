"""Names, lengths and gaps in a directory of segments; pure functions over a listing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from lakelog.errors import BadSegment
from lakelog.format.layout import SEGMENT_NAME_DIGITS, is_segment_name

_PAGE_BYTES: Final = 4096


class SegmentFile(NamedTuple):
    """A segment file.

    :ivar start_offset: physical offset of its first byte, which is its name
    :ivar length: its length in bytes; below the segment size if it was truncated
    """

    path: Path
    start_offset: int
    length: int


def segment_files(directory: Path, listing: Iterable[tuple[str, int]]) -> list[SegmentFile]:
    """The segments among the files of ``directory``, in the order of the log."""
    return sorted(
        (
            SegmentFile(directory / name, int(name), length)
            for name, length in listing
            if is_segment_name(name)
        ),
        key=lambda segment: segment.start_offset,
    )


def bad_segments(
    directory: Path, listing: Sequence[tuple[str, int]], size_bytes: int
) -> list[BadSegment]:
    """The problems that make a recovery impossible.

    A wrong length is no problem if the names of other segments confirm ``size_bytes``.
    """
    segments = segment_files(directory, listing)
    found = [_not_a_segment(directory / name) for name, _ in listing if not is_segment_name(name)]
    found += [_misaligned(each, size_bytes) for each in segments if each.start_offset % size_bytes]
    pairs = pairwise(segments)
    found += [_gap(a, b) for a, b in pairs if b.start_offset != a.start_offset + size_bytes]
    if len(segments) == 1 and may_be_of_another_size(segments[0].length, size_bytes):
        found.append(_wrong_length(segments[0], size_bytes))
    return found


def may_be_of_another_size(length: int, size_bytes: int) -> bool:
    """Whether ``length`` is wrong, but a valid ``segment_size_bytes``."""
    return length != size_bytes and length > 0 and (length % _PAGE_BYTES == 0)


def _not_a_segment(path: Path) -> BadSegment:
    return BadSegment(
        "this is no segment; move it out of the directory",
        path=path,
        expected=f"a name of {SEGMENT_NAME_DIGITS} digits",
        found=path.name,
    )


def _wrong_length(segment: SegmentFile, size_bytes: int) -> BadSegment:
    return BadSegment(
        f"the segment is {segment.length} bytes long and should be {size_bytes} "
        "(segment_size_bytes); correct the setting, or open the store with mode='read' to read "
        "the whole records",
        path=segment.path,
        offset=segment.start_offset + min(segment.length, size_bytes),
        expected=size_bytes,
        found=segment.length,
    )


def _misaligned(segment: SegmentFile, size_bytes: int) -> BadSegment:
    return BadSegment(
        f"its name is not a multiple of segment_size_bytes, {size_bytes}",
        path=segment.path,
        offset=segment.start_offset,
        expected=f"a multiple of {size_bytes}",
        found=segment.start_offset,
    )


def _gap(before: SegmentFile, behind: SegmentFile) -> BadSegment:
    size = behind.start_offset - before.start_offset
    return BadSegment(
        f"segments are missing between {before.path.name} and this one; restore them, let "
        "'lakelog repair' replace them by blanks, or open the store with mode='read' to read the "
        "others",
        path=behind.path,
        offset=before.start_offset + before.length,
        expected=before.start_offset + before.length,
        found=before.start_offset + size,
    )
