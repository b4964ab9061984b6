"""All problems of a directory of segments, also those that a recovery mends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lakelog.errors import BadSegment
from lakelog.files.segment_files import (
    SegmentFile,
    bad_segments,
    may_be_of_another_size,
    segment_files,
)


def problems(
    directory: Path, listing: Sequence[tuple[str, int]], size_bytes: int
) -> list[BadSegment]:
    """All problems of a directory of segments of ``size_bytes``.

    RocketMQ refuses to load a store with any of them.
    """
    segments = segment_files(directory, listing)
    alone = len(segments) == 1
    return bad_segments(directory, listing, size_bytes) + [
        _wrong_length(each, size_bytes)
        for each in segments
        if each.length != size_bytes
        and not (alone and may_be_of_another_size(each.length, size_bytes))
    ]


def _wrong_length(segment: SegmentFile, size_bytes: int) -> BadSegment:
    """The problem of a segment whose length no other setting explains."""
    if segment.length < size_bytes:
        what = (
            f"the file is truncated: {segment.length} bytes are left of {size_bytes}; restore it "
            "from a backup, or let 'lakelog recover' keep its whole records and extend it with "
            "zeros"
        )
    else:
        what = (
            f"the file is too long: {segment.length} bytes instead of {size_bytes}; 'lakelog "
            "recover' cuts it, and keeps the surplus in lakelog/quarantine"
        )
    return BadSegment(
        what,
        path=segment.path,
        offset=segment.start_offset + min(segment.length, size_bytes),
        expected=size_bytes,
        found=segment.length,
    )
