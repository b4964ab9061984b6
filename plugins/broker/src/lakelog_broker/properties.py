"""Encoded property strings, without decoding their values.

The format is ``name 0x01 value 0x02``, repeated, in UTF-8; a client leaves out the last byte.
RocketMQ's broker parses and encodes the properties of each message that it stores, so they stand in
the order of its ``HashMap``. Source: RocketMQ 5.3.3, ``MessageDecoder``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from lakelog_queues.units.javahash import hash_of_utf8

_OF_BROKERS: Final = (
    *(b"REAL_TOPIC", b"REAL_QID", b"CLUSTER", b"__CRC32#"),
    *(b"POP_CK", b"POP_CK_OFFSET", b"1ST_POP_TIME"),
    *(b"TIMER_OUT_MS", b"TIMER_ENQUEUE_MS", b"TIMER_DEQUEUE_MS", b"TIMER_ROLL_TIMES"),
    *(b"TRAN_PREPARED_QUEUE_OFFSET", b"TRANSACTION_CHECK_TIMES"),
    *(b"INNER_MULTI_QUEUE_OFFSET", b"INNER_NUM", b"INNER_BASE"),
)
"""Properties that only a broker sets: with them a client could write into another topic, or end
the transaction of another client."""
_ROWS: Final = 128
"""Of the hash map at first; it doubles beyond three quarters."""
_HAS_OF_BROKERS: Final = re.compile(rb"(?:^|\x02)(?:%b)\x01" % b"|".join(_OF_BROKERS)).search


def property_value(properties: bytes, name: bytes) -> bytes | None:
    r"""The value of a property; ``None`` if it is absent.

    >>> property_value(b"KEYS\x01a\x02TAGS\x01b\x02", b"TAGS")
    b'b'
    """
    head = name + b"\x01"
    if properties.startswith(head):
        start = len(head)
    else:
        at = properties.find(b"\x02" + head)
        if at < 0:
            return None
        start = at + 1 + len(head)
    end = properties.find(b"\x02", start)
    return properties[start:] if end < 0 else properties[start:end]


def stored_properties(properties: bytes) -> bytes:
    r"""The property string as RocketMQ's broker stores it.

    The last value of a repeated name counts; a property without a name or value is left out.

    >>> stored_properties(b"WAIT\x01true\x02TAGS\x01b")
    b'TAGS\x01b\x02WAIT\x01true\x02'
    """
    return _encoded(_entries(properties))


def with_properties(properties: bytes, without: tuple[bytes, ...] = (), **added: str) -> bytes:
    r"""As :func:`stored_properties`, without some properties and with others.

    >>> with_properties(b"A\x011\x02B\x012\x02", (b"A",), B="3")
    b'B\x013\x02'
    """
    entries = _entries(properties)
    for name in without:
        entries.pop(name, None)
    for name, value in added.items():
        entries[name.encode()] = f"{name}\x01{value}".encode()
    return _encoded(entries)


def _entries(properties: bytes) -> dict[bytes, bytes]:
    """Each property by its name."""
    entries = {}
    for each in properties.split(b"\x02"):
        name, _, value = each.partition(b"\x01")
        if name and value:
            entries[name] = each
    return entries


def _encoded(entries: dict[bytes, bytes]) -> bytes:
    return b"".join([entries[name] + b"\x02" for name in _in_order(tuple(entries))])


@lru_cache(maxsize=1024)
def _in_order(names: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Names that were put into a ``HashMap``, as it iterates over them."""
    rows = _ROWS
    while len(names) * 4 > rows * 3:
        rows *= 2

    def row(name: bytes) -> int:
        value = hash_of_utf8(name)
        return (value ^ (value & 0xFFFFFFFF) >> 16) & (rows - 1)

    return tuple(sorted(names, key=row))


def client_properties(properties: bytes) -> bytes:
    r"""What a client sent, without the properties that only a broker may set.

    >>> client_properties(b"REAL_TOPIC\x01orders\x02TAGS\x01b")
    b'TAGS\x01b\x02'
    """
    if _HAS_OF_BROKERS(properties):
        return with_properties(properties, _OF_BROKERS)
    return properties
