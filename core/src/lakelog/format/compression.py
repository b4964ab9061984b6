"""Compressed bodies: which way a record's ``sysFlag`` says, and unpacking them on request."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import Enum

from lakelog.format.sysflag import COMPRESSED, COMPRESSION_MASK, COMPRESSION_SHIFT


class Compression(Enum):
    """RocketMQ's ``CompressionType``; no bits set means zlib, as older clients wrote it."""

    UNSET = 0
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def compression(sys_flag: int) -> Compression | None:
    """How a body is compressed; ``None`` if it is not.

    Raises ``ValueError`` for bits that no RocketMQ release gives a meaning.
    """
    if not sys_flag & COMPRESSED:
        return None
    return Compression((sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT)


def decompress(body: bytes, sys_flag: int) -> bytes:
    """The body as its sender gave it; one that is not compressed comes back as it is.

    Raises ``ValueError`` when the bytes do not unpack.
    """
    way = compression(sys_flag)
    if way is None:
        return body
    try:
        return _UNPACK[way](body)
    except Exception as error:
        name = (Compression.ZLIB if way is Compression.UNSET else way).name
        raise ValueError(f"a body of {len(body)} bytes is no {name} data: {error}") from error


def _lz4(body: bytes) -> bytes:
    import lz4.frame

    data: bytes = lz4.frame.decompress(body)
    return data


def _zstd(body: bytes) -> bytes:
    import zstandard

    unpacker = zstandard.ZstdDecompressor().decompressobj()
    data: bytes = unpacker.decompress(body)
    if not unpacker.eof:
        raise ValueError("it is cut short")
    return data


_UNPACK: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.UNSET: zlib.decompress,
    Compression.ZLIB: zlib.decompress,
    Compression.LZ4: _lz4,
    Compression.ZSTD: _zstd,
}
