"""RocketMQ's offset message id: the store host and the physical offset, in upper-case hex.

32 digits with an IPv4 host, 56 with an IPv6 one: address, port i32, offset i64, big-endian.
Source: ``MessageDecoder.createMessageId``.
"""

from __future__ import annotations

from struct import Struct

import attrs

from lakelog_format.arguments import WrongValue
from lakelog_format.fields.hosts import decode_host, encode_host

_OFFSET = Struct(">q")
_ID_LENGTHS = (32, 56)


@attrs.frozen
class MessageId:
    """The parts of an offset message id: ``address:port``, and an offset of the log in bytes."""

    store_host: str
    physical_offset: int


def format_message_id(store_host: str, physical_offset: int) -> str:
    """The message id of the record at ``physical_offset``.

    Raises ``ValueError`` if ``store_host`` is not ``address:port``.

    >>> format_message_id("127.0.0.1:10911", 185)
    '7F00000100002A9F00000000000000B9'
    """
    return (encode_host(store_host) + _OFFSET.pack(physical_offset)).hex().upper()


def parse_message_id(message_id: str) -> MessageId:
    """The parts of ``message_id``.

    Raises ``ValueError`` if it is not 32 or 56 hexadecimal digits.

    >>> parse_message_id("7F00000100002A9F00000000000000B9").physical_offset
    185
    """
    try:
        data = bytes.fromhex(message_id) if len(message_id) in _ID_LENGTHS else b""
    except ValueError:
        data = b""
    if not data:
        raise WrongValue(f"{message_id!r} is not a message id: 32 or 56 hexadecimal digits")
    return MessageId(decode_host(data[:-8]), _OFFSET.unpack(data[-8:])[0])
