"""Columns, rows and options of a write."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import attrs
import pyarrow as pa
import pytest

from lakelog.errors import SettingsError
from lakelog.format.layout import COMMIT, COMPRESSED, INNER_BATCH, MULTI_TAGS, PREPARED
from lakelog.format.properties import decode_properties
from lakelog.hooks.kinds import StoreSettings
from lakelog.message import Message
from lakelog_spark.writing.staging import BadRow
from lakelog_spark.writing.writer import PartitionRows, WriteOptions, check

CORE = StoreSettings(max_message_size_bytes=1 << 20, segment_size_bytes=4 << 20, queues_per_topic=4)
SMALL = attrs.evolve(CORE, segment_size_bytes=16 << 10)
OPTIONS = {"path": "s"}
KINDS = {"keys": pa.list_(pa.string()), "properties": pa.map_(pa.string(), pa.string())}


def batches(
    *rows: dict[str, Any], partition: int = 0, plain: bool = True, core: StoreSettings = CORE
) -> list[list[Message]]:
    columns = {name: column(name, [row.get(name) for row in rows]) for row in rows for name in row}
    table = pa.RecordBatch.from_pydict(columns)
    return list(PartitionRows(core, partition, decompress=plain).batches([table]))


def column(name: str, values: list[Any]) -> pa.Array:
    is_text = any(isinstance(each, str) for each in values)
    return pa.array(values, None if is_text else KINDS.get(name))


def one(**row: Any) -> Message:
    ((message,),) = batches({"topic": "t", "body": b"b", **row})
    return message


def properties(**row: Any) -> dict[str, str]:
    given = one(**row).properties
    assert isinstance(given, bytes)
    return decode_properties(given)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("topic string", "a column is missing: body"),
        ("topic string, body binary, body string", "twice: body"),
        ("topic string, body binary, tag string, x int", r"tag \(did you mean tags\?\), x; leave"),
        ("topic string, body int, flag string", r"body is int and must be binary or string, flag"),
        ("topic string, body void", "no values at all: body"),
        ("topic string, body binary, store string", "store; to copy what was read"),
        ("topic string, body binary, error string", "unknown columns: error"),
    ],
)
def test_other_columns_are_refused(columns: str, said: str) -> None:
    fields = [(name, kind) for name, kind in map(str.split, columns.split(", "))]
    with pytest.raises(SettingsError, match=said):
        check(fields, ignore_position_columns=False)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "name a store directory"),
        ({**OPTIONS, "creat": "true"}, "did you mean 'create'"),
        ({**OPTIONS, "create": "yes"}, "'yes' is neither true nor false"),
        ({**OPTIONS, "job_id": "a/b"}, "cannot name a folder"),
        ({**OPTIONS, "job_id": ".."}, "cannot name a folder"),
        ({"path": "s3://bucket"}, "is not a directory: mount it"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        WriteOptions.of(given)


def test_queues_are_taken_in_turn_from_another_one_in_each_partition() -> None:
    rows = [{"topic": topic, "body": b""} for topic in "aababa"]
    found = [(each.topic, each.queue_id) for batch in batches(*rows, partition=3) for each in batch]
    assert found == [("a", 3), ("a", 0), ("b", 3), ("a", 1), ("b", 0), ("a", 2)]
    assert one(queue_id=7).queue_id == 7
    assert one(queue_id=None).queue_id == 0


def test_batches_are_bounded_and_keep_the_order() -> None:
    rows = [{"topic": "t", "body": f"{number:0700d}".encode()} for number in range(50)]
    found = batches(*rows, core=SMALL)
    assert [each.body for batch in found for each in batch] == [row["body"] for row in rows]
    assert max(map(len, found)) == (SMALL.segment_size_bytes // 4) // (700 + 163)
    large = batches({"topic": "t", "body": bytes(9000)}, {"topic": "t", "body": b""}, core=SMALL)
    assert list(map(len, large)) == [1, 1]


def test_tags_keys_and_properties_are_one_string() -> None:
    assert properties(tags="a", keys=["k", "l"], unique_key="U") == {
        "TAGS": "a",
        "KEYS": "k l",
        "UNIQ_KEY": "U",
    }
    assert properties(keys="k l")["KEYS"] == "k l"
    read = [("KEYS", "k  l "), ("wort", "süß"), ("TAGS", "old")]
    assert properties(properties=read, keys=["k", "l"], tags="new") == {**dict(read), "TAGS": "new"}
    assert properties(properties=read, keys=["m"])["KEYS"] == "m"
    assert one(keys=[], properties=[]).properties is None


def test_times() -> None:
    when = datetime(2026, 11, 21, 10, 0, 0, 123_999, UTC)
    assert one(born_timestamp=when).born_timestamp_ms == int(when.timestamp() * 1000)
    assert one(born_timestamp=when.replace(tzinfo=None)).born_timestamp_ms == 1795255200123
    assert one(born_timestamp=5).born_timestamp_ms == 5
    assert abs((one().born_timestamp_ms or 0) / 1000 - datetime.now(UTC).timestamp()) < 60


def test_flags_say_what_the_body_is() -> None:
    packed = COMPRESSED | 0x300 | MULTI_TAGS | COMMIT
    assert one(sys_flag=packed).sys_flag == MULTI_TAGS | COMMIT
    ((stored,),) = batches({"topic": "t", "body": b"", "sys_flag": packed}, plain=False)
    assert stored.sys_flag == packed


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"topic": None}, "row 1 of partition 5: topic is null"),
        ({"body": None}, "body is null"),
        ({"topic": "a/b"}, "row 1 of partition 5: .*cannot name a directory"),
        ({"body": bytes(2 << 20)}, "row 1 .* the body takes 2097152 bytes; the limit is 1048576"),
        ({"tags": "a\x01b"}, "holds the character 0x01"),
        ({"keys": ["a b"]}, "'a b' is null, empty or has a space"),
        ({"keys": [None]}, "key None"),
        ({"properties": [("a", None)]}, "property 'a' is null"),
        ({"queue_id": -1}, "queue_id is -1"),
        ({"queue_id": 1 << 40}, "row 1 of partition 5"),
        ({"flag": 1 << 31}, "flag 2147483648 does not fit into 32 bits"),
        ({"sys_flag": PREPARED}, "transaction_type IN"),
        ({"sys_flag": INNER_BATCH}, "inner batch"),
        ({"born_host": "nobody"}, "nobody"),
    ],
)
def test_bad_rows_are_told_by_their_numbers(row: dict[str, Any], said: str) -> None:
    good = {"topic": "t", "body": b"b"}
    with pytest.raises(BadRow, match=said):
        batches(good, {**good, **row}, partition=5)
