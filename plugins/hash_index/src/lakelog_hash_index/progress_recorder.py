"""Periodically records the progress of an index while records have no keys."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from lakelog.format.layout import OWN_DIR
from lakelog_hash_index.logpeek import LogPeek
from lakelog_hash_index.progress import (
    IndexProgress,
    read_progress,
    remove_progress,
    write_progress,
)

if TYPE_CHECKING:
    from lakelog.codec import RecordBatch
    from lakelog.interfaces import Context
    from lakelog_hash_index.appending import IndexAppender

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
