"""Messages that no record can hold are refused, with RocketMQ's status, alone and in a batch."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from core.tests.codec.support import an_encoder, placed, record_of
from lakelog.codec import decode
from lakelog.codec.limits import Limits
from lakelog.errors import IllegalMessage
from lakelog.message import Message
from lakelog.status import PutStatus

_TOPICS: list[Any] = [
    "", "t" * 256, "ä" * 128, "a\0b", "../x", "/", "..", ".", "a\nb", "\ud800", 5, None, b"t", [],
]  # fmt: skip  # a table of wrong topics
_FIELDS: list[dict[str, Any]] = [
    {"body": "text"}, {"body": None}, {"body": 5}, {"body": memoryview(b"abcd")[::2]},
    {"queue_id": -1}, {"queue_id": 2**31}, {"queue_id": "1"}, {"queue_id": 1.5},
    {"flag": 2**31}, {"flag": -(2**31) - 1}, {"flag": "1"}, {"flag": 0.5}, {"flag": None},
    {"sys_flag": 2**31}, {"sys_flag": "x"}, {"sys_flag": 0.5},
    {"reconsume_times": 2**31}, {"prepared_transaction_offset": 2**63},
    {"born_timestamp_ms": 2**63}, {"born_timestamp_ms": 1.5}, {"born_timestamp_ms": "now"},
    {"born_host": "localhost:80"}, {"born_host": "127.0.0.1"}, {"born_host": "127.0.0.1:65536"},
    {"store_host": "::1:80"}, {"store_host": "[::1]"}, {"store_host": 5}, {"store_host": "a\0:1"},
    {"store_host": "127.0.0.1:²"},
    {"tags": "a\x01b"}, {"tags": "a\x02b"}, {"tags": 5}, {"tags": "\ud800"},
    {"keys": "a\x02b"}, {"keys": 5}, {"keys": ["a", 5]}, {"keys": ["a\x01"]},
    {"properties": {"a": 5}}, {"properties": {"a\x01": "b"}}, {"properties": {"a": "\ud800"}},
    {"properties": "text"}, {"properties": 5}, {"properties": b"A\x01b\x02", "tags": "t"},
]  # fmt: skip  # a table, a field a group


def _status(message: Any, **encoder: Any) -> PutStatus:
    with pytest.raises(IllegalMessage) as refusal:
        an_encoder(**encoder).encode_one(message)
    batch = [Message("t", b"x", queue_id=0) for _ in range(60)]
    batch[41] = message
    with pytest.raises(IllegalMessage, match="message 41 of the batch") as in_batch:
        an_encoder(**encoder).encode(batch)
    assert in_batch.value.status is refusal.value.status
    return refusal.value.status


@pytest.mark.parametrize("fields", [*_FIELDS, *({"topic": topic} for topic in _TOPICS)])
def test_fields(fields: dict[str, Any]) -> None:
    wrong = attrs.evolve(Message("t", b"x"), **fields)
    assert _status(wrong) is PutStatus.MESSAGE_ILLEGAL
    with pytest.raises(IllegalMessage, match="message 0 of the batch"):
        an_encoder().encode([wrong] * 60)


@pytest.mark.parametrize("other", [None, "message", {"topic": "t"}])
def test_what_is_no_message(other: Any) -> None:
    assert _status(other) is PutStatus.MESSAGE_ILLEGAL


def test_body_size() -> None:
    limits = Limits.of(1000, 1 << 20)
    assert _status(Message("t", bytes(1001)), limits=limits) is PutStatus.MESSAGE_SIZE_EXCEEDED
    placed(an_encoder(limits=limits).encode_one(Message("t", bytes(1000))))


def test_record_size() -> None:
    fits = 4096 - 8 - 92
    limits = Limits.of(1 << 20, 4096)
    wrong = Message("t", bytes(fits + 1))
    assert _status(wrong, limits=limits) is PutStatus.MESSAGE_SIZE_EXCEEDED
    assert len(placed(an_encoder(limits=limits).encode_one(Message("t", bytes(fits))))) == 4088


@pytest.mark.parametrize("record_crc", [False, True])
def test_properties_size_includes_the_checksum(record_crc: bool) -> None:
    most = 32767 - (20 if record_crc else 0)
    for properties in (b"A\x01" + b"x" * (most - 3) + b"\x02", {"A": "x" * (most - 3)}):
        message = Message("t", b"x", properties=properties)
        decoded = decode(record_of(message, record_crc=record_crc))
        assert len(decoded.properties_bytes) == 32767
    too_many = Message("t", b"x", properties={"A": "x" * (most - 2)})
    assert _status(too_many, record_crc=record_crc) is PutStatus.PROPERTIES_SIZE_EXCEEDED
