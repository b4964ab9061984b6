"""The index of a store's owner, which writes files as the log grows."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lakelog.files.filesystem import free_name
from lakelog.format.layout import ABORT_FILE, INDEX_DIR, OWN_DIR, QUARANTINE_DIR
from lakelog.lazy import cached_property
from lakelog_hash_index.shape import PROGRESS_FILE, IndexShape

if TYPE_CHECKING:
    from lakelog.format.record_batch import RecordBatch
    from lakelog.hooks import Context, HashChains
    from lakelog_hash_index.coverage import ProgressRecorder
    from lakelog_hash_index.filewriter import IndexAppender
    from lakelog_hash_index.indexfile import IndexFile

_log: Final = logging.getLogger(__name__)
_ENDLESS: Final = (1 << 63) - 1


class OwnerIndex:
    """A dispatcher and key index that writes RocketMQ's files.

    A clean stop is detected in the constructor, because later the owner's own ``abort`` exists. The
    context may also state that the files were closed properly.
    """

    directories: Sequence[str] = (INDEX_DIR,)

    def __init__(self, shape: IndexShape, context: Context) -> None:
        self._shape = shape
        self._context = context
        self._unclean = (context.path / ABORT_FILE).exists()
        self._minimum = 0
        self._opened: IndexAppender | None = None

    @property
    def _appender(self) -> IndexAppender:
        """Opened on first use, so that the open of a store without messages imports less.

        Only calls of the dispatching thread open it: two threads would each open one, and the
        other's entries would never be found.
        """
        if self._opened is None:
            from lakelog_hash_index.filewriter import IndexAppender, Maker, Sealer

            files = self._sound_files()
            maker = Maker(self._context.files, self._directory, self._shape)
            maker.clear()
            self._opened = IndexAppender(maker, Sealer(self._context), files)
        return self._opened

    @property
    def _files(self) -> Sequence[IndexFile]:
        """The files that were opened; without any, there is no entry yet."""
        return () if self._opened is None else self._opened.files

    @cached_property
    def _progress_recorder(self) -> ProgressRecorder:
        from lakelog_hash_index.coverage import ProgressRecorder

        return ProgressRecorder(self._context)

    @property
    def _directory(self) -> Path:
        return self._context.path / INDEX_DIR

    # --- existing files at open ---

    def resume(self, minimum: int, end: int) -> int:
        """The offset from which records must be dispatched again.

        It is that of the last record with entries, or the recorded progress behind it.

        The first bad file and all later ones are moved to ``lakelog/quarantine/``. A file is bad
        if it has a wrong length or an implausible header. After an unclean stop, so is a damaged
        file that the checkpoint does not cover. If keys are missing between files, all entries
        from the first gap on are built again. Raises :class:`~lakelog.errors.CorruptIndex` if all
        files have the same wrong length, which other settings may have caused.
        """
        self._minimum = minimum
        if self._is_new():
            self._context.checkpoint.lower_index(0)
            return minimum
        from lakelog_hash_index.coverage import valid_progress

        appender = self._appender
        progress = valid_progress(self._context, appender.end_offset, end)
        if appender.end_offset >= end:
            appender.truncate(end)
        elif self._unclean and appender.end_offset > (progress.last_offset if progress else -1):
            appender.truncate_last()  # its keys may be incomplete
        self._cut_at_gap(appender, minimum)
        self._vouch_no_more(appender)
        if progress is not None and appender.end_offset < progress.last_offset:
            progress = None
        self._progress_recorder.begin(progress)
        known = 0 if progress is None else progress.end_offset
        return min(max(appender.end_offset, known, minimum), end)

    def _is_new(self) -> bool:
        """Whether there is no trace of an index, not even of records without keys."""
        files, path = self._context.files, self._context.path
        return not files.list(self._directory) and not (path / OWN_DIR / PROGRESS_FILE).exists()

    def _cut_at_gap(self, appender: IndexAppender, minimum: int) -> None:
        """Keep entries before the first gap, as files are ordered."""
        from lakelog_hash_index.coverage import gaps, log_of, spans

        for gap in gaps(spans(appender.files), log_of(self._context), minimum)[:1]:
            _log.warning(
                "%s: keys of messages between offsets %d and %d are missing; the index is built "
                "again from there",
                self._directory,
                gap.start,
                gap.end,
            )
            appender.truncate(gap.kept_until)

    def _vouch_no_more(self, appender: IndexAppender) -> None:
        """Lower the checkpoint, as files that are created again are not durable yet.

        Nor is a file that was cut: the checkpoint may have its former, later end.
        """
        headers = (each.header() for each in reversed(appender.files))
        full = (each for each in headers if each.count >= self._shape.entries)
        last_ms = next((each.end_timestamp_ms for each in full), 0)
        self._context.checkpoint.lower_index(last_ms)

    def _sound_files(self) -> list[IndexFile]:
        """The files that can be kept."""
        from lakelog_hash_index.indexfile import first_unsound, first_wrong, index_files

        seam = self._context.files
        files, wrong = index_files(seam, self._directory, self._shape)
        lost = first_wrong(seam, wrong, alone=not files)
        before = [file for file in files if lost is None or file.path < lost]
        vouched = self._context.checkpoint.read().index_timestamp_ms
        at = first_unsound(before, vouched, unclean=self._unclean)
        unfit = {file.path for file in files[at:]} | {Path(str(error.path)) for error in wrong}
        for path in sorted(unfit, reverse=True):
            self._quarantine(path)
        return files[:at]

    def _quarantine(self, path: Path) -> None:
        folder = self._context.path / OWN_DIR / QUARANTINE_DIR
        self._context.files.make_dir(folder)
        self._context.files.rename(path, free_name(folder / path.name))
        self._context.files.sync_dir(folder)
        self._context.files.sync_dir(path.parent)
        _log.warning("%s is damaged; it was moved to %s and is built again", path, folder)

    # --- Dispatcher ---

    def dispatch(self, batch: RecordBatch) -> None:
        """Append the keys of new records; raises ``OSError`` on a full disk."""
        self._appender.append(batch)
        if len(batch):
            self._progress_recorder.passed(batch, self._appender)

    def truncate(self, end_offset: int) -> None:
        """Remove entries; files without any left are deleted."""
        self._appender.truncate(end_offset)
        self._progress_recorder.cut(end_offset)

    def flush(self) -> None:
        """Sync the file being filled, and wait for the sealing of full ones."""
        if self._opened is not None:
            self._opened.flush()

    def close(self) -> None:
        """Flush, then close the file."""
        if self._opened is not None:
            try:
                self._progress_recorder.end(self._opened)
            finally:
                self._opened.close()

    # --- KeyIndex ---

    def offsets(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Offsets of records that may have ``key``, newest first, each once.

        Store times are kept in whole seconds: records up to 999 ms outside of the window may be
        included, and none inside is missed. Raises :class:`~lakelog.errors.CorruptIndex` at the end
        if a file is damaged.
        """
        from lakelog_hash_index.indexfile import KeyQuestion, newest_first
        from lakelog_hash_index.keys import hash_key

        wanted = KeyQuestion(hash_key(topic, key), begin_ms, end_ms)
        return newest_first(reversed(self._files), (), wanted, range(self._minimum, _ENDLESS))

    def hash_files(self) -> HashChains | None:
        """See :class:`~lakelog.hooks.HashFiles`."""
        opened = self._opened
        if opened is None:
            return None
        slots, entries = self._shape
        return opened.files, None, self._minimum, _ENDLESS, slots, entries

    # --- maintenance ---

    def deletable(self, minimum: int) -> list[Path]:
        """Files whose records are all before ``minimum``, oldest first; never the last file."""
        found = []
        for file in self._files[:-1]:
            if file.header().end_offset >= minimum:
                break
            found.append(file.path)
        return found

    def remove_before(self, minimum: int) -> int:
        """Remove the files whose records are all before ``minimum``; return their number."""
        self._minimum = max(self._minimum, minimum)
        due = self.deletable(minimum)
        for _ in due:
            self._appender.remove_first()
        return len(due)
