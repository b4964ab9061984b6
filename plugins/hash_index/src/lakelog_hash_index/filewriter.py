"""One index file, as its owner writes it.

Slots are changed at random places, through a map of allocated blocks only: a store into a hole on
a full disk would raise SIGBUS. Entries are appended by ``pwrite``: on a full disk it raises
``OSError``. Entries are written first, then slots, then the header that counts them, so that
readers in other processes never follow a link to a missing entry.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import attrs

from lakelog.accelerate import current
from lakelog.files.filesystem import File
from lakelog.runtime.cached import cached_property
from lakelog.runtime.lazy import np
from lakelog_hash_index.chains import ENTRY_DTYPE, follow, link
from lakelog_hash_index.indexfile import IndexFile
from lakelog_hash_index.shape import ENTRY, HEADER, LARGEST_INT, Header

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lakelog.codec import RecordBatch

_CHUNK: Final = 1 << 18
"""Number of entries processed at once."""


class IndexFileWriter:
    """Appends entries; one thread makes all calls except :meth:`sync`."""

    def __init__(self, seen: IndexFile, file: File) -> None:
        self.seen = seen
        self.shape = seen.shape
        self._file = file
        self._closed = False
        self._lock = Lock()
        file.allocate(self.shape.slots_end)
        self._map = file.map(self.shape.slots_end, writable=True)
        self.header = Header.unpack(self._map[: HEADER.size])

    @cached_property
    def _heads(self) -> NDArray[Any]:
        """The newest entry of each slot, over the map."""
        return np.ndarray((self.shape.slots,), ">i4", self._map, HEADER.size)

    @property
    def room(self) -> int:
        """The number of entries that still fit."""
        return self.shape.entries - self.header.count

    def put(
        self, hashes: NDArray[np.int32], offsets: NDArray[np.int64], times_ms: NDArray[np.int64]
    ) -> None:
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
        heads = np.zeros(self.shape.slots, np.int32)
        entries, opened = self.seen.entries(), 0
        for first in range(1, count, _CHUNK):
            some = entries[first : min(first + _CHUNK, count)]
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
        """Close the file."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._file.close()


def _seconds(header: Header, times_ms: NDArray[np.int64]) -> NDArray[np.int64]:
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
    _, offset, seconds, _ = seen.entry(count - 1)
    latest = header.begin_timestamp_ms + (seconds * 1000 + 999 if count > 2 else 0)
    return attrs.evolve(
        header,
        end_offset=offset,
        end_timestamp_ms=latest if count <= 2 else min(header.end_timestamp_ms, latest),
        used_slots=opened,
        count=count,
    )
