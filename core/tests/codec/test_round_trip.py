"""What is encoded comes back, by whichever path it went and is read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.tests.codec.examples import BASES, MESSAGES
from core.tests.codec.support import (
    HOST,
    STORED_MS,
    an_encoder,
    crc31,
    placed,
)
from lakelog.codec import decode, decode_run
from lakelog.format.properties import join_keys
from lakelog.message import Message, StoredMessage
from lakelog.results import PutResult
from lakelog.status import PutStatus

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
