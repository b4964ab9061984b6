"""Which part of the log the files of an index cover, and where keys are missing between them.

Files follow one another without a gap, but for those that were lost: an unclean restart of
RocketMQ deletes the file that was being filled, and does not index all of its records again.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from lakelog_hash_index.indexfile import IndexFile
from lakelog_hash_index.logpeek import LogPeek


@attrs.frozen
class CoveredSpan:
    """What one file covers: the first and the last offset that it has entries of."""

    first: int
    last: int


@attrs.frozen
class CoverageGap:
    """Records from ``start`` on, and before ``end``, whose keys may be in no file.

    :ivar kept_until: entries of records before this one can be gone on with
    """

    start: int
    end: int
    kept_until: int


def spans(files: Sequence[IndexFile]) -> list[CoveredSpan]:
    """What each file that has entries, and a header that can be right, covers, in order."""
    return [
        CoveredSpan(header.begin_offset, header.end_offset)
        for file, header in ((file, file.settled_header()) for file in files)
        if not header.is_empty and not any(header.problems(file.shape))
    ]


def clipped(covered: Sequence[CoveredSpan], end: int) -> list[CoveredSpan]:
    """What is covered before ``end``."""
    return [attrs.evolve(span, last=min(span.last, end)) for span in covered if span.first < end]


def gaps(covered: Sequence[CoveredSpan], log: LogPeek, minimum: int) -> list[CoverageGap]:
    """Where the log has keys that lie between the files, or before the first."""
    found, at, behind_first = [], minimum, False
    for span in covered:
        if span.first > at and log.has_keys(at, span.first, behind_first=behind_first):
            found.append(CoverageGap(at, span.first, at + behind_first))
        if span.last >= at:
            at, behind_first = span.last, True
    return found
