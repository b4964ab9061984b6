"""The layout of an index file: header, slots, entries; all integers big-endian.

Source: RocketMQ 5.3.3 (``IndexFile``, ``IndexHeader``), checked on files that it wrote. Names of
index files are unique local creation times, ``yyyyMMddHHmmssSSS``.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

HEADER: Final = Struct(">qqqqii")
"""``beginTimestamp | endTimestamp | beginPhyOffset | endPhyOffset | hashSlotCount | indexCount``"""
SLOT: Final = Struct(">i")
"""The number of the slot's newest entry, or 0."""
ENTRY: Final = Struct(">iqii")
"""``keyHash | phyOffset | timeDiffSeconds | previousEntry``"""
LARGEST_INT: Final = (1 << 31) - 1
ENTRIES_PER_SLOT: Final = 4
"""RocketMQ's default ratio; a file's length determines the sizes only for this one."""
UNFINISHED: Final = ".tmp"
"""The end of the name of a file that is being created."""
PROGRESS_FILE: Final = "index-seen.json"
"""In ``lakelog/``: the progress through records without keys, see :mod:`.coverage`."""


class IndexShape(NamedTuple):
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


def usual_shape(length: int) -> IndexShape | None:
    """The shape of a file of ``length`` bytes, if it has the usual ratio.

    >>> usual_shape(8440)
    IndexShape(slots=100, entries=400)
    """
    slots, rest = divmod(length - HEADER.size, SLOT.size + ENTRIES_PER_SLOT * ENTRY.size)
    return IndexShape(slots, ENTRIES_PER_SLOT * slots) if slots > 0 and not rest else None


NAME_DIGITS: Final = 17


def is_name(name: str) -> bool:
    """Whether ``name`` has the form of an index file's name."""
    return len(name) == NAME_DIGITS and name.isascii() and name.isdigit()
