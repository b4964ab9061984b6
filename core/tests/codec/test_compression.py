"""Compressed bodies are stored as they are, and unpacked on request."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import lz4.frame
import pytest
import zstandard

from core.tests.codec.support import record_of
from lakelog.codec import decode
from lakelog.format.compression import Compression, compression, decompress
from lakelog.message import Message

_BODY = b"a body that repeats, " * 300
_WAYS: list[tuple[int, Compression, Callable[[bytes], bytes]]] = [
    (0x001, Compression.UNSET, zlib.compress),
    (0x101, Compression.LZ4, lz4.frame.compress),
    (0x201, Compression.ZSTD, zstandard.ZstdCompressor().compress),
    (0x301, Compression.ZLIB, zlib.compress),
]


@pytest.mark.parametrize(("sys_flag", "way", "pack"), _WAYS)
def test_a_packed_body(sys_flag: int, way: Compression, pack: Callable[[bytes], bytes]) -> None:
    packed = pack(_BODY)
    stored = decode(record_of(Message("t", packed, sys_flag=sys_flag)))
    assert compression(stored.sys_flag) is way
    assert stored.body == packed
    assert decompress(stored.body, stored.sys_flag) == _BODY


@pytest.mark.parametrize(("sys_flag", "way", "pack"), _WAYS)
@pytest.mark.parametrize("damage", ["other", "empty", "cut"])
def test_wrong_data(
    sys_flag: int, way: Compression, pack: Callable[[bytes], bytes], damage: str
) -> None:
    packed = pack(_BODY)
    wrong = {"other": b"not packed at all", "empty": b"", "cut": packed[: len(packed) // 2]}
    name = "ZLIB" if way is Compression.UNSET else way.name  # what no bits mean
    with pytest.raises(ValueError, match=f"no {name} data"):
        decompress(wrong[damage], sys_flag)


def test_a_body_that_is_not_packed() -> None:
    assert compression(0x300) is None
    assert decompress(_BODY, 0x300) is _BODY


@pytest.mark.parametrize("bits", [4, 5, 6, 7])
def test_bits_without_a_meaning(bits: int) -> None:
    with pytest.raises(ValueError, match=str(bits)):
        decompress(_BODY, 0x1 | bits << 8)
