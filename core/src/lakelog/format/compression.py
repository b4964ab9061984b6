"""Compressed bodies: the method given by ``sysFlag``, and decompression."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import Enum

from lakelog.errors import LakelogError, raised_by_handler
from lakelog.format.layout import COMPRESSED, COMPRESSION_MASK, COMPRESSION_SHIFT


class NotUnpacked(ValueError):
    """A compressed body that cannot be unpacked."""


class Compression(Enum):
    """RocketMQ's ``CompressionType``; no bits set means zlib, which older clients wrote."""

    UNSET = 0
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def compression(sys_flag: int) -> Compression | None:
    """The compression method of a body; ``None`` if it is not compressed.

    Raises ``ValueError`` for bits that no RocketMQ release defines.
    """
    if not sys_flag & COMPRESSED:
        return None
    return Compression((sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT)


def decompress(body: bytes, sys_flag: int) -> bytes:
    """The decompressed body; an uncompressed one is returned unchanged.

    Raises :class:`NotUnpacked` if decompression fails, and :class:`~lakelog.errors.LakelogError`
    if the library for the method is not installed.
    """
    name = "compressed"
    try:
        way = compression(sys_flag)
        if way is None:
            return body
        name = (Compression.ZLIB if way is Compression.UNSET else way).name
        return _UNPACK[way](body)
    except ImportError as error:
        what = f"{error.name} unpacks bodies that are compressed with {name}"
        raise LakelogError(f"{what}: pip install 'lakelog[compression]'") from error
    except Exception as error:
        if raised_by_handler(error):
            raise
        raise NotUnpacked(f"a body of {len(body)} bytes is no {name} data: {error}") from error


def _lz4(body: bytes) -> bytes:
    import lz4.frame

    return bytes(lz4.frame.decompress(body))


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
