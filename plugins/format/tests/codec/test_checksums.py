"""Checksums: the fast CRC-32 equals those of zlib and crcmod; the checksum that ends a record."""

from __future__ import annotations

import zlib

import crcmod.predefined
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog_format.codec import decode, decode_run
from lakelog_format.errors import IllegalMessage
from lakelog_format.fields.checksum import body_crc, crc32, named_crc
from lakelog_format.message import Message, PropertiesLike
from plugins.format.tests.codec.support import crc31, log_of, record_of

pytestmark = pytest.mark.both_ways

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


def test_an_unknown_name() -> None:
    with pytest.raises(ValueError, match="knows no checksum"):
        named_crc("crc-33")


# --- the checksum that ends a record ---


_STALE = b"__CRC32#\x011234567890\x02"


def _seal(record: bytes) -> bytes:
    return b"__CRC32#\x01" + f"{crc31(record[:-20]):010d}"[::-1].encode() + b"\x02"


@pytest.mark.parametrize("properties", [b"", b"A\x01b\x02", b"A\x01b"])
def test_it_is_written_behind_the_other_properties(properties: bytes) -> None:
    record = record_of(Message("t", b"body", properties=properties), record_crc=True)
    assert record[-20:] == _seal(record)
    ended = properties and b"A\x01b\x02"
    assert decode(record).properties_bytes == ended + record[-20:]


@pytest.mark.parametrize("record_crc", [False, True])
@pytest.mark.parametrize(
    "given",
    [_STALE, b"A\x01b\x02" + _STALE, _STALE + b"A\x01b\x02", _STALE[:-1], {"__CRC32#": "x"}],
)
def test_a_stale_one_is_dropped(given: PropertiesLike, record_crc: bool) -> None:
    record = record_of(Message("t", b"x", properties=given), record_crc=record_crc)
    found = decode(record).properties_bytes
    kept = b"A\x01b\x02" if b"A" in given else b""
    assert found == kept + (_seal(record) if record_crc else b"")


def test_a_name_that_would_pass_for_it_is_refused() -> None:
    with pytest.raises(IllegalMessage, match="__CRC32#"):
        record_of(Message("t", b"", properties={"X__CRC32#": "0123456789"}))


def test_sealed_and_plain_records_in_one_run() -> None:
    first = log_of([Message("t", b"1")], record_crc=True)
    second = log_of([Message("t", b"2")], base=len(first))
    third = bytearray(log_of([Message("t", b"3")], record_crc=True, base=len(first + second)))
    run = first + second + third
    assert len(decode_run(run)) == 3
    third[17] ^= 1
    assert len(decode_run(first + second + third)) == 2
