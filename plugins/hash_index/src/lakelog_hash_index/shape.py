"""The layout of an index file: header, slots, entries; all integers big-endian.

Source: RocketMQ 5.3.3 (``IndexFile``, ``IndexHeader``), checked on files that it wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
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
