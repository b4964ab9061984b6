"""Finds the next whole record behind damage, by its magic number and by every check there is."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from lakelog.codec.decode import decode_frame
from lakelog.codec.frame import read_frame, verify_frame
from lakelog.errors import CorruptRecord
from lakelog.layout import AT_MAGIC, BLANK, MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from lakelog.source import Extent

_WINDOW_BYTES: Final = 1 << 20
_MAGICS: Final = [Struct(">I").pack(magic) for magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK)]


def find_record(extent: Extent, damaged: int, not_before_ms: int) -> int | None:
    """Where the next whole record, or the blank, of the segment starts behind ``damaged``.

    :param not_before_ms: a record that was stored earlier is left over from a log that was cut
    """
    for offset in _candidates(extent, damaged + 1):
        if _is_whole(extent, offset, not_before_ms):
            return offset
    return None


def _candidates(extent: Extent, start: int) -> Iterator[int]:
    """Where something may start, because its magic number is there."""
    at = extent.next_data(start)
    while at is not None and at < extent.end:
        data = bytes(extent.read(at, _WINDOW_BYTES))
        for position in _magic_positions(data):
            if at + position - AT_MAGIC >= start:
                yield at + position - AT_MAGIC
        if at + len(data) >= extent.end or not data:
            return
        at = extent.next_data(at + len(data) - len(_MAGICS[0]) + 1)


def _magic_positions(data: bytes) -> list[int]:
    found: list[int] = []
    if data == bytes(len(data)):  # what is left of a segment: much faster than to search
        return found
    for magic in _MAGICS:
        position = data.find(magic)
        while position >= 0:
            found.append(position)
            position = data.find(magic, position + 1)
    return sorted(found)


def _is_whole(extent: Extent, offset: int, not_before_ms: int) -> bool:
    head = extent.read(offset, BLANK.size)
    if len(head) < BLANK.size:
        return False
    size, magic = BLANK.unpack(head)
    if not 0 < size <= extent.end - offset:
        return False
    if magic == MAGIC_BLANK:
        return bool(size == extent.end - offset)
    return _is_record(extent.read(offset, size), offset, not_before_ms)


def _is_record(data: memoryview, offset: int, not_before_ms: int) -> bool:
    try:
        frame = read_frame(data, 0, len(data), offset)
        verify_frame(data, frame, offset)
        return decode_frame(data, frame).store_timestamp_ms >= not_before_ms
    except CorruptRecord:
        return False
