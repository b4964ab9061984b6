"""Detects record text lost with a disk sector, which the body checksum cannot detect.

A sector that never reached the disk reads as zeros. The record checksum covers the whole record,
but is itself text at its end. If the sector that holds it is lost, the record looks like one
without a record checksum.

Topic and properties are text without zeros. So a sector is lost if it overlaps them and all of the
record's bytes in it are zero. Sectors are counted from the start of the log; they match those of
the files where segments are a multiple of 512 bytes long.

Text that ends with a zero was copied incompletely: the process was killed during the copy.
"""

from __future__ import annotations

from typing import Final

SECTOR_BYTES: Final = 512


def lost_text(record: memoryview, topic_at: int, properties_at: int, offset: int) -> bool:
    """Whether a zero sector covers part of the topic or properties, or their text ends with a zero.

    :param record: the whole record; ``topic_at`` and ``properties_at`` are positions in it
    :param offset: physical offset of the record
    """
    text = bytes(record[topic_at : properties_at - 2]) + bytes(record[properties_at:])
    if 0 not in text:
        return False
    if text.endswith(b"\x00"):
        return True
    first = topic_at - (offset + topic_at) % SECTOR_BYTES
    return any(
        _is_lost(record, topic_at, properties_at, range(start, start + SECTOR_BYTES))
        for start in range(first, len(record), SECTOR_BYTES)
    )


def _is_lost(record: memoryview, topic_at: int, properties_at: int, sector: range) -> bool:
    """Whether all of the record's bytes in ``sector`` are zero, and some of them are text."""
    start, stop = max(sector.start, 0), min(sector.stop, len(record))
    is_length = start >= properties_at - 2 and stop <= properties_at
    if start >= stop or stop <= topic_at or is_length:
        return False
    return not any(record[start:stop])
