"""Finds the next whole record behind damage, by its magic number and all other checks.

A whole record need not belong to the log: the caller decides that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, TypeAlias

from lakelog.log.reading.sources import Extent
from lakelog_format.codec import decode
from lakelog_format.codec.frame import checked_frame
from lakelog_format.fields.layout import AT_MAGIC, BLANK, MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from lakelog_interfaces.errors import CorruptRecord

_WINDOW_BYTES: Final = 1 << 20
_MAGICS: Final = [Struct(">I").pack(magic) for magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK)]

Accepts: TypeAlias = Callable[[memoryview, int], bool]
"""Decides whether a whole record, given its bytes and offset, belongs to the log."""


def find_record(
    extent: Extent, damaged: int, accepts: Accepts, *, sealed: bool = False
) -> int | None:
    """The offset of the next whole record or blank of the segment behind ``damaged``, if any.

    :param sealed: whether to reject records without a record checksum
    """
    for offset in _candidates(extent, damaged + 1):
        if _is_whole(extent, offset, accepts, sealed=sealed):
            return offset
    return None


def not_older(than_ms: int) -> Accepts:
    """Accept records not stored earlier than this; older ones are left from a log that was cut."""
    return lambda record, _offset: decode(record, verify=False).store_timestamp_ms >= than_ms


def _candidates(extent: Extent, start: int) -> Iterator[int]:
    """Offsets where the magic number suggests a record."""
    at = extent.next_data(start - 1)  # from the damage on, so that its end is found as well
    while at is not None and at < extent.end:
        data = bytes(extent.read(at, _WINDOW_BYTES))
        for position in _magic_positions(data):
            if at + position - AT_MAGIC >= start:
                yield at + position - AT_MAGIC
        if len(data) < _WINDOW_BYTES:  # the end, or the file was truncated meanwhile
            return
        at = extent.next_data(at + len(data) - len(_MAGICS[0]) + 1)


def _magic_positions(data: bytes) -> list[int]:
    found: list[int] = []
    if data == bytes(len(data)):  # the unused rest of a segment: faster than a search
        return found
    for magic in _MAGICS:
        position = data.find(magic)
        while position >= 0:
            found.append(position)
            position = data.find(magic, position + 1)
    return sorted(found)


def _is_whole(extent: Extent, offset: int, accepts: Accepts, *, sealed: bool) -> bool:
    head = extent.read(offset, BLANK.size)
    if len(head) < BLANK.size:
        return False
    size, magic = BLANK.unpack(head)
    if not 0 < size <= extent.end - offset:
        return False
    if magic == MAGIC_BLANK:
        return bool(size == extent.end - offset)
    record = extent.read(offset, size)
    try:
        checked_frame(record, 0, len(record), offset, sealed=sealed)
    except CorruptRecord:
        return False
    return accepts(record, offset)
