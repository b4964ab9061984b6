"""Appends keys to the last file of an index, and creates the next file when it is full."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from lakelog.lazy import np
from lakelog_hash_index.filewriter import IndexFileWriter, Maker, Sealer
from lakelog_hash_index.indexfile import IndexFile
from lakelog_hash_index.keys import Keys, count_keys, find_keys

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lakelog.format.record_batch import RecordBatch

_NOWHERE: Final = -1


class IndexAppender:
    """Appends, cuts and syncs; one thread makes all calls except :meth:`flush` and :attr:`files`.

    The progress of the index follows from its entries: the offset of the last one, and the number
    of entries of that record. A record that is dispatched again adds only its missing keys.

    :ivar files: all files, oldest first; the list is replaced, never modified
    """

    def __init__(self, maker: Maker, sealer: Sealer, files: Sequence[IndexFile]) -> None:
        self.files = tuple(files)
        self._maker = maker
        self._sealer = sealer
        self._active: IndexFileWriter | None = None
        self._find_end()
        self._open_last()

    @property
    def end_offset(self) -> int:
        """The offset of the last record that has entries, or -1."""
        return self._last_offset

    @property
    def resume_offset(self) -> int:
        """The offset of the first record that may lack keys: that of the last entry, or 0."""
        return max(self._last_offset, 0)

    def _open_last(self) -> None:
        if self.files:
            self._active = self._maker.open(self.files[-1])
            self._seal_if_full()

    def _find_end(self) -> None:
        """Count the entries of the last record, which may span files."""
        self._last_offset, self._last_keys = _NOWHERE, 0
        for file in reversed(self.files):
            number = file.header().count - 1
            if self._last_offset == _NOWHERE and number:
                self._last_offset = file.offset(number)
            while number and file.offset(number) == self._last_offset:
                self._last_keys += 1
                number -= 1
            if number:
                return

    # --- append ---

    def append(self, batch: RecordBatch) -> None:
        """Add the keys of a run of records, in log order; raises ``OSError``.

        After an error the keys written so far stay, and the same run may be dispatched again.
        """
        if len(batch) and batch.base_offset + batch.head(0)[0] < self._last_offset:
            known = (batch.base_offset + batch.starts).searchsorted(self._last_offset)
            batch = batch[int(known) :]
        if not len(batch):
            return
        (first, _, first_ms), (last, _, _) = batch.head(0), batch.head(-1)
        if batch.base_offset + first == self._last_offset:
            if self._active is not None:
                self._active.correct_end(self._last_offset, first_ms)
            if len(batch) == 1 and count_keys(batch) <= self._last_keys:
                return
            keys = find_keys(batch)
            self._append(keys[self._keys_there(keys) :], batch)
        elif not self._append_at_once(batch):
            self._append(find_keys(batch), batch)
        if self._last_offset != batch.base_offset + last:
            self._room()  # RocketMQ creates a file for any record, with or without keys

    def _append_at_once(self, batch: RecordBatch) -> bool:
        """Add all keys of a run to one file; return whether that was possible."""
        found = self._room().put_keys(batch)
        if found is None:
            return False
        last, last_keys = found
        if last_keys:
            self._last_offset = batch.base_offset + batch.head(last)[0]
            self._last_keys = last_keys
        self._seal_if_full()
        return True

    def _keys_there(self, keys: Keys) -> int:
        """The number of keys of the first record that are already in the index."""
        return min(self._last_keys, int(keys.records.searchsorted(1)))

    def _append(self, keys: Keys, batch: RecordBatch) -> None:
        offsets, times_ms = batch.base_offset + batch.starts, batch.store_timestamps_ms
        at = 0
        while at < len(keys):
            file = self._room()
            part = keys[at : at + file.room]
            file.put(part.hashes, offsets[part.records], times_ms[part.records])
            self._note(offsets[part.records])
            at += len(part)
            self._seal_if_full()

    def _note(self, offsets: NDArray[np.int64]) -> None:
        last = int(offsets[-1])
        same = int((offsets == last).sum())
        self._last_keys = same + (self._last_keys if last == self._last_offset else 0)
        self._last_offset = last

    def _room(self) -> IndexFileWriter:
        """The file being filled, with room for at least one entry."""
        if self._active is None:
            self._active = self._maker.make(self.files[-1] if self.files else None)
            self.files = (*self.files, self._active.seen)
        return self._active

    def _seal_if_full(self) -> None:
        if self._active is not None and not self._active.room:
            self._sealer.submit(self._active)
            self._active = None

    # --- undo ---

    def truncate(self, end_offset: int) -> None:
        """Remove entries of records at or behind ``end_offset``."""
        if self._last_offset >= end_offset:
            self._cut_back(end_offset)

    def truncate_last(self) -> None:
        """Remove entries of the last record, and anything a crash left behind them."""
        self._cut_back(self._last_offset)

    def _cut_back(self, end_offset: int) -> None:
        self._sealer.wait()
        if self._active is not None:
            self._active.close()
            self._active = None
        while self.files and _first_offset(self.files[-1]) >= end_offset:
            self._drop_last()
        if self.files:
            self._cut(self._maker.open(self.files[-1]), end_offset)
        self._find_end()

    def _drop_last(self) -> None:
        path = self.files[-1].path
        self._maker.files.unlink(path)
        self._maker.files.sync_dir(path.parent)
        self.files = self.files[:-1]

    def _cut(self, file: IndexFileWriter, end_offset: int) -> None:
        numbers = range(1, file.header.count)
        kept = bisect_left(numbers, end_offset, key=file.seen.offset)
        if kept < len(numbers):
            file.cut(kept + 1)
        self._active = file
        self._seal_if_full()

    def remove_first(self) -> None:
        """Remove the oldest file durably; it must not be the only one."""
        path = self.files[0].path
        self._sealer.wait()
        self.files = self.files[1:]
        self._maker.files.unlink(path)
        self._maker.files.sync_dir(path.parent)

    # --- make durable ---

    def flush(self) -> None:
        """Sync everything appended before the call; raises ``OSError``."""
        active = self._active
        if active is not None:
            active.sync()
        self._sealer.wait()

    def close(self) -> None:
        """Flush, then close, even if the flush fails."""
        try:
            self.flush()
        finally:
            self._sealer.close()
            if self._active is not None:
                self._active.close()


def _first_offset(file: IndexFile) -> float:
    """The offset of its first entry; infinity for a file without entries."""
    return float("inf") if file.header().is_empty else file.header().begin_offset
