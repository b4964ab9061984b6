"""Edits encoded property strings without decoding their values.

The format is ``name 0x01 value 0x02``, repeated, in UTF-8; a client may leave out the last byte.
RocketMQ's broker parses and encodes the properties of each message that it stores, so they are in
the order of its ``HashMap``. Source: RocketMQ 5.3.3, ``MessageDecoder``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final

from lakelog_queues.units.properties import in_order, with_properties

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
_HAS_OF_BROKERS: Final = re.compile(rb"(?:^|\x02)(?:%b)\x01" % b"|".join(_OF_BROKERS)).search


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
        order = [at[name] for name in in_order(every)]
        self._orders[names] = itemgetter(*order, len(every)) if is_common else None


def client_properties(properties: bytes) -> bytes:
    r"""A client's property string, without the properties that only a broker may set.

    >>> client_properties(b"REAL_TOPIC\x01orders\x02TAGS\x01b")
    b'TAGS\x01b\x02'
    """
    is_ours = _HAS_OF_BROKERS(properties)
    return with_properties(properties, _OF_BROKERS) if is_ours else properties
