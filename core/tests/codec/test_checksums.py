"""The fast CRC-32 is that of zlib and of crcmod; other polynomials go by crcmod's names."""

from __future__ import annotations

import zlib

import crcmod.predefined
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.format.checksum import body_crc, crc32, named_crc

_CRCMOD = crcmod.predefined.mkPredefinedCrcFun("crc-32")


@given(st.binary(max_size=3000))
def test_the_fast_path(data: bytes) -> None:
    assert crc32(data) == zlib.crc32(data) == _CRCMOD(data)
    assert crc32(memoryview(bytearray(data))) == zlib.crc32(data)
    assert body_crc(data) == zlib.crc32(data) & 0x7FFFFFFF


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("crc-32", 0xCBF43926),
        ("crc-32c", 0xE3069283),
        ("crc-32-bzip2", 0xFC891918),
        ("crc-16", 0xBB3D),
        ("crc-8", 0xF4),
        ("crc-64-we", 0x62EC59E3F1A4F00A),
    ],
)
def test_named_checksums_give_their_published_check_values(name: str, check: int) -> None:
    assert named_crc(name)(b"123456789") == check


@pytest.mark.parametrize("name", ["", "crc-33", "CRC"])
def test_an_unknown_name(name: str) -> None:
    with pytest.raises(ValueError, match="knows no checksum"):
        named_crc(name)
