"""The layout of an index file: header, slots, entries; all integers big-endian.

Source: RocketMQ 5.3.3 (``IndexFile``, ``IndexHeader``), checked on files that it wrote.

Names of index files: unique local creation times, ``yyyyMMddHHmmssSSS``.

Java's ``String.hashCode``: sum of unit * 31^(units behind it), 32 bits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from struct import Struct
from typing import Final

import attrs

HEADER: Final = Struct(">qqqqii")
"""``beginTimestamp | endTimestamp | beginPhyOffset | endPhyOffset | hashSlotCount | indexCount``"""
SLOT: Final = Struct(">i")
"""The number of the slot's newest entry, or 0."""
ENTRY: Final = Struct(">iqii")
"""``keyHash | phyOffset | timeDiffSeconds | previousEntry``"""
LARGEST_INT: Final = (1 << 31) - 1


@attrs.frozen
class IndexShape:
    """The numbers of slots and entries in each file of an index."""

    slots: int
    entries: int

    @property
    def slots_end(self) -> int:
        """First byte behind the slots."""
        return self.slot_at(self.slots)

    @property
    def length(self) -> int:
        """Length of a file in bytes."""
        return self.entry_at(self.entries)

    def slot_at(self, slot: int) -> int:
        """First byte of a slot."""
        return HEADER.size + slot * SLOT.size

    def entry_at(self, number: int) -> int:
        """First byte of an entry; number 0 is never used."""
        return self.slots_end + number * ENTRY.size


@attrs.frozen
class Header:
    """The first 40 bytes of a file.

    :ivar begin_timestamp_ms: store time of the first entry's record
    :ivar end_timestamp_ms: store time of the last entry's record
    :ivar begin_offset: physical offset of the first entry's record
    :ivar end_offset: physical offset of the last entry's record
    :ivar used_slots: slots that are not empty
    :ivar count: the number that the next entry will take, at least 1

    Times and offsets of a file without entries are the ends of the file before it.
    """

    begin_timestamp_ms: int = 0
    end_timestamp_ms: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    used_slots: int = 0
    count: int = 1

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> Header:
        """Unpack from the start of a file; a count of 0 is read as 1, as by RocketMQ."""
        header = cls(*HEADER.unpack_from(data))
        return header if header.count else attrs.evolve(header, count=1)

    def pack(self) -> bytes:
        """Pack to 40 bytes."""
        return HEADER.pack(
            *(self.begin_timestamp_ms, self.end_timestamp_ms),
            *(self.begin_offset, self.end_offset, self.used_slots, self.count),
        )

    @property
    def is_empty(self) -> bool:
        """Whether there are no entries."""
        return self.count <= 1

    def problems(self, shape: IndexShape) -> Iterator[str]:
        """Errors of the header alone."""
        if not 1 <= self.count <= shape.entries:
            yield f"indexCount is {self.count}, expected 1 to {shape.entries}"
        most = max(min(shape.slots, self.count - 1), 0)
        if not 0 <= self.used_slots <= most:
            yield f"hashSlotCount is {self.used_slots}, expected 0 to {most}"
        if not 0 <= self.begin_offset <= self.end_offset:
            yield f"it claims physical offsets from {self.begin_offset} to {self.end_offset}"


_DIGITS: Final = 17
_SECONDS: Final = "%Y%m%d%H%M%S"
_MILLISECOND: Final = timedelta(milliseconds=1)


def is_name(name: str) -> bool:
    """Whether ``name`` has the form of an index file's name."""
    return len(name) == _DIGITS and name.isascii() and name.isdigit()


def name_of(moment: datetime) -> str:
    """The name of a file created at ``moment``.

    >>> name_of(datetime(2026, 11, 20, 23, 23, 52, 5999))
    '20261120232352005'
    """
    return f"{moment:{_SECONDS}}{moment.microsecond // 1000:03d}"


def next_name(moment: datetime, last: str | None) -> str:
    """The name of a new file; names ascend in order of creation, even if the clock goes back.

    :param moment: local time, without a zone
    :param last: the newest existing name
    """
    name = name_of(moment)
    if last is None or name > last:
        return name
    try:
        return name_of(_moment_of(last) + _MILLISECOND)
    except ValueError:  # digits that are not a time
        return str(int(last) + 1).zfill(_DIGITS)


def _moment_of(name: str) -> datetime:
    seconds = datetime.strptime(name[:-3], _SECONDS)  # noqa: DTZ007  # local, as in the name
    return seconds + int(name[-3:]) * _MILLISECOND


_MASK: Final = 0xFFFFFFFF
_SIGN: Final = 0x80000000


def hash_text(text: str) -> int:
    """The hash of one string, as an unsigned 32-bit integer.

    >>> hash_text("TagA")
    2598919
    """
    units = text.encode() if text.isascii() else memoryview(_utf16(text)).cast("H")
    value = 0
    for unit in units:
        value = value * 31 + unit & _MASK
    return value


def hash_key(topic: str, key: str) -> int:
    """The stored hash of a key: the absolute value; 0 for -2**31, which has none."""
    unsigned = hash_text(f"{topic}#{key}")
    return unsigned if unsigned < _SIGN else -unsigned & _MASK & ~_SIGN


def _utf16(text: str) -> bytes:
    """UTF-16 in machine byte order, without a byte order mark."""
    return text.encode(f"utf-16-{sys.byteorder[0]}e", "surrogatepass")
