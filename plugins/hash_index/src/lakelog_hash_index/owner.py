"""The index of a store's owner: files grow as the log does."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lakelog.layout import ABORT_FILE, INDEX_DIR, OWN_DIR
from lakelog_hash_index.indexfile import IndexFile, index_files
from lakelog_hash_index.shape import Shape
from lakelog_hash_index.walk import Wanted, newest_first

if TYPE_CHECKING:
    from lakelog.codec import RecordBatch
    from lakelog.interfaces import Context
    from lakelog_hash_index.appending import IndexAppender

_log: Final = logging.getLogger(__name__)
_ENDLESS: Final = (1 << 63) - 1
QUARANTINE_DIR: Final = "quarantine"


class OwnerIndex:
    """A dispatcher and key index that writes RocketMQ's files.

    Whether the store was closed cleanly is looked up when this is made: later the owner's own
    ``abort`` stands there.
    """

    directories: Sequence[str] = (INDEX_DIR,)

    def __init__(self, shape: Shape, context: Context) -> None:
        self._shape = shape
        self._context = context
        self._unclean = (context.path / ABORT_FILE).exists()
        self._minimum = 0
        self._opened: IndexAppender | None = None

    @property
    def _appender(self) -> IndexAppender:
        """Opened at the first need."""
        if self._opened is None:
            self._opened = self._open(self._sound_files())
        return self._opened

    def _open(self, files: Sequence[IndexFile]) -> IndexAppender:
        from lakelog_hash_index.appending import IndexAppender
        from lakelog_hash_index.making import Maker
        from lakelog_hash_index.sealer import Sealer

        maker = Maker(self._context.files, self._directory, self._shape)
        maker.clear()
        return IndexAppender(maker, Sealer(self._context), files)

    @property
    def _directory(self) -> Path:
        return self._context.path / INDEX_DIR

    # --- what is there at open ---

    def resume(self, minimum: int, end: int) -> int:
        """Where the records must be dispatched again from: that of the last key comes again.

        After an unclean stop every file that the checkpoint does not vouch for is read and
        checked whole; one that is damaged, and those behind it, go to ``lakelog/quarantine/``,
        and are built again. Keys that are missing between files stay missing until a rebuild,
        and are warned of. Raises :class:`~lakelog.errors.CorruptIndex` for a file of a wrong
        length, which other settings may have made.
        """
        from lakelog_hash_index.coverage import gaps, spans
        from lakelog_hash_index.logpeek import LogPeek

        self._minimum = minimum
        appender = self._appender
        if appender.end_offset >= end:
            appender.truncate(end)
        elif self._unclean:
            appender.truncate_last()  # its keys may be there in part, or torn
        for gap in gaps(spans(appender.files), LogPeek.of(self._context), minimum):
            _log.warning(
                "%s: keys of messages between offsets %d and %d are missing, and are not found; "
                "run `lakelog rebuild --index`",
                self._directory,
                gap.start,
                gap.end,
            )
        return min(max(appender.resume_offset, minimum), end)

    def _sound_files(self) -> list[IndexFile]:
        """The files that can be gone on with."""
        from lakelog_hash_index.soundness import first_unsound

        files, wrong = index_files(self._context.files, self._directory, self._shape)
        for error in wrong:
            raise error
        vouched = self._context.checkpoint.read().index_timestamp_ms
        at = first_unsound(files, vouched, unclean=self._unclean)
        for file in reversed(files[at:]):
            self._quarantine(file)
        return files[:at]

    def _quarantine(self, file: IndexFile) -> None:
        folder = self._context.path / OWN_DIR / QUARANTINE_DIR
        self._context.files.make_dir(folder)
        self._context.files.rename(file.path, folder / file.path.name)
        self._context.files.sync_dir(folder)
        self._context.files.sync_dir(file.path.parent)
        _log.warning("%s is damaged; it was moved to %s, and is built again", file.path, folder)

    # --- Dispatcher ---

    def dispatch(self, batch: RecordBatch) -> None:
        """Append the keys of records that were not there; raises ``OSError`` on a full disk."""
        self._appender.append(batch)

    def truncate(self, end_offset: int) -> None:
        """Undo entries; files that are left without any are deleted."""
        self._appender.truncate(end_offset)

    def flush(self) -> None:
        """Sync the file that is being filled, and wait for those that are full."""
        if self._opened is not None:
            self._opened.flush()

    def close(self) -> None:
        """Flush, then close the file."""
        if self._opened is not None:
            self._opened.close()

    # --- KeyIndex ---

    def offsets(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Where records may stand that have ``key``, the newest first, each once.

        Store times are kept in whole seconds: records up to 999 ms outside of the window may be
        among them, none inside of it is lost. Raises :class:`~lakelog.errors.CorruptIndex` at
        the end, if a file is damaged.
        """
        from lakelog_hash_index.javahash import hash_key

        wanted = Wanted(hash_key(topic, key), begin_ms, end_ms)
        files = reversed(self._appender.files)
        return newest_first(files, (), wanted, range(self._minimum, _ENDLESS))

    # --- keeping house ---

    def deletable(self, minimum: int) -> list[Path]:
        """Files that only know of records before ``minimum``, the oldest first; never the last."""
        found = []
        for file in self._appender.files[:-1]:
            if file.header().end_offset >= minimum:
                break
            found.append(file.path)
        return found
