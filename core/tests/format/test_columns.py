"""Columns give the same bytes, results and refusals as the same messages one by one."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tests.format.examples import HOSTS, PROPERTIES, TOPICS
from core.tests.format.support import an_encoder, placed, record_of
from lakelog.errors import IllegalMessage, WrongType
from lakelog.format.encoder import Encoder, Limits
from lakelog.format.queue_offsets import QueueOffsets
from lakelog.format.record import decode
from lakelog.message import BodyColumn, Message, MessageColumns, body_column
from lakelog.results import PutStatus

pytestmark = pytest.mark.both_ways

_COUNT = 50
_WORDS = st.none() | st.sampled_from(["", "a", "äb", "INNER_MULTI_DISPATCH"]) | st.text("ab\x7f")
_KEYS = _WORDS | st.lists(st.sampled_from(["k", "l"]), max_size=3)
_QUEUE_IDS = st.none() | st.integers(0, 2)
_BASE = 4096


@st.composite
def columns(draw: st.DrawFn) -> MessageColumns:
    def per_message(values: st.SearchStrategy[Any], shared: st.SearchStrategy[Any]) -> Any:
        few = draw(st.lists(values, min_size=1, max_size=4))
        return draw(shared | st.just([few[at * 7 % len(few)] for at in range(_COUNT)]))

    bodies = per_message(st.binary(max_size=9), st.nothing())
    if draw(st.booleans()):
        bodies = body_column(pa.array(bodies, pa.large_binary()))
    return MessageColumns(
        draw(TOPICS), bodies, per_message(_QUEUE_IDS, _QUEUE_IDS), per_message(_WORDS, _WORDS),
        per_message(_KEYS, _WORDS), draw(PROPERTIES), sys_flag=draw(st.sampled_from([0, 4, 8, -1])),
        flag=draw(st.integers(-2, 2)), born_timestamp_ms=draw(st.integers(0, 2**40)),
        born_host=draw(HOSTS), store_host=draw(HOSTS), wait_store_ok=draw(st.booleans()),
        reconsume_times=draw(st.integers(0, 9)),
    )  # fmt: skip  # columns by their groups


def _one_by_one(encoder: Encoder, messages: MessageColumns) -> tuple[bytes, list[Any]]:
    offsets, log, results = QueueOffsets(), bytearray(), []
    for message in messages:
        one = encoder.encode_one(message)
        log += placed(one, offsets, _BASE + len(log))
        results += one.results(PutStatus.PUT_OK)
    return bytes(log), results


def _together(encoder: Encoder, messages: Any) -> tuple[bytes, list[Any]]:
    batch = encoder.encode(messages)
    return placed(batch, position=_BASE), list(batch.results(PutStatus.PUT_OK))


@given(columns(), st.booleans(), st.sampled_from([None, 5]))
def test_the_same_bytes_and_results(
    given: MessageColumns, sealed: bool, lights: int | None
) -> None:
    def encoder() -> Encoder:
        return an_encoder(record_crc=sealed, lights=lights)

    expected = _one_by_one(encoder(), given)
    assert _together(encoder(), given) == expected
    assert _together(encoder(), list(given)) == expected


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"queue_ids": [0] * 30 + [-1] + [0] * (_COUNT - 31)}, "message 30 .*queue_id is -1"),
        (
            {"bodies": [b""] * 7 + [None] + [b""] * (_COUNT - 8)},
            "message 7 .*body is None; give bytes",
        ),
        ({"keys": ["k"] * 9 + ["a\x01"] + ["k"] * (_COUNT - 10)}, "message 9 .*0x01"),
        ({"tags": 5}, "message 0"),
        ({"flag": 2**40}, "message 0 .*flag is 1099511627776; give a number"),
        ({"topic": "a/b"}, "message 0 .*directory"),
    ],
)
def test_refusals_name_the_message(wrong: dict[str, Any], words: str) -> None:
    messages = MessageColumns(**{"topic": "t", "bodies": [b""] * _COUNT, **wrong})
    for each in (messages, list(messages)):
        with pytest.raises((IllegalMessage, WrongType), match=words):
            an_encoder().encode(each)


def test_columns_of_different_lengths() -> None:
    for name in ("queue_ids", "tags", "keys"):
        with pytest.raises(ValueError, match=f"{name} has 1 entries for 2 bodies"):
            MessageColumns("t", [b"a", b"b"], **{name: ["1"]})  # type: ignore[arg-type]  # any of the columns by name


# --- bodies in one buffer ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string()])
def test_bodies_of_arrow(kind: Any) -> None:
    bodies = body_column(pa.array(["a", "", "bc", "d"], kind)[1:])
    assert isinstance(bodies, BodyColumn)
    assert body_column(bodies) is bodies
    assert [bytes(each) for each in bodies] == [b"", b"bc", b"d"]
    assert list(bodies[1:]) == [b"bc", b"d"]
    assert bytes(bodies[-1]) == b"d"
    assert len(bodies[3:]) == len(body_column(pa.array([], kind))) == 0


@pytest.mark.parametrize(
    ("array", "words"),
    [(pa.array([b"a", None]), "1 of the bodies are null"), (pa.array([1]), "bodies are int64")],
)
def test_other_arrow_arrays(array: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        body_column(array)


def test_offsets_that_cannot_be() -> None:
    offsets: list[list[Any]] = [[0, 4], [-1, 2], [2, 1], [], [[0, 1]]]
    for each in offsets:
        with pytest.raises(ValueError, match="offsets must"):
            BodyColumn(b"abc", np.array(each))


# --- messages that no record can hold, alone and in a batch ---


_TOPICS: list[Any] = [
    "", "t" * 256, "ä" * 128, "a\0b", "../x", "/", "..", ".", "a\nb", "\ud800",
]  # fmt: skip  # a table of wrong topics
_FIELDS: list[dict[str, Any]] = [
    {"body": memoryview(b"abcd")[::2]}, {"queue_id": -1}, {"queue_id": 2**31},
    {"flag": 2**31}, {"flag": -(2**31) - 1}, {"sys_flag": 2**31},
    {"reconsume_times": 2**31}, {"prepared_transaction_offset": 2**63},
    {"born_timestamp_ms": 2**63},
    {"born_host": "localhost:80"}, {"born_host": "127.0.0.1"}, {"born_host": "127.0.0.1:65536"},
    {"store_host": "::1:80"}, {"store_host": "[::1]"}, {"store_host": "a\0:1"},
    {"store_host": "127.0.0.1:²"},
    {"tags": "a\x01b"}, {"tags": "a\x02b"}, {"tags": "\ud800"},
    {"keys": "a\x02b"}, {"keys": ["a\x01"]},
    {"properties": {"a\x01": "b"}}, {"properties": {"a": "\ud800"}},
    {"properties": b"A\x01b\x02", "tags": "t"},
]  # fmt: skip  # a table, a field a group
_WRONG_TYPES: list[dict[str, Any]] = [
    {"topic": 5}, {"topic": None}, {"topic": b"t"}, {"topic": []},
    {"body": "text"}, {"body": None}, {"body": 5}, {"queue_id": "1"}, {"queue_id": 1.5},
    {"flag": "1"}, {"flag": 0.5}, {"flag": None}, {"sys_flag": "x"}, {"sys_flag": 0.5},
    {"reconsume_times": "x"}, {"prepared_transaction_offset": "x"},
    {"born_timestamp_ms": 1.5}, {"born_timestamp_ms": "now"},
    {"born_host": b"x"}, {"born_host": ["x"]}, {"store_host": 5},
    {"tags": 5}, {"keys": 5}, {"keys": ["a", 5]},
    {"properties": {"a": 5}}, {"properties": "text"}, {"properties": 5}, {"properties": [5]},
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


@pytest.mark.parametrize("fields", _WRONG_TYPES)
def test_fields_of_wrong_types(fields: dict[str, Any]) -> None:
    (name,) = fields
    wrong, named = attrs.evolve(Message("t", b"x"), **fields), f"(^|: )({name}|property 'a') is "
    with pytest.raises(WrongType, match=named):
        an_encoder().encode_one(wrong)
    with pytest.raises(WrongType, match=rf"message 41 of the batch: ({name}|property 'a') is "):
        an_encoder().encode([*[Message("t", b"x", queue_id=0)] * 41, wrong])


def test_what_is_no_message() -> None:
    for other in (None, "message", {"topic": "t"}):
        with pytest.raises(WrongType, match=r"message is .*; give a lakelog\.Message"):
            _status(other)


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
