"""Arrow columns have the values of the messages, one by one."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.tests.format.handmade import record, run
from core.tests.format.support import log_of
from lakelog.arrow import COLUMNS, empty, schema, to_arrow
from lakelog.errors import CorruptRecord
from lakelog.format.record_batch import RecordBatch, decode_run
from lakelog.message import Message, StoredMessage

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_PROPERTIES = st.one_of(
    st.none(),
    st.lists(
        st.tuples(
            st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "a", "", "ä"]),
            st.text("k ä\x01", max_size=5),
        ),
        max_size=6,
    ).map(lambda pairs: "".join(f"{n}\x01{v}\x02" for n, v in pairs).encode()),
    st.binary(max_size=30).filter(
        lambda data: b"__CRC32#" not in data and not data.endswith(b"\x00")
    ),
    st.sampled_from(
        [b"TAGS\x01x\x02\x02KEYS\x01a  b", b"junk\x02TAGS\x01\xff\xc3\x02", b"\x02\x02"]
    ),
)
MESSAGES = st.builds(
    Message,
    topic=st.sampled_from(["orders", "Ä" * 100, "t"]),
    body=st.binary(max_size=20),
    properties=_PROPERTIES,
    queue_id=st.integers(0, 3),
    flag=st.integers(-(2**31), 2**31 - 1),
    sys_flag=st.sampled_from([0, 4, 8, 12]),
    born_timestamp_ms=st.integers(0, 2**41),
    born_host=st.sampled_from(["10.0.0.1:5", "[2001:db8::1]:7"]),
    store_host=st.sampled_from(["10.0.0.2:6", "[::1]:10911"]),
    reconsume_times=st.integers(0, 9),
)


ALIKE = st.integers(1, 14).flatmap(
    lambda width: st.lists(
        st.lists(
            st.sampled_from([b"\x01", b"\x02", b"a", b"A", b"T"]), min_size=width, max_size=width
        ).map(lambda parts: Message("t", b"", properties=b"".join(parts))),
        min_size=1,
        max_size=4,
    )
)
"""Messages whose property strings have one length."""


def row_of(message: StoredMessage) -> dict[str, Any]:
    """The expected row, by the scalar path."""
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "store_size": message.size,
        "message_id": message.message_id,
        "unique_key": message.unique_key,
        "tags": message.tags,
        "keys": message.keys,
        "properties": message.properties,
        "body": message.body,
        "body_crc": message.body_crc,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "transaction_type": message.transaction.name,
        "born_timestamp": _EPOCH + datetime.timedelta(milliseconds=message.born_timestamp_ms),
        "born_host": message.born_host,
        "store_timestamp": _EPOCH + datetime.timedelta(milliseconds=message.store_timestamp_ms),
        "store_host": message.store_host,
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
    }


def rows_of(batch: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = batch.to_pylist()
    for row in rows:
        assert len(dict(row["properties"])) == len(row["properties"]), "a name is there twice"
        row["properties"] = dict(row["properties"])
    return rows


@given(messages=st.lists(MESSAGES, max_size=8) | ALIKE, data=st.data())
@settings(max_examples=100)
def test_rows_equal_messages_in_any_order(messages: list[Message], data: st.DataObject) -> None:
    """Some of them twice, also where all have the same properties."""
    batch = decode_run(log_of(messages))
    order = data.draw(st.lists(st.integers(0, len(batch) - 1)) if len(batch) else st.just([]))
    shuffled = RecordBatch(batch.buffer, 0, batch.starts[np.array(order, np.int64)])
    made = to_arrow(shuffled)
    made.validate(full=True)
    assert made.schema == schema()
    assert rows_of(made) == [row_of(batch.message(at)) for at in order]


def test_many_different_names_of_which_some_repeat() -> None:
    names = [b"".join(b"n%d\x01v%d\x02" % (at * 7 + k, k) for k in (0, 1, 0)) for at in range(999)]
    again = [each + b"n1\x01last\x02n1\x01very last\x02" for each in names]
    batch = decode_run(log_of([Message("t", b"", properties=each, queue_id=0) for each in again]))
    assert rows_of(to_arrow(batch)) == [row_of(batch.message(at)) for at in range(len(batch))]


def test_only_the_columns_asked_for_in_their_order() -> None:
    made = to_arrow(decode_run(log_of([Message("t", b"b", queue_id=2)])), ["body", "queue_id"])
    assert made.to_pylist() == [{"body": b"b", "queue_id": 2}]


def test_nothing_refers_to_the_buffer_afterwards() -> None:
    data = bytearray(log_of([Message("topic", b"body", tags="tag", keys="key")]))
    made = to_arrow(decode_run(data))
    before = made.to_pylist()
    data[:] = bytes(len(data))
    assert made.to_pylist() == before


def test_unknown_and_repeated_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="'bodies' is unknown; there are topic"):
        schema(["bodies"])
    with pytest.raises(ValueError, match="twice"):
        empty(["body", "body"])
    assert empty().num_rows == 0
    assert tuple(empty().schema.names) == COLUMNS


def test_bodies_are_unpacked_on_request() -> None:
    import zlib

    packed = zlib.compress(b"long" * 50)
    log = log_of([Message("t", packed, sys_flag=1), Message("t", b"plain")])
    batch = decode_run(log)
    assert to_arrow(batch, ["body"])["body"].to_pylist() == [packed, b"plain"]
    assert to_arrow(batch, ["body"], True)["body"].to_pylist() == [b"long" * 50, b"plain"]


def test_a_body_that_cannot_be_unpacked_is_named_by_its_place() -> None:
    log = log_of([Message("t", b"first"), Message("t", b"no zlib", sys_flag=1)])
    with pytest.raises(CorruptRecord, match="is no ZLIB data") as caught:
        to_arrow(decode_run(log), ["body"], decompress=True)
    assert caught.value.offset == decode_run(log).starts[1]


def test_times_that_microseconds_cannot_hold_are_cut() -> None:
    late = decode_run(log_of([Message("t", b"", born_timestamp_ms=2**63 - 1)]))
    made = to_arrow(late, ["born_timestamp"])["born_timestamp"].cast("int64")
    assert made.to_pylist() == [(2**63 - 1) // 1000 * 1000]


@pytest.mark.parametrize(
    ("tags", "alike"),
    [(["ab", "cd"], True), (["ab", "a"], False), (["", ""], True), ([None, None], True)],
)
def test_columns_of_messages_that_are_alike(tags: list[str | None], alike: bool) -> None:
    put = [Message("t", b"%d" % at, tags=each, keys=["k", "k2"]) for at, each in enumerate(tags)]
    batch = decode_run(log_of(put))
    lengths = batch.property_lengths
    assert bool((lengths == lengths[0]).all()) == alike
    rows = to_arrow(batch, ["tags", "keys", "unique_key", "body"])
    assert rows["tags"].to_pylist() == [batch.message(at).tags for at in range(2)]
    assert rows["keys"].to_pylist() == [["k", "k2"]] * 2
    assert rows["unique_key"].to_pylist() == [None, None]
    assert rows["body"].to_pylist() == [b"0", b"1"]


def test_of_a_repeated_property_the_last_one_counts() -> None:
    first = record("t", b"TAGS\x01a\x02TAGS\x01b\x02", b"", 0, 0)
    batch = run(first, record("t", b"TAGS\x01c\x02", b"", 1, len(first)))
    assert to_arrow(batch, ["tags"])["tags"].to_pylist() == ["b", "c"]
    assert [batch.message(at).tags for at in range(2)] == ["b", "c"]


def test_text_that_is_no_utf_8_has_replacements() -> None:
    batch = decode_run(log_of([Message("t", b"", properties=b"TAGS\x01\xff\xc3\x02", queue_id=0)]))
    assert rows_of(to_arrow(batch)) == [row_of(batch.message(0))]


def test_ids_of_both_kinds_of_hosts_are_in_the_order_of_the_records() -> None:
    hosts = ["[::1]:10911", "10.0.0.2:6", "[::1]:10912"]
    batch = decode_run(log_of([Message("t", b"x", store_host=each) for each in hosts]))
    found = to_arrow(batch, ["message_id"])["message_id"].to_pylist()
    assert found == [batch.message(at).message_id for at in range(3)]
