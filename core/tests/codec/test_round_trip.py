"""What is encoded comes back, by whichever path it went and is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tests.codec.examples import BASES, MESSAGES, PLAIN_MESSAGES
from core.tests.codec.support import (
    HOST,
    SEGMENT_BYTES,
    STORED_MS,
    an_encoder,
    crc31,
    placed,
)
from lakelog.codec import decode, decode_run
from lakelog.codec.encoded import EncodedBatch
from lakelog.codec.encoder import Encoder
from lakelog.codec.many import encode_columns
from lakelog.codec.pieces import EncodedPieces
from lakelog.message import Message, StoredMessage
from lakelog.properties import join_keys
from lakelog.queueoffsets import QueueOffsets
from lakelog.results import PutResult
from lakelog.status import AppendStatus, PutStatus

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


def _scalar(messages: Sequence[Message], encoder: Encoder) -> EncodedBatch:
    return EncodedPieces([encoder.encode_one(each) for each in messages])


def _assert_paths_agree(messages: list[Message], record_crc: bool, base: int) -> bool:
    start = {("orders", 0): 5, ("bills", 1): 70}
    one_by_one, at_once = QueueOffsets(start), QueueOffsets(start)
    many = encode_columns(messages, an_encoder(record_crc=record_crc))
    if many is None:
        return False
    pieces = _scalar(messages, an_encoder(record_crc=record_crc))
    assert many.place(base, len(pieces.buffer) + 7, at_once, 1) is AppendStatus.END_OF_FILE
    assert placed(many, at_once, base) == placed(pieces, one_by_one, base)
    assert at_once.snapshot() == one_by_one.snapshot()
    ok = PutStatus.PUT_OK
    assert list(many.results(ok)) == list(pieces.results(ok))
    assert (many.count, many.wait) == (pieces.count, pieces.wait)
    return True


@given(st.lists(PLAIN_MESSAGES, min_size=1, max_size=12), st.booleans(), BASES)
def test_the_vectorised_path_takes_plain_messages(
    messages: list[Message], record_crc: bool, base: int
) -> None:
    assert _assert_paths_agree(messages, record_crc, base)


@given(st.lists(MESSAGES, min_size=1, max_size=5), st.booleans(), BASES)
def test_the_vectorised_path_gives_the_same_bytes_or_nothing(
    messages: list[Message], record_crc: bool, base: int
) -> None:
    _assert_paths_agree(messages, record_crc, base)


@pytest.mark.parametrize("field", [each.name for each in attrs.fields(Message)])
def test_one_message_that_differs_from_many_in_one_field(field: str) -> None:
    other: dict[str, Any] = {
        "topic": "t" * 200, "body": bytearray(b"other"), "tags": None, "keys": ["x", "y"],
        "properties": {"A": "b"}, "queue_id": None, "flag": -1, "sys_flag": 0x8,
        "born_timestamp_ms": 0, "born_host": "1.2.3.4:5", "store_host": "1.2.3.4:6",
        "reconsume_times": 3, "prepared_transaction_offset": 2**40, "wait_store_ok": True,
    }  # fmt: skip  # a table of fields
    plain = Message(
        "orders", b"x", tags="t", keys="k", queue_id=1, born_timestamp_ms=7, wait_store_ok=False
    )
    messages = [plain] * 70
    messages[33] = attrs.evolve(plain, **{field: other[field]})
    assert _assert_paths_agree(messages, record_crc=False, base=9)


def test_a_batch_moves_whole_into_the_next_segment() -> None:
    messages = [Message("t", b"x", queue_id=0)] * 60
    batch, offsets = an_encoder().encode(messages), QueueOffsets()
    fits = len(batch.buffer) + 8
    assert batch.place(0, fits - 1, offsets, STORED_MS) is AppendStatus.END_OF_FILE
    assert batch.place(0, fits, offsets, STORED_MS) is AppendStatus.PUT_OK
    assert offsets.next(("t", 0)) == 0
    assert batch.place(5000, SEGMENT_BYTES, offsets, STORED_MS) is AppendStatus.PUT_OK
    assert decode_run(batch.buffer, 5000).queue_offsets.tolist() == list(range(60))
