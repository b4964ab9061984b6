"""Text of a record that a lost sector took: what a checksum of the body alone cannot see.

A sector that never reached the disk reads as zeros. The record checksum covers all of a record,
but is itself text at the end of one: where the sector that held it is lost, the record looks like
one that never had any. Topic and properties are text without zeros, so that a sector in which some
of them stand, and in which all of the record's bytes are zero, was lost. Sectors are counted from
the start of the log; they are those of the files where segments are a multiple of 512 bytes long.
Text that ends with a zero was never written to its end: whoever copied it was killed on the way.
"""

from __future__ import annotations

from typing import Final

SECTOR_BYTES: Final = 512


def lost_text(record: memoryview, topic_at: int, properties_at: int, offset: int) -> bool:
    """Whether a sector of zeros took a part of the topic or of the properties, or all of their end.

    :param record: all of it; ``topic_at`` and ``properties_at`` are positions in it
    :param offset: where it stands in the log
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
    """Whether all of the record is zero in ``sector``, and some of that is text."""
    start, stop = max(sector.start, 0), min(sector.stop, len(record))
    is_length = start >= properties_at - 2 and stop <= properties_at
    if start >= stop or stop <= topic_at or is_length:
        return False
    return not any(record[start:stop])
