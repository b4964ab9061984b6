"""Writes an index: appends keys to its last file, and creates the next file when one is full.

Slots are changed at random places, through a map of allocated blocks only: a store into a hole on
a full disk would raise SIGBUS. Entries are appended by ``pwrite``: on a full disk it raises
``OSError``. Entries are written first, then slots, then the header that counts them, so that
readers in other processes never follow a link to a missing entry.

A file is complete and allocated before it gets its name. It is created for the first key that has
no room in the files before it, so an index without keys has no file. A full file is synced in a
thread, which then advances the checkpoint.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import closing, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from lakelog.accelerate import current
from lakelog.files.filesystem import File, FileSystem
from lakelog.format.queue_offsets import Ints, Longs
from lakelog.format.record_batch import RecordBatch
from lakelog.hooks import Context
from lakelog.lazy import cached_property, np
from lakelog.runtime.locks import Mutex
from lakelog.runtime.threads import LockFreeFuture, Workers, soon_done
from lakelog_hash_index.indexfile import ENTRY_DTYPE, Header, IndexFile, follow, link
from lakelog_hash_index.keys import Keys, count_keys, find_keys
from lakelog_hash_index.shape import (
    ENTRY,
    HEADER,
    LARGEST_INT,
    NAME_DIGITS,
    UNFINISHED,
    IndexShape,
    is_name,
)

_CHUNK: Final = 1 << 18
"""Number of entries processed at once."""
_NOWHERE: Final = -1
_THREAD: Final = "lakelog-hash-index"


class IndexAppender:
    """Appends, cuts and syncs; one thread makes all calls except :meth:`flush` and :attr:`files`.

    The progress of the index follows from its entries: the offset of the last one, and the number
    of entries of that record. A record that is dispatched again adds only its missing keys.

    :ivar files: all files, oldest first; the list is replaced, never modified
    """

    def __init__(self, maker: Maker, sealer: Sealer, files: Sequence[IndexFile]) -> None:
        self.files = tuple(files)
        for each in self.files:
            each.own_map = None
        self._maker = maker
        self._sealer = sealer
        self._active: IndexFileWriter | None = None
        self._find_end()
        if self.files:
            self._active = maker.open(self.files[-1])
            self._seal_if_full()

    @property
    def end_offset(self) -> int:
        """The offset of the last record that has entries, or -1."""
        return self._last_offset

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
        first, _, first_ms = batch.head(0)
        if batch.base_offset + first == self._last_offset:
            if self._active is not None:
                self._active.correct_end(self._last_offset, first_ms)
            if len(batch) == 1 and count_keys(batch) <= self._last_keys:
                return
            keys = find_keys(batch)
            present = min(self._last_keys, int(keys.records.searchsorted(1)))
            self._append(keys[present:], batch)
        elif (self._active or count_keys(batch)) and not self._append_at_once(batch):
            self._append(find_keys(batch), batch)

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

    def _append(self, keys: Keys, batch: RecordBatch) -> None:
        """Add keys of a run, to as many files as they need; the plain form, with NumPy."""
        offsets, times_ms = batch.base_offset + batch.starts, batch.store_timestamps_ms
        at = 0
        while at < len(keys):
            file = self._room()
            part = keys[at : at + file.room]
            file.put(part.hashes, offsets[part.records], times_ms[part.records])
            self._note(offsets[part.records])
            at += len(part)
            self._seal_if_full()

    def _note(self, offsets: Longs) -> None:
        """Note that entries were written, with these physical offsets."""
        last = int(offsets[-1])
        same = int((offsets == last).sum())
        self._last_keys = same + (self._last_keys if last == self._last_offset else 0)
        self._last_offset = last

    def _room(self) -> IndexFileWriter:
        """The file being filled, with room for at least one entry."""
        if self._active is None:
            self._active = self._maker.make(self.files[-1] if self.files else None)
            self._active.seen.own_map = None
            self.files = (*self.files, self._active.seen)
        return self._active

    def _seal_if_full(self) -> None:
        """Have a full file synced; the next key makes the next file."""
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
        """Remove files that begin at or behind ``end_offset``, and cut the one before them."""
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
            for each in self.files:
                each.close()


def _first_offset(file: IndexFile) -> float:
    """The offset of its first entry; infinity for a file without entries."""
    return float("inf") if file.header().is_empty else file.header().begin_offset


class IndexFileWriter:
    """Appends entries; one thread makes all calls except :meth:`sync`."""

    def __init__(self, seen: IndexFile, file: File) -> None:
        self.seen = seen
        self.shape = seen.shape
        self._file = file
        self._closed = False
        self._lock = Mutex()
        file.allocate(self.shape.slots_end)
        self._map = file.map(self.shape.slots_end, writable=True)
        self.header = Header.unpack(self._map[: HEADER.size])

    @cached_property
    def _heads(self) -> Ints:
        """The newest entry of each slot, over the map."""
        return np.ndarray((self.shape.slots,), ">i4", self._map, HEADER.size)

    @property
    def room(self) -> int:
        """The number of entries that still fit."""
        return self.shape.entries - self.header.count

    def put(self, hashes: Ints, offsets: Longs, times_ms: Longs) -> None:
        """Append entries, at least one and at most :attr:`room`; raises ``OSError``."""
        first = self.header.count
        links = link(self._heads, hashes % self.shape.slots, first)
        block = np.empty(len(hashes), ENTRY_DTYPE)
        block["hash"], block["offset"] = hashes, offsets
        block["seconds"] = _seconds(self.header, times_ms)
        block["previous"] = links.previous
        self._file.write_at(self.shape.entry_at(first), block.view(np.uint8).data)
        begin, end = ((int(offsets[at]), int(times_ms[at])) for at in (0, -1))
        self._heads[links.slots] = links.heads.astype(">i4")  # each slot is one store
        self._write_header(_advanced(self.header, begin, end, len(block), links.opened))

    def put_keys(self, batch: RecordBatch) -> tuple[int, int] | None:
        """Append entries for all keys of a batch at once; raises ``OSError``.

        :returns: the index of the last record with keys, and its number of keys, which is 0 if no
            record has any; ``None`` if nothing was done, and :meth:`put` must be used
        """
        accelerator, header, slots = current(), self.header, self.shape.slots
        if accelerator is None:
            return None
        found = accelerator.index_entries(
            *(self._map, slots, self.room, header.count, header.begin_timestamp_ms),
            *(batch.buffer, batch.base_offset, batch.raw_starts),
        )
        if found is None:
            return None
        block, heads, opened, (first, last), last_keys = found
        if block:
            self._file.write_at(self.shape.entry_at(header.count), block)
            accelerator.set_slots(self._map, slots, heads)
            begin, end = _place(batch, first), _place(batch, last)
            count = len(block) // ENTRY.size
            self._write_header(_advanced(header, begin, end, count, opened))
        return last, last_keys

    def correct_end(self, offset: int, time_ms: int) -> None:
        """Correct the header's last store time, if its record is the one at ``offset``."""
        header = self.header
        if header.is_empty or (header.end_offset, header.end_timestamp_ms) == (offset, time_ms):
            return
        if header.end_offset == offset:
            self._write_header(attrs.evolve(header, end_timestamp_ms=time_ms))

    def cut(self, count: int) -> None:
        """Remove entry ``count`` and all later ones, then sync.

        At least one entry must remain. The last store time is then only known to a second, rounded
        up, until :meth:`correct_end`.
        """
        heads, opened = np.zeros(self.shape.slots, np.int32), 0
        for first in range(1, count, _CHUNK):
            some = self.seen.entries(first, min(first + _CHUNK, count))
            sound = follow(heads, some, first, 0)
            if sound is not None:
                opened += sound[0]
                continue
            links = link(heads, some["hash"].astype(np.int32) % self.shape.slots, first)
            heads[links.slots] = links.heads
            opened += links.opened
        written = min(max(self.header.count, int(self._heads.max()) + 1), self.shape.entries)
        self._write_header(_shortened(self.header, self.seen, count, opened))
        other = np.flatnonzero(self._heads != heads)  # a store makes a page dirty
        self._heads[other] = heads[other]
        for first in range(count, written, _CHUNK):
            size = min(_CHUNK, written - first) * ENTRY.size
            self._file.write_at(self.shape.entry_at(first), bytes(size))
        self.sync()

    def _write_header(self, header: Header) -> None:
        self._map[: HEADER.size] = header.pack()
        self.header = header

    def sync(self) -> None:
        """Make everything durable; does nothing after :meth:`close`."""
        with self._lock:
            if not self._closed:
                self._file.sync()

    def close(self) -> None:
        """Close the file, and end its map."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._map.unmap()
                self._file.close()


def _seconds(header: Header, times_ms: Longs) -> Longs:
    """Seconds since the file's first record; for the first entry, since the previous file's end."""
    begins = np.full(len(times_ms), header.begin_timestamp_ms)
    if header.is_empty:
        begins[1:] = times_ms[0]
    behind = np.clip((times_ms - begins) // 1000, 0, LARGEST_INT)
    return np.where(begins > 0, behind, 0)


def _place(batch: RecordBatch, record: int) -> tuple[int, int]:
    """Offset and store time of a record."""
    start, _, time_ms = batch.head(record)
    return batch.base_offset + start, time_ms


def _advanced(
    header: Header, begin: tuple[int, int], end: tuple[int, int], count: int, opened: int
) -> Header:
    """The header after adding entries.

    :param begin: offset and store time of the record of the first one
    :param end: of the last one
    """
    if header.is_empty:
        header = attrs.evolve(header, begin_offset=begin[0], begin_timestamp_ms=begin[1])
    return attrs.evolve(
        header,
        end_offset=end[0],
        end_timestamp_ms=end[1],
        used_slots=header.used_slots + opened,
        count=header.count + count,
    )


def _shortened(header: Header, seen: IndexFile, count: int, opened: int) -> Header:
    """The header after removing entry ``count`` and all later ones."""
    _, offset, seconds, _ = seen.entry(count - 1)
    latest = header.begin_timestamp_ms + (seconds * 1000 + 999 if count > 2 else 0)
    return attrs.evolve(
        header,
        end_offset=offset,
        end_timestamp_ms=latest if count <= 2 else min(header.end_timestamp_ms, latest),
        used_slots=opened,
        count=count,
    )


_NAME_SECONDS: Final = "%Y%m%d%H%M%S"
_MILLISECOND: Final = timedelta(milliseconds=1)


def name_of(moment: datetime) -> str:
    """The name of a file created at ``moment``.

    >>> name_of(datetime(2026, 11, 20, 23, 23, 52, 5999))
    '20261120232352005'
    """
    return f"{moment:{_NAME_SECONDS}}{moment.microsecond // 1000:03d}"


def next_name(moment: datetime, last: str | None) -> str:
    """The name of a new file; names ascend in order of creation, even if the clock goes back.

    :param moment: local time, without a zone
    :param last: the newest existing name
    """
    name = name_of(moment)
    if last is None or name > last:
        return name
    try:
        seconds = datetime.strptime(last[:-3], _NAME_SECONDS)  # noqa: DTZ007  # local, as in the name
        return name_of(seconds + (int(last[-3:]) + 1) * _MILLISECOND)
    except ValueError:  # digits that are not a time
        return str(int(last) + 1).zfill(NAME_DIGITS)


@attrs.frozen
class Maker:
    """Creates and opens the files of one index.

    :ivar directory: the folder ``index`` of a store
    """

    files: FileSystem
    directory: Path
    shape: IndexShape

    def make(self, last: IndexFile | None) -> IndexFileWriter:
        """Create the file after ``last``; raises ``OSError``, and then leaves nothing behind.

        Its first times and offsets are the ends of the file before it.
        """
        now = datetime.now()  # noqa: DTZ005  # names are local times
        name = next_name(now, last.path.name if last else None)
        end = Header() if last is None else last.header()
        time_ms, offset = end.end_timestamp_ms, end.end_offset
        self.files.make_dir(self.directory)
        unfinished = self.directory / (name + UNFINISHED)
        try:
            with closing(self.files.open(unfinished, write=True, create=True)) as file:
                file.truncate(0)
                file.allocate(self.shape.slots_end)
                file.truncate(self.shape.length)
                file.write_at(0, Header(time_ms, time_ms, offset, offset).pack())
                file.sync()
            self.files.rename(unfinished, self.directory / name)
        except BaseException:
            with suppress(OSError):
                self.files.unlink(unfinished)
            raise
        self.files.sync_dir(self.directory)
        return self.open(IndexFile(self.files, self.directory / name, self.shape))

    def clear(self) -> None:
        """Remove incomplete files left by a crash: with a temporary name, or empty."""
        for name, length in self.files.list(self.directory):
            if name.endswith(UNFINISHED) or (is_name(name) and not length):
                self.files.unlink(self.directory / name)

    def open(self, seen: IndexFile) -> IndexFileWriter:
        """Open an existing file for appending."""
        file = self.files.open(seen.path, write=True)
        try:
            return IndexFileWriter(seen, file)
        except BaseException:
            file.close()
            raise


class Sealer:
    """Uses a single thread, so that the checkpoint never covers a file before an older one."""

    def __init__(self, context: Context) -> None:
        self._checkpoint = context.checkpoint
        self._thread = Workers(_THREAD)
        self._pending: list[LockFreeFuture[None]] = []
        self._lock = Mutex()

    def submit(self, file: IndexFileWriter) -> None:
        """Seal ``file`` in the thread; it is closed afterwards.

        If no thread can be started, it is sealed before this returns; no other sealing is pending
        then.
        """
        with self._lock:
            seal = partial(self._seal, file)
            self._pending.append(soon_done(self._thread.submit, _THREAD, seal))

    def _seal(self, file: IndexFileWriter) -> None:
        try:
            file.sync()
        finally:
            file.close()
        # After a failure the checkpoint stays, for all later files as well.
        if not any(each.done() and each.exception() for each in self._known()):
            self._checkpoint.advance(
                self._checkpoint.read()._replace(index_timestamp_ms=file.header.end_timestamp_ms)
            )

    def _known(self) -> list[LockFreeFuture[None]]:
        with self._lock:
            return list(self._pending)

    def wait(self) -> None:
        """Wait until all files are sealed; raises the first ``OSError``.

        It is raised in each call: data that was not durable never counts as durable again.
        """
        known = self._known()
        for each in known:
            each.result()
        with self._lock:
            self._pending = [each for each in self._pending if each not in known]

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()
