"""Segment files of a wrong length, and their correction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from lakelog.files.segment_files import SegmentFile


@attrs.frozen
class Length:
    """A file of ``found`` bytes in place of ``expected``."""

    path: Path
    start_offset: int
    found: int
    expected: int

    def __str__(self) -> str:
        """A description of the correction."""
        done = "extended by zeros" if self.found < self.expected else "cut"
        return f"{self.path}: {self.found} bytes long, {done} to {self.expected}"


def wrong_lengths(segments: Sequence[SegmentFile], size_bytes: int) -> Iterator[Length]:
    """Yield the files that do not have the length of a segment."""
    for each in segments:
        if each.length != size_bytes:
            yield Length(each.path, each.start_offset, each.length, size_bytes)
