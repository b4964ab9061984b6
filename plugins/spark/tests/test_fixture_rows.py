"""Rows of real directories are what RocketMQ itself read from them (``expected.jsonl``)."""

from __future__ import annotations

import ipaddress
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from plugins.lake.tests.stores import milliseconds
from plugins.spark.tests.reading import offsets, read, reader, spans
from tests.support.fixtures import DAMAGED, EXACT, StoreFixture, StoreFixtures

EVERYTHING = {"records": "all", "system_topics": "true", "decompress": "false"}
SERVED_DAMAGED = 22182
"""RocketMQ gives out a record with a damaged body here."""
SMALL = 40 << 10


def host(text: str) -> str:
    address, _, port = text.partition("|")
    short = ipaddress.ip_address(address)
    return f"[{short}]:{port}" if short.version == 6 else f"{short}:{port}"


def of_record(row: dict[str, Any]) -> dict[str, Any]:
    """What the dump says of every record."""
    return {
        "topic": row["topic"],
        "queue_id": row["queueId"],
        "queue_offset": row["queueOffset"],
        "physical_offset": row["physOffset"],
        "store_size": row["storeSize"],
        "sys_flag": row["sysFlag"],
        "flag": row["flag"],
        "body_crc": row["bodyCRC"],
        "born_timestamp": row["bornTimestamp"],
        "born_host": host(row["bornHost"]),
        "store_timestamp": row["storeTimestamp"],
        "store_host": host(row["storeHost"]),
        "reconsume_times": row["reconsumeTimes"],
        "prepared_transaction_offset": row["preparedTransactionOffset"],
    }


def of_message(row: dict[str, Any]) -> dict[str, Any]:
    """What it says of those in a queue, besides."""
    return {
        "message_id": row["msgId"],
        "tags": row["tags"],
        "keys": [each for each in (row["keys"] or "").split(" ") if each],
        "properties": row["properties"],
        "body": b64decode(row["body"] or ""),
    }


def expected(fixture: StoreFixture) -> dict[int, dict[str, Any]]:
    rows = {row["physOffset"]: of_record(row) for row in fixture.expected["rec"]}
    for row in fixture.expected["msg"]:
        rows[row["physOffset"]].update(of_message(row))
    return rows


def found(path: Path, **given: str) -> dict[int, dict[str, Any]]:
    rows = read(path, **{**EVERYTHING, **given})
    assert len(set(offsets(rows))) == len(rows)
    for row in rows:
        for name in ("born_timestamp", "store_timestamp"):
            row[name] = milliseconds(row[name])
    return {row["physical_offset"]: row for row in rows}


def same(rows: dict[int, dict[str, Any]], those: dict[int, dict[str, Any]]) -> None:
    for offset, row in those.items():
        mine = {name: rows[offset][name] for name in row}
        if "properties" in mine:  # the real store drops those without a value
            mine["properties"] = {a: b for a, b in mine["properties"].items() if b}
            mine["tags"] = mine["tags"] or None
        assert mine == row, offset


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", EXACT)
def test_every_row_is_what_the_real_store_read(name: str, store_fixtures: StoreFixtures) -> None:
    fixture = store_fixtures.get(name)
    rows, those = found(fixture.store, max_partition_bytes=str(SMALL)), expected(fixture)
    assert sorted(rows) == sorted(those)
    same(rows, those)
    assert found(fixture.store, max_partition_bytes="1g") == rows


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_directories_give_every_whole_record(
    name: str, store_fixtures: StoreFixtures
) -> None:
    fixture = store_fixtures.get(name)
    given = {"corrupt": "skip", "max_partition_bytes": str(SMALL), "until": "readable"}
    rows, those = found(fixture.store, **given), expected(fixture)
    damaged = {SERVED_DAMAGED} if name.endswith("_early") else set()
    assert those.keys() - rows.keys() == damaged & those.keys()
    same(rows, {at: those[at] for at in those.keys() - damaged})


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["basic", "mid", "real_broker", "abnormal", "rebuilt"])
def test_no_run_is_much_longer_than_it_may_be(name: str, store_fixtures: StoreFixtures) -> None:
    path = store_fixtures.get(name).store
    parts = reader(path, **EVERYTHING, max_partition_bytes=str(32 << 10)).partitions()
    whole = spans(parts)
    assert [a[1] for a in whole[:-1]] == [b[0] for b in whole[1:]]
    longest_record = max(row["store_size"] for row in read(path, **EVERYTHING, corrupt="skip"))
    assert max(b - a for a, b in whole) <= (32 << 10) + 2 * longest_record + (8 << 10)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["lmq", "rebuilt", "real_broker", "corrupt_clean_late", "batchcq"])
def test_a_topic_alone_is_the_same_as_its_part_of_all(
    name: str, store_fixtures: StoreFixtures
) -> None:
    path = store_fixtures.get(name).store
    given = {"corrupt": "skip", "until": "readable", "decompress": "false"}
    rows = read(path, system_topics="true", **given)
    for topic in sorted({row["topic"] for row in rows})[:2]:
        for most_bytes in ("16k", "1g"):
            alone = read(path, topics=topic, max_partition_bytes=most_bytes, **given)
            assert alone == [row for row in rows if row["topic"] == topic]
