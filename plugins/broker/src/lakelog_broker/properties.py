"""Edits encoded property strings without decoding their values.

The format is ``name 0x01 value 0x02``, repeated, in UTF-8; a client may leave out the last byte.
RocketMQ's broker parses and encodes the properties of each message that it stores, so they are in
the order of its ``HashMap``. Source: RocketMQ 5.3.3, ``MessageDecoder``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

from lakelog_queues.units.tags import hash_of_utf8

_OF_BROKERS: Final = (
    *(b"REAL_TOPIC", b"REAL_QID", b"CLUSTER", b"__CRC32#"),
    *(b"POP_CK", b"POP_CK_OFFSET", b"1ST_POP_TIME"),
    *(b"TIMER_OUT_MS", b"TIMER_ENQUEUE_MS", b"TIMER_DEQUEUE_MS", b"TIMER_ROLL_TIMES"),
    *(b"TRAN_PREPARED_QUEUE_OFFSET", b"TRANSACTION_CHECK_TIMES"),
    *(b"INNER_MULTI_QUEUE_OFFSET", b"INNER_NUM", b"INNER_BASE"),
)
"""Properties that only a broker may set: with them a client could write into another topic, or
end another client's transaction."""
_IS_SPECIAL: Final = re.compile(
    rb"(?:%b|DELAY|TIMER_.*|TRAN_MSG)" % b"|".join(_OF_BROKERS)
).fullmatch
"""Matches names of properties that only a broker may set, or that make it set a message aside."""
_MOST_ORDERS: Final = 1024
_ROWS: Final = 128
"""Initial table size of the ``HashMap``; it doubles when it is more than three quarters full."""
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
    return b"".join([entries[name] + b"\x02" for name in _in_order(tuple(entries))])


@lru_cache(maxsize=1024)
def _in_order(names: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The names in the iteration order of a ``HashMap``."""
    rows = _ROWS
    while len(names) * 4 > rows * 3:
        rows *= 2

    def row(name: bytes) -> int:
        value = hash_of_utf8(name)
        return (value ^ (value & 0xFFFFFFFF) >> 16) & (rows - 1)

    return tuple(sorted(names, key=row))


class CommonProperties:
    """Computes the stored form of common property strings by one look-up of all their names.

    :param added: property string of the properties to add
    """

    def __init__(self, added: bytes) -> None:
        self._added = [*filter(None, added.split(b"\x02")), b""]
        self._orders: dict[tuple[bytes, ...], Callable[[list[bytes]], Any] | None] = {}

    def stored(self, properties: bytes) -> bytes | None:
        """As :func:`stored_properties`, with the added properties.

        ``None`` if only a broker may set one of the properties, if one makes the broker set the
        message aside, or if one is repeated or lacks a name or a value.
        """
        if properties[-1:] != b"\x02":
            properties += b"\x02"
        parts = properties.split(b"\x02")
        parts.pop()
        if properties.count(b"\x01") != len(parts) or b"\x01\x02" in properties:
            return None
        names = tuple([each.partition(b"\x01")[0] for each in parts])
        if names not in self._orders:
            self._note(names)
        order = self._orders[names]
        return None if order is None else b"\x02".join(order(parts + self._added))

    def _note(self, names: tuple[bytes, ...]) -> None:
        if len(self._orders) >= _MOST_ORDERS:
            self._orders.clear()
        every = (*names, *(each.partition(b"\x01")[0] for each in self._added[:-1]))
        at = {name: place for place, name in enumerate(every)}
        is_common = b"" not in at and len(at) == len(every) and not any(map(_IS_SPECIAL, names))
        order = [at[name] for name in _in_order(every)]
        self._orders[names] = itemgetter(*order, len(every)) if is_common else None


def client_properties(properties: bytes) -> bytes:
    r"""A client's property string, without the properties that only a broker may set.

    >>> client_properties(b"REAL_TOPIC\x01orders\x02TAGS\x01b")
    b'TAGS\x01b\x02'
    """
    is_ours = _HAS_OF_BROKERS(properties)
    return with_properties(properties, _OF_BROKERS) if is_ours else properties
