"""Edits encoded property strings without decoding their values.

The format is ``name 0x01 value 0x02``, repeated, in UTF-8; a client may leave out the last byte.
RocketMQ's broker parses and encodes the properties of each message that it stores, so they are in
the order of its ``HashMap``. Source: RocketMQ 5.3.3, ``MessageDecoder``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from lakelog_queues.units.tags import hash_of_utf8

_ROWS: Final = 128
"""Initial table size of the ``HashMap``; it doubles when it is more than three quarters full."""


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
    r"""Return a property string as RocketMQ's broker stores it.

    The last value of a repeated name counts; a property without a name or value is left out.

    >>> stored_properties(b"WAIT\x01true\x02TAGS\x01b")
    b'TAGS\x01b\x02WAIT\x01true\x02'
    """
    return _encoded(_entries(properties))


def with_properties(properties: bytes, without: tuple[bytes, ...] = (), **added: str) -> bytes:
    r"""As :func:`stored_properties`; removes the properties ``without`` and sets ``added``.

    >>> with_properties(b"A\x011\x02B\x012\x02", (b"A",), B="3")
    b'B\x013\x02'
    """
    entries = _entries(properties)
    for each in without:
        entries.pop(each, None)
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
    return b"".join([entries[name] + b"\x02" for name in in_order(tuple(entries))])


@lru_cache(maxsize=1024)
def in_order(names: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The names in the iteration order of a ``HashMap``."""
    rows = _ROWS
    while len(names) * 4 > rows * 3:
        rows *= 2

    def row(name: bytes) -> int:
        value = hash_of_utf8(name)
        return (value ^ (value & 0xFFFFFFFF) >> 16) & (rows - 1)

    return tuple(sorted(names, key=row))
