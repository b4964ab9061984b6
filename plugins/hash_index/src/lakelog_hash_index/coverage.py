"""The parts of the log that index files cover, and gaps with keys between them.

Files are contiguous unless one was lost: after an unclean stop RocketMQ deletes the file that was
being filled, and does not index all of its records again.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from lakelog_hash_index.indexfile import IndexFile
from lakelog_hash_index.logpeek import LogPeek


@attrs.frozen
class CoveredSpan:
    """The first and the last offset with entries in one file."""

    first: int
    last: int


@attrs.frozen
class CoverageGap:
    """Records from ``start`` and before ``end`` whose keys may be in no file.

    :ivar kept_until: entries of records before this offset can be kept
    """

    start: int
    end: int
    kept_until: int


def spans(files: Sequence[IndexFile]) -> list[CoveredSpan]:
    """The span of each file with entries and a plausible header, in order."""
    return [
        CoveredSpan(header.begin_offset, header.end_offset)
        for file, header in ((file, file.settled_header()) for file in files)
        if not header.is_empty and not any(header.problems(file.shape))
    ]


def clipped(covered: Sequence[CoveredSpan], end: int) -> list[CoveredSpan]:
    """The spans cut off at ``end``."""
    return [attrs.evolve(span, last=min(span.last, end)) for span in covered if span.first < end]


def gaps(covered: Sequence[CoveredSpan], log: LogPeek, minimum: int) -> list[CoverageGap]:
    """The gaps between the files, or before the first, in which the log has keys."""
    found, at, behind_first = [], minimum, False
    for span in covered:
        if span.first > at and log.has_keys(at, span.first, behind_first=behind_first):
            found.append(CoverageGap(at, span.first, at + behind_first))
        if span.last >= at:
            at, behind_first = span.last, True
    return found
