"""Hosts in records: address bytes and a 32-bit port, written as ``address:port``.

An IPv6 address is written in brackets: ``[2001:db8::1]:10911``.
"""

from __future__ import annotations

import socket
from functools import lru_cache
from struct import Struct

from lakelog_format.fields.layout import HOST_V4_BYTES, HOST_V6_BYTES

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
    return _address_bytes(host, address) + _PORT.pack(int(port))


def _address_bytes(host: str, address: str) -> bytes:
    v6 = address.startswith("[") and address.endswith("]")
    try:
        return socket.inet_pton(
            socket.AF_INET6 if v6 else socket.AF_INET, address[1:-1] if v6 else address
        )
    except OSError:
        raise ValueError(
            f"{host!r} has no numeric address; give it like 127.0.0.1:10911 or [::1]:80"
        ) from None


@lru_cache(maxsize=4096)
def decode_host(data: bytes) -> str:
    """The host encoded in 8 or 20 bytes of a record."""
    address, (port,) = data[:-4], _PORT.unpack(data[-4:])
    if len(address) == _V4_ADDRESS_BYTES:
        return f"{socket.inet_ntop(socket.AF_INET, address)}:{port}"
    return f"[{socket.inet_ntop(socket.AF_INET6, address)}]:{port}"


def host_bytes(is_v6: bool) -> int:
    """Length of a host in a record, in bytes."""
    return HOST_V6_BYTES if is_v6 else HOST_V4_BYTES
