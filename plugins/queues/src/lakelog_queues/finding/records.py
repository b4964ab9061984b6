"""Reads records of the log at the places that queues name."""

from __future__ import annotations

from struct import Struct
from typing import Final

import attrs

from lakelog.accelerate import current
from lakelog.errors import CorruptRecord, OffsetOutOfRange
from lakelog.format.layout import (
    AT_BORN_HOST,
    BORN_HOST_V6,
    HOST_V6_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    PREFIX,
    RECORD_MIN_BYTES,
)
from lakelog.format.message_id import host_bytes
from lakelog.format.queue_offsets import Flags, Ints, Longs
from lakelog.format.record import decode
from lakelog.lazy import np
from lakelog.log.log_reader import LogReader
from lakelog.log.segments import deleted
from lakelog.log.sources import Extent, ViewExtent
from lakelog.message import StoredMessage
from lakelog_queues.finding.gather import GAP_BYTES, GONE, WHOLE, Gathered, gather

_LONG: Final = Struct(">q")
_HEAD_MOST_BYTES: Final = AT_BORN_HOST + HOST_V6_BYTES + _LONG.size
"""Bytes up to the end of the store time if both hosts are IPv6."""


@attrs.frozen
class PlacedRecords:
    """Records of one log, by physical offset and size."""

    log: LogReader

    def gather(
        self, offsets: Longs, sizes: Ints, *, verify: bool = True, pack_bodies: bool = False
    ) -> Gathered:
        """Read whole records at physical ``offsets``, in any order, each ``sizes`` bytes long.

        Never raises for a record: ``Gathered`` has the state of each.
        """
        log = self.log
        return gather(
            *(log.source, log.bounds.minimum(), log.bounds.end(), offsets, sizes),
            verify=verify,
            pack_bodies=pack_bodies and log.decoder is None,
            in_damage=self._in_damage(offsets, verify),
            decoder=log.decoder,
        )

    def one(self, offset: int, size: int) -> bytes:
        """The bytes of the record at ``offset``; raises ``OffsetOutOfRange`` or ``CorruptRecord``.

        The latter if no whole record of ``size`` bytes is there.
        """
        found = self.gather(np.array([offset], np.int64), np.array([size], np.int32))
        if found.states[0] == GONE:
            raise deleted(offset, self.log.bounds.minimum())
        if found.states[0] != WHOLE:
            raise CorruptRecord("no whole record is there", offset=offset)
        return bytes(found.batches[0].record(0))

    def few(
        self, offsets: Longs, sizes: Ints, *, verify: bool = True
    ) -> list[StoredMessage] | None:
        """The messages at physical ``offsets``, in order; ``None`` if :meth:`gather` must be used.

        That is the case if a record is not whole, or if the records are not in one segment and
        close enough for one read.
        """
        log, first, last = self.log, int(offsets[0]), int(offsets[-1]) + int(sizes[-1])
        if self._in_damage(offsets, verify).any():
            return None
        minimum, end = log.bounds.minimum(), log.bounds.end()
        if first < max(minimum, 0) or (end is not None and last > end):
            return None
        extents = log.source.extents(first)  # keep it: its file is open as long as it lives
        view = _stretch(next(extents, None), first, last)
        if view is None:
            return None
        found = decode_all(view, offsets - first, sizes, offsets, verify=verify)
        return found if found is None or log.decoder is None else list(log.decoder(found))

    def store_time_ms(self, offset: int, size: int) -> int | None:
        """The store time of the record at ``offset``, in ms since 1970; reads only its head.

        ``None`` if the head at that place does not have this offset and ``size``.
        """
        log, end = self.log, self.log.bounds.end()
        if offset < log.bounds.minimum() or (end is not None and offset + size > end):
            return None
        if log.known_damage.at(offset):
            return None
        for extent in log.source.extents(offset):  # open for as long as the loop holds it
            if extent.start <= offset and offset + size <= extent.end:
                return _head_store_time(extent.read(offset, _HEAD_MOST_BYTES), offset, size)
            break
        return None

    def _in_damage(self, offsets: Longs, verify: bool) -> Flags:
        """For each offset, whether it lies in known damage."""
        known, hit = self.log.known_damage, np.zeros(len(offsets), np.bool_)
        if known:
            hit[:] = [known.at(each, verify=verify) is not None for each in offsets.tolist()]
        return hit


def _stretch(extent: Extent | None, first: int, last: int) -> memoryview | None:
    """The bytes of one segment from ``first`` to ``last``, if short enough for one read."""
    if extent is None or not extent.start <= first < last <= extent.end:
        return None
    if last - first > GAP_BYTES and not isinstance(extent, ViewExtent):
        return None
    try:
        view = extent.read(first, last - first)
    except (OffsetOutOfRange, FileNotFoundError):  # deleted meanwhile
        return None
    return view if len(view) == last - first else None


def decode_all(
    view: memoryview, starts: Longs, sizes: Ints, offsets: Longs, *, verify: bool = True
) -> list[StoredMessage] | None:
    """The messages of the records at given positions; ``None`` if any record fails its checks.

    :param starts: ``int64``, start of each record in ``view``
    :param sizes: ``int32``, expected length of each record in bytes
    :param offsets: ``int64``, physical offset that each record must state
    :param verify: whether checksums are computed; lengths and offsets are always checked
    """
    accelerator = current()
    if accelerator is not None:
        messages = accelerator.messages(view, starts, sizes, offsets, verify=verify)
        if messages is not None:
            return messages
    found: list[StoredMessage] = []
    places = zip(starts.tolist(), sizes.tolist(), offsets.tolist(), strict=True)
    try:
        for start, size, offset in places:
            found.append(decode(view, start, offset=offset, verify=verify))
            if found[-1].size != size:
                return None
    except CorruptRecord:
        return None
    return found


def _head_store_time(head: memoryview, offset: int, size: int) -> int | None:
    """The store time, in ms since 1970, from the first bytes of a record.

    ``None`` unless these bytes state a record of ``size`` bytes at ``offset``.
    """
    if size < RECORD_MIN_BYTES or len(head) < PREFIX.size:
        return None
    stated_size, magic, _, _, _, _, place, sys_flag, _ = PREFIX.unpack_from(head)
    if (stated_size, place) != (size, offset) or magic not in (MAGIC_V1, MAGIC_V2):
        return None
    at = AT_BORN_HOST + host_bytes(bool(sys_flag & BORN_HOST_V6))
    return int(_LONG.unpack_from(head, at)[0]) if len(head) >= at + _LONG.size else None
