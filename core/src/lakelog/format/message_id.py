"""Hosts in records, and RocketMQ's offset message id, which has the store host.

A host: address bytes and a 32-bit port, written as ``address:port``. An IPv6 address is written in
brackets: ``[2001:db8::1]:10911``.

The id: store host and physical offset in upper-case hex. It has 32 digits with an IPv4 host and 56
with an IPv6 one: address, port i32, offset i64, big-endian. Source:
``MessageDecoder.createMessageId``.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address
from struct import Struct
from typing import NamedTuple

from lakelog.arguments import WrongValue
from lakelog.format.layout import HOST_V4_BYTES, HOST_V6_BYTES

_PORT = Struct(">i")
_V4_ADDRESS_BYTES = 4


@lru_cache(maxsize=4096)
def encode_host(host: str) -> bytes:
    """The bytes of ``host``: 8 for IPv4, 20 for IPv6.

    Raises ``ValueError`` for anything but a numeric address and a port from 0 to 65535.

    >>> encode_host("127.0.0.1:10911").hex()
    '7f00000100002a9f'
    """
    address, colon, port = host.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 0xFFFF:
        raise ValueError(f"{host!r} is not address:port; give it like 127.0.0.1:10911 or [::1]:80")
    is_v6 = address.startswith("[") and address.endswith("]")
    try:
        packed = _packed_v6(address[1:-1]) if is_v6 else IPv4Address(address).packed
    except (OSError, ValueError):
        raise ValueError(
            f"{host!r} has no numeric address; give it like 127.0.0.1:10911 or [::1]:80"
        ) from None
    return packed + _PORT.pack(int(port))


def _packed_v6(address: str) -> bytes:
    import socket  # its enumerations take a fortieth of a first open, and IPv6 is rare

    return socket.inet_pton(socket.AF_INET6, address)


@lru_cache(maxsize=4096)
def decode_host(data: bytes) -> str:
    """The host encoded in 8 or 20 bytes of a record."""
    address, (port,) = data[:-4], _PORT.unpack(data[-4:])
    if len(address) == _V4_ADDRESS_BYTES:
        return f"{IPv4Address(address)}:{port}"
    import socket  # as above

    return f"[{socket.inet_ntop(socket.AF_INET6, address)}]:{port}"


def host_bytes(is_v6: bool) -> int:
    """Length of a host in a record, in bytes."""
    return HOST_V6_BYTES if is_v6 else HOST_V4_BYTES


_OFFSET = Struct(">q")
_ID_LENGTHS = (32, 56)


class MessageId(NamedTuple):
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
