"""Batches by compiled code and by plain Python: the same records, results and errors."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.builtin import RocketmqAppendCallback
from lakelog.errors import IllegalMessage, WrongType
from lakelog.format.queue_offsets import QueueOffsets
from lakelog.hooks.kinds import StoreSettings
from lakelog.message import Message, MessageColumns, body_column
from lakelog.results import AppendStatus, PutStatus
from lakelog_native import plugin
from lakelog_native.accelerator import Native
from lakelog_testing import AcceleratorContract

TEXTS = st.one_of(
    st.none(),
    st.sampled_from(["", "a", "a b", "||", "|", " x", "é", "\x01", "\x02", "\x00", "\ud800"]),
    st.text(max_size=8),
)
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([1 << 31, -(1 << 31), (1 << 31) - 1, 1 << 63, (1 << 63) - 1, 0x34]),
    st.sampled_from([None, True, "1", 1.0]),
)
TOPICS = st.one_of(
    st.sampled_from(["t", "u", "é", "t" * 127, "t" * 128, "t" * 255, "t" * 256, "", ".", "a/b"]),
    st.sampled_from([None, 5, "\ud800", "%LMQ%x"]),
)
BODIES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"x" * 600, bytearray(b"ab"), memoryview(b"abc"), "text", None, 7]),
)
PROPERTIES = st.one_of(
    st.none(),
    st.dictionaries(st.sampled_from(["a", "TAGS", "KEYS", "__CRC32#"]), st.text(max_size=4)),
    st.sampled_from([b"", b"a\x01b\x02", b"\x00" * 520, {"INNER_MULTI_DISPATCH": "%LMQ%q"}, 5]),
)
HOSTS = st.sampled_from([None, None, "10.0.0.1:80", "[::1]:80", "nonsense"])
USUAL = st.builds(
    Message,
    topic=st.sampled_from(["t", "u", "t" * 128]),
    body=st.binary(max_size=40),
    tags=st.sampled_from([None, "", "a"]),
    keys=st.sampled_from([None, "", "k1"]),
    queue_id=st.sampled_from([None, 0, 3]),
    sys_flag=st.sampled_from([0, 4, 8]),
    born_timestamp_ms=st.just(5),
    wait_store_ok=st.booleans(),
)
ANY = st.builds(
    Message,
    topic=TOPICS,
    body=BODIES,
    tags=TEXTS,
    keys=st.one_of(TEXTS, st.just(["k1", "k2"])),
    properties=PROPERTIES,
    queue_id=NUMBERS,
    flag=NUMBERS,
    sys_flag=NUMBERS,
    born_timestamp_ms=st.one_of(st.just(5), NUMBERS.filter(lambda value: value is not None)),
    born_host=HOSTS,
    store_host=HOSTS,
    reconsume_times=NUMBERS,
    prepared_transaction_offset=NUMBERS,
    wait_store_ok=st.sampled_from([True, False, 1, "yes"]),
)
CORES = st.builds(
    StoreSettings,
    record_crc=st.booleans(),
    light_queues=st.booleans(),
    store_host=st.sampled_from(["127.0.0.1:10911", "[::1]:1"]),
    max_message_size_bytes=st.sampled_from([500, 4 << 20]),
)


def outcome(
    callback: RocketmqAppendCallback, offsets: QueueOffsets, messages: Any, remaining: int
) -> Any:
    """The observable results of one batch."""
    try:
        batch = callback.encode(messages)
    except IllegalMessage as error:
        return str(error), error.status
    except WrongType as error:
        return str(error)
    status = callback.place(batch, 1000, remaining, offsets, 77)
    if status is not AppendStatus.PUT_OK:
        return status, len(batch.buffer)
    batch.advance(offsets)
    results = batch.results(PutStatus.FLUSH_DISK_TIMEOUT)
    return bytes(batch.buffer), batch.count, bool(batch.wait), list(results), offsets.snapshot()


@settings(max_examples=60)
@given(
    core=CORES,
    batches=st.lists(st.lists(st.one_of(USUAL, USUAL, USUAL, ANY), min_size=1, max_size=5)),
    remaining=st.sampled_from([1 << 20, 700]),
)
def test_both_ways_give_the_same(
    core: StoreSettings, batches: list[list[Message]], remaining: int
) -> None:
    plain, native = RocketmqAppendCallback.of(core), RocketmqAppendCallback.of(core, Native())
    offsets = QueueOffsets(), QueueOffsets()
    for batch in batches:
        expected = outcome(plain, offsets[0], batch, remaining)
        assert outcome(native, offsets[1], batch, remaining) == expected


def test_many_messages_have_results_in_columns() -> None:
    native = RocketmqAppendCallback.of(StoreSettings(), Native())
    plain = RocketmqAppendCallback.of(StoreSettings())
    messages = [
        Message("t", b"%d" % each, tags="a", queue_id=each % 3, born_timestamp_ms=1)
        for each in range(100)
    ]
    expected = outcome(plain, QueueOffsets(), messages, 1 << 20)
    assert outcome(native, QueueOffsets(), messages, 1 << 20) == expected
    batch = native.encode(tuple(messages))
    assert type(batch).__name__ == "Batch"
    batch.place(0, 1 << 20, QueueOffsets(), 5)
    results = batch.results(PutStatus.PUT_OK)
    assert results.sizes.tolist() == [each.size for each in results]  # type: ignore[attr-defined]  # a BatchResult


def test_results_are_refused_before_the_batch_is_placed() -> None:
    batch = RocketmqAppendCallback.of(StoreSettings(), Native()).encode([Message("t", b"")] * 2)
    with pytest.raises(RuntimeError, match="not placed"):
        batch.results(PutStatus.PUT_OK)


class TestNative(AcceleratorContract):
    plugin = plugin
    name = "native"

    def make(self) -> Native:
        return Native()


def bodies_of(bodies: list[bytes], kind: str) -> Any:
    if kind == "arrow":
        return body_column(pa.array(bodies, pa.binary()).slice(1))
    if kind == "views":
        return [memoryview(each) for each in bodies[1:]]
    return tuple(bodies[1:]) if kind == "tuple" else bodies[1:]


@settings(max_examples=50)
@given(
    core=CORES,
    bodies=st.lists(st.binary(max_size=30), min_size=2, max_size=60),
    kind=st.sampled_from(["list", "tuple", "views", "arrow"]),
    topic=TOPICS,
    shared=st.fixed_dictionaries(
        {},
        optional={
            "properties": PROPERTIES,
            "flag": NUMBERS,
            "sys_flag": NUMBERS,
            "born_host": HOSTS,
            "wait_store_ok": st.booleans(),
        },
    ),
    queue_ids=st.sampled_from(["each", None, 2, -1, True]),
    tags=st.sampled_from(["each", None, "a", "a b", "||", 5]),
    keys=st.sampled_from(["each", None, "k", "k l", "several"]),
)
def test_columns_give_the_same(
    core: StoreSettings,
    bodies: list[bytes],
    kind: str,
    topic: Any,
    shared: dict[str, Any],
    queue_ids: Any,
    tags: Any,
    keys: Any,
) -> None:
    count = len(bodies) - 1
    each = {
        "queue_ids": [None if at % 5 == 4 else at % 3 for at in range(count)],
        "tags": ["a" if at % 2 else None for at in range(count)],
        "keys": [f"k{at}" for at in range(count)],
    }
    if keys == "several":
        keys = [["k1", "k2"]] * count
    given_columns = {"queue_ids": queue_ids, "tags": tags, "keys": keys}
    for name, value in given_columns.items():
        if value == "each":
            given_columns[name] = each[name]
    try:
        columns = MessageColumns(
            topic, bodies_of(bodies, kind), born_timestamp_ms=5, **given_columns, **shared
        )
    except (TypeError, ValueError):
        return  # refused before this
    plain, native = RocketmqAppendCallback.of(core), RocketmqAppendCallback.of(core, Native())
    expected = outcome(plain, QueueOffsets(), columns, 1 << 20)
    assert outcome(native, QueueOffsets(), columns, 1 << 20) == expected
