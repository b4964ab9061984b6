"""``lakelog/index-seen.json``: the progress of the index through records without keys.

Entries show the progress only where there are keys; without this file, a log of records without
keys would be read again at every open::

    {"version": 1, "end_offset": E, "last_offset": L, "record": {"offset": O, "size": S, "crc": C}}

All keys of records before ``E`` are in the files, which were synced before; the last record with
a key is at ``L`` (-1: none). The file is valid only if the log has the record that ends at ``E``,
with the same CRC-32 of its bytes, and the index an entry at or behind ``L``. So it is ignored after
the log was cut and continued, or after index files were lost.

Periodically records the progress of an index while records have no keys.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from lakelog.files.filesystem import FileSystem, read_file, write_file
from lakelog.files.identity import parsed
from lakelog.format.checksum import Fingerprint
from lakelog.format.layout import OWN_DIR
from lakelog_hash_index.logpeek import LogPeek

if TYPE_CHECKING:
    from lakelog.format.record_batch import RecordBatch
    from lakelog.hooks import Context
    from lakelog_hash_index.appending import IndexAppender
    from lakelog_hash_index.logpeek import LogPeek

PROGRESS_FILE: Final = "index-seen.json"
_VERSION: Final = 1


@attrs.frozen
class IndexProgress:
    """The content of the file; see the module."""

    end_offset: int
    last_offset: int
    record: Fingerprint

    def holds(self, log: LogPeek, last_offset: int, end: int) -> bool:
        """Whether it is valid for this log, which ends at ``end``, and for the present index.

        :param last_offset: the offset of the last record with entries, or -1
        """
        return self.end_offset <= end and self.last_offset <= last_offset and log.has(self.record)


def read_progress(files: FileSystem, path: Path) -> IndexProgress | None:
    """The recorded progress of the store directory ``path``; ``None`` if missing or unreadable."""
    try:
        found = parsed(read_file(files, path / OWN_DIR / PROGRESS_FILE) or b"")
        if found["version"] != _VERSION:
            return None
        end, last = int(found["end_offset"]), int(found["last_offset"])
        return IndexProgress(end, last, Fingerprint(**found["record"]))
    except (OSError, TypeError, KeyError, ValueError):
        return None


def write_progress(files: FileSystem, path: Path, progress: IndexProgress) -> None:
    """Replace the file durably; raises ``OSError``."""
    content = {"version": _VERSION, **attrs.asdict(progress)}
    write_file(files, path / OWN_DIR / PROGRESS_FILE, json.dumps(content).encode() + b"\n")


def remove_progress(files: FileSystem, path: Path) -> None:
    """Remove the file durably; raises ``OSError``."""
    if read_file(files, path / OWN_DIR / PROGRESS_FILE) is not None:
        files.unlink(path / OWN_DIR / PROGRESS_FILE)
        files.sync_dir(path / OWN_DIR)


_log: Final = logging.getLogger(__name__)
EVERY_BYTES: Final = 64 << 20
AT_THE_END_BYTES: Final = 1 << 20


class ProgressRecorder:
    """The recorded progress of one owner's index, and its next update."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._noted = 0
        self._failed = False
        self._last: tuple[int, int] | None = None

    def valid(self, last_offset: int, end: int) -> IndexProgress | None:
        """The recorded progress, if it is valid for a log that ends at ``end``."""
        progress = read_progress(self._context.files, self._context.path)
        if progress is None or not progress.holds(LogPeek.of(self._context), last_offset, end):
            return None
        return progress

    def begin(self, progress: IndexProgress | None) -> None:
        """Start with valid progress, or remove an invalid record; raises ``OSError``."""
        self._noted = 0 if progress is None else progress.end_offset
        self._last = None
        if progress is None:
            remove_progress(self._context.files, self._context.path)

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
        record = LogPeek.of(self._context).fingerprint(offset, size)
        if record is None:
            return
        try:
            files.make_dir(path / OWN_DIR)
            write_progress(files, path, IndexProgress(offset + size, last_offset, record))
        except OSError as error:
            _log.warning("%s: the progress of the index cannot be recorded: %s", path, error)
