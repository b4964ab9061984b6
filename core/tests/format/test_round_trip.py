"""Decoding returns what was encoded, in every path of both, compressed or not; checksums."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable
from functools import partial

import crcmod.predefined
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from core.tests.format.examples import BASES, MESSAGES
from core.tests.format.support import HOST, STORED_MS, an_encoder, crc31, log_of, placed, record_of
from lakelog.errors import IllegalMessage
from lakelog.format.checksum import body_crc, crc32, named_crc
from lakelog.format.compression import Compression, compression, decompress
from lakelog.format.properties import join_keys
from lakelog.format.record import decode
from lakelog.format.record_batch import decode_run
from lakelog.message import Message, PropertiesLike, StoredMessage
from lakelog.results import PutResult, PutStatus
from lakelog_testing import interrupted

pytestmark = pytest.mark.both_ways

_AS_GIVEN = (
    "topic",
    "body",
    "flag",
    "reconsume_times",
    "prepared_transaction_offset",
    "born_timestamp_ms",
)


def _expected_properties(message: Message) -> dict[str, str]:
    named = {} if message.tags is None else {"TAGS": message.tags}
    if message.keys is not None:
        named["KEYS"] = join_keys(message.keys)
    assert not isinstance(message.properties, bytes)
    return named | dict(message.properties or {})


def _assert_same(stored: StoredMessage, given: Message) -> None:
    for name in _AS_GIVEN:
        assert getattr(stored, name) == getattr(given, name), name
    assert stored.properties == _expected_properties(given)
    assert stored.sys_flag & ~0x30 == given.sys_flag & ~0x30
    assert stored.born_host == (given.born_host or HOST)
    assert stored.store_host == (given.store_host or HOST)
    assert stored.store_timestamp_ms == STORED_MS
    assert stored.body_crc == crc31(bytes(given.body))


@given(MESSAGES, BASES)
def test_one_message(message: Message, base: int) -> None:
    one = an_encoder().encode_one(message)
    record = placed(one, position=base)
    stored = decode(record, offset=base)
    _assert_same(stored, message)
    assert stored.queue_id == (message.queue_id or 0)
    assert one.result(PutStatus.PUT_OK) == _result(stored)


def _result(stored: StoredMessage) -> PutResult:
    return PutResult(
        PutStatus.PUT_OK,
        stored.topic,
        stored.queue_id,
        stored.queue_offset,
        stored.physical_offset,
        stored.size,
        stored.store_timestamp_ms,
        stored.store_host,
    )


@given(st.lists(MESSAGES, min_size=1, max_size=8), BASES)
def test_columns_say_what_messages_say(messages: list[Message], base: int) -> None:
    run = decode_run(placed(an_encoder().encode(messages), position=base), base)
    assert len(run) == len(messages)
    stored = [run.message(at) for at in range(len(run))]
    for one, message in zip(stored, messages, strict=True):
        _assert_same(one, message)
    for columns, name in (
        ("sizes", "size"), ("magics", "magic"), ("body_crcs", "body_crc"),
        ("queue_ids", "queue_id"), ("flags", "flag"), ("queue_offsets", "queue_offset"),
        ("physical_offsets", "physical_offset"), ("sys_flags", "sys_flag"),
        ("born_timestamps_ms", "born_timestamp_ms"), ("reconsume_times", "reconsume_times"),
        ("store_timestamps_ms", "store_timestamp_ms"), ("topics", "topic"),
        ("prepared_transaction_offsets", "prepared_transaction_offset"), ("bodies", "body"),
        ("property_strings", "properties_bytes"), ("properties", "properties"), ("tags", "tags"),
    ):  # fmt: skip  # a table of names
        assert list(getattr(run, columns)) == [getattr(one, name) for one in stored], columns
    assert run.hosts() == [(one.born_host, one.store_host) for one in stored]
    assert run.end_offset == stored[-1].physical_offset + stored[-1].size


# --- compressed bodies are stored as they are, and unpacked on request ---


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
    name = "ZLIB" if way is Compression.UNSET else way.name  # the meaning of no bits
    with pytest.raises(ValueError, match=f"no {name} data"):
        decompress(wrong[damage], sys_flag)


@pytest.mark.parametrize(("sys_flag", "way", "pack"), _WAYS)
def test_an_exception_of_a_signal_handler_is_no_wrong_data(
    sys_flag: int, way: Compression, pack: Callable[[bytes], bytes]
) -> None:

    class TooLate(ValueError):
        pass

    def too_late() -> None:
        raise TooLate

    packed = pack(_BODY)
    assert decompress(packed, sys_flag) == _BODY  # the library is imported
    for at in itertools.count():
        try:
            came = interrupted(partial(decompress, packed, sys_flag), at, act=too_late)
        except TooLate:
            continue
        if came.place is None:
            break
    assert at > 2, way


def test_a_body_that_is_not_packed_and_bits_without_a_meaning() -> None:
    assert compression(0x300) is None
    assert decompress(_BODY, 0x300) is _BODY
    with pytest.raises(ValueError, match="4"):
        decompress(_BODY, 0x401)


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
