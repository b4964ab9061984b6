"""Checks whether the log has records with keys between two offsets.

The parts of the log that index files cover, and gaps with keys between them.

Files are contiguous unless one was lost: after an unclean stop RocketMQ deletes the file that was
being filled, and does not index all of its records again.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from lakelog.errors import StoreError
from lakelog.files.filesystem import FileSystem, read_range
from lakelog.format.checksum import Fingerprint
from lakelog.format.layout import (
    AT_MAGIC,
    BLANK,
    BLANK_MIN_BYTES,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    segment_name,
)
from lakelog_hash_index.indexfile import IndexFile

if TYPE_CHECKING:
    from lakelog.format.record_batch import RecordBatch
    from lakelog.hooks import Context

_FIRST_WINDOW_BYTES: Final = 64 << 10
_MOST_BYTES: Final = 4 << 20
_MAGICS: Final = re.compile(
    b"|".join(re.escape(magic.to_bytes(4, "big")) for magic in (MAGIC_V1, MAGIC_V2))
)


@attrs.frozen
class LogPeek:
    """Reads segments without changing them."""

    files: FileSystem
    directory: Path
    segment_bytes: int

    @classmethod
    def of(cls, context: Context) -> LogPeek:
        """The log of a store."""
        directory = context.core.commitlog(context.path)
        return cls(context.files, directory, context.core.segment_size_bytes)

    def has_keys(self, start: int, end: int, *, behind_first: bool) -> bool:
        """Whether a record that starts in ``start`` (inclusive) to ``end`` (exclusive) has keys.

        Damage is skipped, as in dispatching.

        :param behind_first: whether to leave out the record at ``start``
        """
        return any(
            _has_keys(batch, start + behind_first, end) for batch in self._batches(start, end)
        )

    def has(self, record: Fingerprint) -> bool:
        """Whether the log has this record at its offset."""
        return self.fingerprint(record.offset, record.size) == record

    def fingerprint(self, offset: int, size: int) -> Fingerprint | None:
        """The fingerprint of a record; ``None`` if it cannot be read."""
        if not 0 < size <= self.segment_bytes - offset % self.segment_bytes:
            return None
        try:
            data = self._data(offset, size)
        except StoreError:
            return None
        if data is None or len(data) < size:
            return None
        return Fingerprint(offset, size, zlib.crc32(data))

    def _batches(self, at: int, end: int) -> Iterator[RecordBatch]:
        window = _FIRST_WINDOW_BYTES
        while at < end:
            batch, behind = self._read(at, window)
            if behind > at:
                if batch is not None:
                    yield batch
                at = behind
                window = min(window * 4, _MOST_BYTES)
            elif window >= self.segment_bytes:
                at = self._behind_damage(at)
            else:
                window *= 4

    def _read(self, at: int, window: int) -> tuple[RecordBatch | None, int]:
        """Records from ``at`` on, and their end; ``at`` itself if none can be read."""
        from lakelog.format.record_batch import decode_run

        start = at - at % self.segment_bytes
        data = self._data(at, min(window, start + self.segment_bytes - at))
        if data is None:
            return None, start + self.segment_bytes
        batch = decode_run(data, at, verify=False)
        rest = start + self.segment_bytes - batch.end_offset
        left = data[batch.end_offset - at :]
        if len(left) >= BLANK_MIN_BYTES and BLANK.unpack_from(left) == (rest, MAGIC_BLANK):
            return batch, start + self.segment_bytes
        return batch, batch.end_offset

    def _behind_damage(self, at: int) -> int:
        """The offset of the next whole record of the segment, or of the next segment."""
        from lakelog.format.record_batch import decode_run

        end = at - at % self.segment_bytes + self.segment_bytes
        data = self._data(at, end - at)
        content = bytes(data or b"")
        for found in re.finditer(_MAGICS, content):
            place = found.start() - AT_MAGIC
            if place > 0 and len(decode_run(memoryview(content)[place:], at + place)):
                return at + place
        return end

    def _data(self, offset: int, length: int) -> memoryview | None:
        """Bytes of a segment; ``None`` if it does not exist."""
        position = offset % self.segment_bytes
        path = self.directory / segment_name(offset - position)
        data = read_range(self.files, path, position, length)
        return None if data is None else memoryview(data)


def _has_keys(batch: RecordBatch, first: int, end: int) -> bool:
    from lakelog_hash_index.keys import find_keys

    offsets = batch.base_offset + batch.starts
    some = batch[slice(int(offsets.searchsorted(first)), int(offsets.searchsorted(end)))]
    return len(some) > 0 and len(find_keys(some)) > 0


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
