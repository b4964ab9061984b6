"""The extension files of one queue, in ``consumequeue_ext``: tags codes and store times.

A unit of such a consume queue holds an address in these files in place of its tags code. A unit
here is ``size i16 | tagsCode i64 | msgStoreTime i64 | bitMapSize i16 | bitmap``, big-endian;
``size`` counts the whole unit. Source: RocketMQ's ``ConsumeQueueExt``;
core/docs/reference/format/consumequeue_ext.md.
"""

from __future__ import annotations

import logging
from typing import Final

from lakelog.errors import CorruptQueue
from lakelog.format.queue_offsets import Flags, Longs, Queue
from lakelog.format.record_batch import gather
from lakelog.lazy import np
from lakelog_queues.files.folders import SizedFiles
from lakelog_queues.units.simpleunits import RawUnits
from lakelog_queues.units.tags import MAX_ADDRESS, is_address

UNIT: Final = np.dtype(
    [("size", ">i2"), ("tags_code", ">i8"), ("store_time", ">i8"), ("bitmap_size", ">i2")]
)
UNIT_BYTES: Final = UNIT.itemsize
"""Length of a unit without a bitmap."""
BLANK_BYTES: Final = 4
"""Least number of bytes that stay free at the end of every file."""
END_MARKER: Final = b"\xff\xff"
"""Ends a file: -1 in place of the next unit's size."""
LOWEST: Final = -(1 << 63)
MAX_OFFSET: Final = MAX_ADDRESS - LOWEST
"""The largest end offset of a unit."""
_LOG: Final = logging.getLogger(__name__)
_SCANNED_AT_ONCE: Final = 1 << 20
_WIDEST_GAP: Final = 1 << 16
"""Units further apart than this, in bytes, are read separately."""


class ExtFiles(SizedFiles):
    """The files in one directory; one thread appends, any thread resolves addresses."""

    def load(self) -> None:
        """List the files, each at least 24 bytes long, and find the end."""
        super().load()
        self._end = self._find_end()

    @property
    def end(self) -> int:
        """Offset after the last unit, in bytes from the start of the first file ever created."""
        if self.read_only:
            self.load()
        return self._end

    def append(self, tags_codes: Longs, store_times_ms: Longs) -> Longs:
        """Write one unit per tags code; one write for each file.

        :param tags_codes: ``int64``
        :param store_times_ms: ``int64``, of the same length
        :returns: ``int64``, the address of each unit; the tags code itself if no address is left
            (after 8 EiB), as in RocketMQ
        """
        addresses = np.array(tags_codes, np.int64)
        done = 0
        while done < len(addresses) and self._end + UNIT_BYTES <= MAX_OFFSET:
            count = min(self._room(), len(addresses) - done)
            part = slice(done, done + count)
            full = done + count < len(addresses)
            data = pack(tags_codes[part], store_times_ms[part])
            self.write(self._end, data + END_MARKER if full else data)
            addresses[part] = self._end + LOWEST + np.arange(count, dtype=np.int64) * UNIT_BYTES
            self._end += self.left(self._end) if full else len(data)
            done += count
        return addresses

    def resolve(self, addresses: Longs) -> tuple[Longs, Longs]:
        """Tags codes and store times (ms since 1970) of units, ``int64`` each, in the same order.

        Raises :class:`~lakelog.errors.CorruptQueue` for an address without a unit.
        """
        self._check_addresses(addresses)
        offsets, back = np.unique(addresses - np.int64(LOWEST), return_inverse=True)
        raw = self._heads(offsets)[back]
        return raw["tags_code"].astype(np.int64), raw["store_time"].astype(np.int64)

    def first_lost(self, codes: Longs, queue: Queue) -> int | None:
        """The index of the first of ``codes`` that is an address without a unit.

        :param codes: ``int64``, the tags codes of consecutive units
        :param queue: for the log message
        """
        places = np.flatnonzero(is_address(codes))
        try:
            self.resolve(codes[places])
        except CorruptQueue as error:
            _LOG.warning("queue %s/%d: %s; it is rebuilt from there on", *queue, error)
            return next(int(at) for at in places if not self._holds(codes[at : at + 1]))
        return None

    def _holds(self, address: Longs) -> bool:
        try:
            self.resolve(address)
        except CorruptQueue:
            return False
        return True

    def truncate_after(self, address: int | None) -> None:
        """Remove all units after the one at ``address``; ``None`` removes all.

        Raises :class:`~lakelog.errors.CorruptQueue` if there is no unit; then nothing is removed.
        """
        self._end = 0 if address is None else self._end_of(address)
        self.cut(self._end)

    def truncate_before(self, address: int) -> int:
        """Remove the files that end before the unit at ``address``; returns their number.

        The last file is kept.
        """
        return self.remove_front(address - LOWEST - 1)

    def _room(self) -> int:
        """The number of units that still fit into the file; 0 if a new file must follow."""
        fit = (self.left(self._end) - BLANK_BYTES) // UNIT_BYTES
        return max(0, min(fit, (MAX_OFFSET - self._end) // UNIT_BYTES))

    def _check_addresses(self, addresses: Longs) -> None:
        bad = ~is_address(addresses)
        if bad.any():
            raise CorruptQueue(
                f"{int(addresses[bad][0])} is not the address of a unit, which is at most "
                f"{MAX_ADDRESS}; rebuild the queues",
                path=self.directory,
            )

    def _heads(self, offsets: Longs) -> RawUnits:
        """The first 20 bytes of the units at ``offsets``, which must ascend.

        Units that are close together in one file are read at once.
        """
        new_file = np.diff(offsets // self.size_bytes) != 0
        cuts = np.flatnonzero(new_file | (np.diff(offsets) > _WIDEST_GAP)) + 1
        runs = np.split(offsets, cuts) if len(offsets) else []
        return np.concatenate([np.zeros(0, UNIT), *(self._run(run) for run in runs)])

    def _run(self, offsets: Longs) -> RawUnits:
        first, last = int(offsets[0]), int(offsets[-1])
        data = self.read(first, last - first + UNIT_BYTES)
        there = offsets - first + UNIT_BYTES <= len(data)
        raw: RawUnits = np.zeros(len(offsets), UNIT)
        raw[there] = gather(data, UNIT, offsets[there] - first)
        inside = offsets % self.size_bytes + raw["size"] <= self.size_bytes
        good = is_whole(raw) & inside
        if not good.all():
            at = int(good.argmin())
            self._refuse(int(offsets[at]), int(raw["size"][at]))
        return raw

    def _refuse(self, offset: int, found: int) -> None:
        raise CorruptQueue(
            f"there is no unit at offset {offset} (byte {offset % self.size_bytes} of this "
            f"file): a unit has {UNIT_BYTES} bytes and its bitmap, but its length is {found}; "
            "rebuild the queues",
            path=self.path(offset),
        )

    def _end_of(self, address: int) -> int:
        self._check_addresses(np.array([address]))
        raw = self._heads(np.array([address - LOWEST]))
        return address - LOWEST + int(raw["size"][0])

    def _find_end(self) -> int:
        """The offset after the last unit of the last file; as in RocketMQ, no other is read."""
        at = self.bases[-1] if self.bases else 0
        while (step := self._step(at)) > 0:
            at += step
        return at

    def _step(self, at: int) -> int:
        """The length of the next units: several without a bitmap, or one with; 0 at the end."""
        data = self.read(at, min(_SCANNED_AT_ONCE, self.left(at) - BLANK_BYTES))
        plain = plain_run(data) * UNIT_BYTES
        if plain or len(data) < UNIT_BYTES:
            return plain
        head = np.frombuffer(data, UNIT, 1)
        size = int(head["size"][0])
        whole = bool(is_whole(head)[0]) and size <= self.left(at) - BLANK_BYTES
        return size if whole else 0


def pack(tags_codes: Longs, store_times_ms: Longs) -> bytes:
    """Units without bitmaps, in file format."""
    raw = np.zeros(len(tags_codes), UNIT)
    raw["size"], raw["tags_code"], raw["store_time"] = UNIT_BYTES, tags_codes, store_times_ms
    return raw.tobytes()


def is_whole(raw: RawUnits) -> Flags:
    """For each head, whether its sizes are those of a unit; a negative bitmap size counts as 0."""
    bitmaps = np.maximum(raw["bitmap_size"].astype(np.int32), 0)
    whole: Flags = np.equal(raw["size"], bitmaps + UNIT_BYTES)
    return whole


def plain_run(data: bytes | memoryview) -> int:
    """The number of units without a bitmap at the start of ``data``."""
    raw = np.frombuffer(data, UNIT, len(data) // UNIT_BYTES)
    other = (raw["size"] != UNIT_BYTES) | (raw["bitmap_size"] > 0)
    return int(other.argmax()) if other.any() else len(raw)
