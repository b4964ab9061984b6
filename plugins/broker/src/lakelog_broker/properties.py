"""Single properties of an encoded property string, without decoding all of it.

The format is ``name 0x01 value 0x02``, repeated, in UTF-8; a client leaves out the last byte.
"""

from __future__ import annotations

import re
from typing import Final

_OF_BROKERS: Final = (
    *(b"REAL_TOPIC", b"REAL_QID", b"CLUSTER", b"__CRC32#"),
    *(b"POP_CK", b"POP_CK_OFFSET", b"1ST_POP_TIME"),
    *(b"TIMER_OUT_MS", b"TIMER_ENQUEUE_MS", b"TIMER_DEQUEUE_MS", b"TIMER_ROLL_TIMES"),
    *(b"TRAN_PREPARED_QUEUE_OFFSET", b"TRANSACTION_CHECK_TIMES"),
    *(b"INNER_MULTI_QUEUE_OFFSET", b"INNER_NUM", b"INNER_BASE"),
)
"""Properties that only a broker sets: with them a client could write into another topic, or end
the transaction of another client."""
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


def with_properties(properties: bytes, without: tuple[bytes, ...] = (), **added: str) -> bytes:
    r"""The property string without some properties, and with others at its end.

    >>> with_properties(b"A\x011\x02B\x012\x02", (b"A",), B="3")
    b'B\x013\x02'
    """
    removed = {*without, *(name.encode() for name in added)}
    kept = [
        each
        for each in properties.split(b"\x02")
        if each and each.partition(b"\x01")[0] not in removed
    ]
    kept += [f"{name}\x01{value}".encode() for name, value in added.items()]
    return b"".join(each + b"\x02" for each in kept)


def client_properties(properties: bytes) -> bytes:
    r"""What a client sent, without the properties that only a broker may set.

    >>> client_properties(b"REAL_TOPIC\x01orders\x02TAGS\x01b")
    b'TAGS\x01b\x02'
    """
    if _HAS_OF_BROKERS(properties):
        return with_properties(properties, _OF_BROKERS)
    return properties
