"""How far the files of an index cover the log: gaps between them, and records without keys.

Files are contiguous unless one was lost: after an unclean stop RocketMQ deletes the file that was
being filled, and does not index all of its records again. Only a gap with keys matters.

Entries show the progress only where there are keys. ``lakelog/index-seen.json`` shows it behind
them; without this file, a log of records without keys would be read again at every open::

    {"version": 1, "end_offset": E, "last_offset": L, "record": {"offset": O, "size": S, "crc": C}}

All keys of records before ``E`` are in the files, which were synced before; the last record with
a key is at ``L`` (-1: none). The file is valid only if the log has the record that ends at ``E``,
with the same CRC-32 of its bytes, and the index an entry at or behind ``L``. So it is ignored after
the log was cut and continued, or after index files were lost.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import attrs

from lakelog.errors import StoreError
from lakelog.files.filesystem import FileSystem, read_file, write_file
from lakelog.files.identity import parsed
from lakelog.format import layout
from lakelog.format.checksum import Fingerprint
from lakelog.format.record_batch import RecordBatch
from lakelog.log.scan import scan
from lakelog.log.sources import FileSource, read_at
from lakelog_hash_index.indexfile import IndexFile
from lakelog_hash_index.keys import find_keys
from lakelog_hash_index.shape import PROGRESS_FILE

if TYPE_CHECKING:
    from lakelog.hooks import Context
    from lakelog_hash_index.filewriter import IndexAppender

EVERY_BYTES: Final = 64 << 20
AT_THE_END_BYTES: Final = 1 << 20
_VERSION: Final = 1
_log: Final = logging.getLogger(__name__)


def log_of(context: Context) -> FileSource:
    """The segments of a store, read without changing them."""
    core = context.core
    return FileSource(context.files, core.commitlog(context.path), core.segment_size_bytes)


def fingerprint(log: FileSource, offset: int, size: int) -> Fingerprint | None:
    """The fingerprint of a record; ``None`` if it cannot be read."""
    try:
        data = read_at(log, offset, size)
    except StoreError:
        return None
    return Fingerprint(offset, size, zlib.crc32(data)) if len(data) == size > 0 else None


def _log_has_keys(log: FileSource, start: int, end: int, *, behind_first: bool) -> bool:
    """Whether a record that starts in ``start`` (inclusive) to ``end`` (exclusive) has keys.

    Damage is skipped, as in dispatching.

    :param behind_first: whether to leave out the record at ``start``
    """
    runs = scan(log, start, end, verify=False)
    return any(
        isinstance(each, RecordBatch) and _has_keys(each, start + behind_first, end)
        for each in runs
    )


def _has_keys(batch: RecordBatch, first: int, end: int) -> bool:
    """Whether a record of ``batch`` that starts in ``first`` to ``end`` (exclusive) has keys."""
    offsets = batch.base_offset + batch.starts
    some = batch[slice(int(offsets.searchsorted(first)), int(offsets.searchsorted(end)))]
    return len(some) > 0 and len(find_keys(some)) > 0


class CoveredSpan(NamedTuple):
    """The first and the last offset with entries in one file."""

    first: int
    last: int


class CoverageGap(NamedTuple):
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
    return [span._replace(last=min(span.last, end)) for span in covered if span.first < end]


def gaps(covered: Sequence[CoveredSpan], log: FileSource, minimum: int) -> list[CoverageGap]:
    """The gaps between the files, or before the first, in which the log has keys."""
    found, at, behind_first = [], minimum, False
    for span in covered:
        if span.first > at and _log_has_keys(log, at, span.first, behind_first=behind_first):
            found.append(CoverageGap(at, span.first, at + behind_first))
        if span.last >= at:
            at, behind_first = span.last, True
    return found


@attrs.frozen
class IndexProgress:
    """The content of the file; see the module."""

    end_offset: int
    last_offset: int
    record: Fingerprint

    def holds(self, log: FileSource, last_offset: int, end: int) -> bool:
        """Whether it is valid for this log, which ends at ``end``, and for the present index.

        :param last_offset: the offset of the last record with entries, or -1
        """
        reaches = self.end_offset <= end and self.last_offset <= last_offset
        record = self.record
        return reaches and fingerprint(log, record.offset, record.size) == record


def read_progress(files: FileSystem, path: Path) -> IndexProgress | None:
    """The recorded progress of the store directory ``path``; ``None`` if missing or unreadable."""
    try:
        found = parsed(read_file(files, path / layout.OWN_DIR / PROGRESS_FILE) or b"")
        if found["version"] != _VERSION:
            return None
        end, last = int(found["end_offset"]), int(found["last_offset"])
        return IndexProgress(end, last, Fingerprint(**found["record"]))
    except (OSError, TypeError, KeyError, ValueError):
        return None


def valid_progress(context: Context, last_offset: int, end: int) -> IndexProgress | None:
    """The recorded progress, if it is valid for a log that ends at ``end``.

    :param last_offset: the offset of the last record with entries, or -1
    """
    progress = read_progress(context.files, context.path)
    valid = progress is not None and progress.holds(log_of(context), last_offset, end)
    return progress if valid else None


def write_progress(files: FileSystem, path: Path, progress: IndexProgress) -> None:
    """Replace the file durably; raises ``OSError``."""
    content = {"version": _VERSION, **attrs.asdict(progress)}
    write_file(files, path / layout.OWN_DIR / PROGRESS_FILE, json.dumps(content).encode() + b"\n")


class ProgressRecorder:
    """The recorded progress of one owner's index, and its next update."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._noted = 0
        self._failed = False
        self._last: tuple[int, int] | None = None

    def begin(self, progress: IndexProgress | None) -> None:
        """Start with valid progress, or remove an invalid record; raises ``OSError``."""
        self._noted = 0 if progress is None else progress.end_offset
        self._last = None
        files, folder = self._context.files, self._context.path / layout.OWN_DIR
        if progress is None and read_file(files, folder / PROGRESS_FILE) is not None:
            files.unlink(folder / PROGRESS_FILE)
            files.sync_dir(folder)

    def passed(self, batch: RecordBatch, appender: IndexAppender) -> None:
        """Note that the keys of ``batch`` are in the index; raises ``OSError``."""
        start, size, _ = batch.head(-1)
        self._last = (batch.base_offset + start, size)
        self._note_behind(appender, EVERY_BYTES)

    def cut(self, end_offset: int) -> None:
        """Note that the log was cut at ``end_offset``; raises ``OSError``."""
        self._last = None
        if self._noted > end_offset:
            self.begin(None)

    def end(self, appender: IndexAppender) -> None:
        """Record the final progress; raises ``OSError``."""
        self._note_behind(appender, AT_THE_END_BYTES)

    def _note_behind(self, appender: IndexAppender, least_bytes: int) -> None:
        """Record progress after ``least_bytes`` without keys; raises ``OSError`` of a failed sync.

        After a failed sync nothing is recorded any more: dirty pages may never reach the disk.
        """
        if self._last is None or self._failed:
            return
        offset, size = self._last
        if offset + size - max(appender.end_offset, self._noted) < least_bytes:
            return
        self._noted = offset + size  # even if it fails: no retry for each batch
        self._failed = True
        appender.flush()
        self._failed = False
        self._note(offset, size, appender.end_offset)

    def _note(self, offset: int, size: int, last_offset: int) -> None:
        """On a full disk nothing is recorded, and the next open reads more of the log."""
        files, path = self._context.files, self._context.path
        record = fingerprint(log_of(self._context), offset, size)
        if record is None:
            return
        try:
            files.make_dir(path / layout.OWN_DIR)
            write_progress(files, path, IndexProgress(offset + size, last_offset, record))
        except OSError as error:
            _log.warning("%s: the progress of the index cannot be recorded: %s", path, error)
