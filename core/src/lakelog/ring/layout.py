"""Where the parts of a ring and of its entries stand; all words are 8 bytes, aligned and native."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import IntEnum, unique
from struct import Struct
from typing import Final, NamedTuple

from lakelog.status import PutStatus

MAGIC: Final = 0x6C6B_6C72_6E67_0001
"""The bytes ``lklrng`` and the version, as a number."""

HEADER_BYTES: Final = 4096
# Words of the header, in groups of one cache line by who stores them.
AT_MAGIC: Final = 0
AT_CAPACITY: Final = 1
AT_TAIL: Final = 8
AT_FREED: Final = 9
AT_PRODUCER_SLEEPS: Final = 10
AT_TAKEN: Final = 16
AT_ANSWERED: Final = 17
AT_OWNER_SLEEPS: Final = 18

ALIGNMENT: Final = 128
"""Entries start and end at multiples of this."""

ENTRY: Final = Struct("=9Q")
"""What a producer says of an entry: ``total, kind, sequence, flags, count, record bytes, topics,
bytes of their table, intents``."""
ENTRY_BYTES: Final = 128
# Words of an entry that the owner stores, from the entry's start.
AT_POSITION: Final = 9
AT_STAMP: Final = 10
AT_STATE: Final = 11
AT_STATUS: Final = 12
AT_ERROR_BYTES: Final = 13
AT_ACCEPTED: Final = 14

WAIT: Final = 1
SEALED: Final = 2

INTENT: Final = Struct("=qq")
"""A position, and the ms at which records went there."""
MOST_INTENTS: Final = 64
PLACE: Final = Struct("=4q")
"""What became of one record: queue offset, physical offset, size, store time."""
ERROR_BYTES: Final = 240
_TOPIC_LENGTH: Final = Struct("=H")
_NATIVE: Final = sys.byteorder


@unique
class Kind(IntEnum):
    """What an entry is."""

    RECORDS = 1
    RETRY = 2
    SKIP = 3


@unique
class State(IntEnum):
    """What became of an entry."""

    OPEN = 0
    ANSWERED = 1
    REFUSED = 2
    FAILED = 3


STATUSES: Final = tuple(PutStatus)
"""By the number that an entry has for each."""
NUMBER_OF: Final = {status: number for number, status in enumerate(STATUSES)}


class Shape(NamedTuple):
    """Where the parts of an entry stand, in bytes from its start."""

    sizes_at: int
    index_at: int
    topics_at: int
    intents_at: int
    places_at: int
    error_at: int
    total: int


def shape_of(count: int, record_bytes: int, topics: int, table_bytes: int, intents: int) -> Shape:
    """The shape of an entry with these parts."""
    sizes_at = ENTRY_BYTES + (record_bytes + 7 & -8)
    column = 4 * count + 7 & -8
    index_at = sizes_at + column
    topics_at = index_at + (column if topics > 1 else 0)
    intents_at = topics_at + (table_bytes + 7 & -8)
    places_at = intents_at + INTENT.size * intents
    error_at = places_at + PLACE.size * count
    total = error_at + ERROR_BYTES + ALIGNMENT - 1 & -ALIGNMENT
    return Shape(sizes_at, index_at, topics_at, intents_at, places_at, error_at, total)


def largest_entry(capacity: int) -> int:
    """The longest entry of a ring: one that fits wherever the end of the ring comes."""
    return (capacity // 2) & -ALIGNMENT


def encode_topics(topics: Sequence[str]) -> bytes:
    """The table of topics: length in two bytes, then the topic, repeated."""
    pieces = [topic.encode() for topic in topics]
    return b"".join(_TOPIC_LENGTH.pack(len(piece)) + piece for piece in pieces)


def decode_topics(table: bytes, count: int) -> list[str]:
    """The topics of a table; raises ``ValueError`` where it has not just ``count``."""
    topics: list[str] = []
    at = 0
    while at < len(table) and len(topics) < count:
        end = at + 2 + int.from_bytes(table[at : at + 2], _NATIVE)
        topics.append(table[at + 2 : end].decode())
        at = end
    if at != len(table) or len(topics) != count:
        raise ValueError(f"a table of {len(table)} bytes does not have {count} topics")
    return topics
