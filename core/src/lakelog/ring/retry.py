"""Which records of an entry are in the log already, written by an owner that is no more.

An owner notes in the entry where its records go, and when, before it writes them. Its successor
reads the log there, after its recovery: what an entry has in common with it, from its first record
on, was written. Killed in the middle of a write, an owner leaves a part of an entry; the successor
appends the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, TypeAlias

from lakelog.codec.frame import Frame, read_frame, verify_frame
from lakelog.codec.messageproperties import ended
from lakelog.codec.recordcrc import PLACEHOLDER, is_sealed
from lakelog.errors import CorruptRecord
from lakelog.hosts import host_bytes
from lakelog.layout import (
    AT_BORN_HOST,
    AT_MAGIC,
    AT_QUEUE_OFFSET,
    AT_SYS_FLAG,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    RECORD_CRC_BYTES,
)
from lakelog.properties import INNER_MULTI_QUEUE_OFFSET
from lakelog.ring.layout import PLACE
from lakelog.ring.parts import Parts
from lakelog.ring.taken import Taken
from lakelog.sysflag import BORN_HOST_V6

Read: TypeAlias = Callable[[int, int], bytes | bytearray | memoryview]
"""``read(offset, length)``: that many bytes of the log; fewer, or none, where it ends before.

It raises :class:`~lakelog.errors.OffsetOutOfRange` where the log begins later only.
"""

_LONG: Final = Struct(">q")
_LIGHT_OFFSETS: Final = INNER_MULTI_QUEUE_OFFSET.encode() + NAME_VALUE_SEPARATOR
_NUMBERS: Final = frozenset(b"0123456789,")
_LIGHT_BYTES: Final = 4096
"""How much longer than it was offered a record for light queues is expected to be, at most."""


def settle_retry(taken: Taken, read: Read) -> int:
    """Look at all intents of ``taken``, and leave in its batch what is not in the log.

    Raises :class:`~lakelog.errors.OffsetOutOfRange` where the log was deleted since: refuse the
    entry with it, for nobody knows any more.

    :returns: how many records were found
    """
    found = b""
    for position, stamp_ms in taken.intents:
        parts = taken.parts.behind(len(found) // PLACE.size)
        found += already_there(parts, position, stamp_ms, read, lights=taken.lights)
    if found:
        taken.settle(found)
    return len(found) // PLACE.size


def already_there(
    parts: Parts, position: int, stamp_ms: int, read: Read, *, lights: bool = False
) -> bytes:
    """The places of the first records of ``parts``, packed, as far as they are at ``position``.

    :param stamp_ms: their store time
    :param lights: whether records may have grown by their offsets in light queues
    """
    if position < 0 or not len(parts.sizes):
        return b""
    length = len(parts.records) + len(parts.sizes) * _LIGHT_BYTES * lights
    logged = memoryview(read(position, length))
    found, at = [], 0
    for offered in _records(parts):
        frame = _sound(logged, at, position)
        if frame is None or not _is(offered, logged, frame, stamp_ms, parts.sealed):
            break
        (queue_offset,) = _LONG.unpack_from(logged, at + AT_QUEUE_OFFSET)
        found.append(PLACE.pack(queue_offset, position + at, frame.size, stamp_ms))
        at += frame.size
    return b"".join(found)


def _records(parts: Parts) -> Iterator[memoryview]:
    at = 0
    for size in parts.sizes:
        yield parts.records[at : at + size]
        at += size


def _sound(logged: memoryview, at: int, position: int) -> Frame | None:
    try:
        frame = read_frame(logged, at, len(logged), position + at)
        verify_frame(logged, frame, position + at)
    except CorruptRecord:
        return None
    return frame


def _is(offered: memoryview, logged: memoryview, frame: Frame, stamp_ms: int, sealed: bool) -> bool:
    """Whether a record of the log is what was made of the one that was offered."""
    own = logged[frame.start : frame.start + frame.size]
    time_at = AT_BORN_HOST + host_bytes(bool(frame.sys_flag & BORN_HOST_V6))
    behind = time_at + _LONG.size
    length_at = frame.properties_at - frame.start - 2
    return (
        _LONG.unpack_from(own, time_at)[0] == stamp_ms
        and own[AT_MAGIC:AT_QUEUE_OFFSET] == offered[AT_MAGIC:AT_QUEUE_OFFSET]
        and own[AT_SYS_FLAG:time_at] == offered[AT_SYS_FLAG:time_at]
        and own[behind:length_at] == offered[behind:length_at]
        and _are(bytes(offered[length_at + 2 :]), bytes(own[length_at + 2 :]), sealed)
    )


def _are(offered: bytes, logged: bytes, sealed: bool) -> bool:
    """Whether properties of the log are what was made of those that were offered."""
    if sealed:
        if not is_sealed(logged):
            return False
        offered, logged = offered.removesuffix(PLACEHOLDER), logged[:-RECORD_CRC_BYTES]
    if offered == logged:
        return True
    front = ended(offered) + _LIGHT_OFFSETS
    numbers = logged[len(front) :].removesuffix(PROPERTY_SEPARATOR)
    return logged.startswith(front) and _NUMBERS.issuperset(numbers)
