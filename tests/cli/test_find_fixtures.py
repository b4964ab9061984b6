"""The commands that find messages, over stores that the real RocketMQ store wrote."""

from __future__ import annotations

import base64
import json
from itertools import groupby
from typing import Any, Final

import pytest
from typer.testing import Result

from tests.support.commands import invoke
from tests.support.fixtures import StoreFixture, StoreFixtures
from tests.support.rows import Row

NAMES: Final = ("basic", "lmq", "batchcq", "real_broker")


def _lakelog(fixture: StoreFixture, command: str, *args: object) -> Result:
    return invoke(command, fixture.store, *args, "--broker-conf", fixture.folder / "options")


def _rows(fixture: StoreFixture, command: str, *args: object) -> list[dict[str, Any]]:
    done = _lakelog(fixture, command, *args, "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == (0 if rows else 1), done.stderr
    return rows


def _body(row: dict[str, Any]) -> bytes:
    if "body" in row:
        return str(row["body"]).encode()
    return base64.b64decode(row["body_base64"])


@pytest.fixture(params=NAMES)
def fixture(store_fixtures: StoreFixtures, request: pytest.FixtureRequest) -> StoreFixture:
    """Give one store after another."""
    return store_fixtures.get(request.param)


def test_queues_and_topics(fixture: StoreFixture) -> None:
    expected = fixture.expected["queue"]
    ends = {
        (row["cqTopic"], row["cqQueueId"]): row["cqPos"] + row["cqSize"]
        for row in fixture.expected["msg"]
    }
    assert _rows(fixture, "queues") == [
        {
            "topic": row["topic"],
            "queue_id": row["queueId"],
            "kind": row["cqType"],
            "min_offset": row["minOffset"],
            "max_offset": row["maxOffset"],
            "max_physical_offset": ends[row["topic"], row["queueId"]],
        }
        for row in expected
    ]
    assert _rows(fixture, "topics") == [
        {
            "topic": topic,
            "queues": len(rows),
            "messages": sum(row["maxOffset"] - row["minOffset"] for row in rows),
        }
        for topic, rows in ((t, list(g)) for t, g in groupby(expected, lambda r: r["topic"]))
    ]


def _queued(fixture: StoreFixture) -> tuple[Row, list[Row]]:
    """The last queue and its messages, which are a few dozen or hundreds."""
    queue = fixture.expected["queue"][-1]
    place = (queue["topic"], queue["queueId"])
    found = [r for r in fixture.expected["msg"] if (r["cqTopic"], r["cqQueueId"]) == place]
    assert found
    return queue, found


def test_get_and_tail_print_a_whole_queue(fixture: StoreFixture) -> None:
    queue, expected = _queued(fixture)
    place = (queue["topic"], queue["queueId"])
    for rows in (
        _rows(fixture, "get", *place, "--max", 10_000),
        _rows(fixture, "tail", *place, "-n", 10_000),
    ):
        assert [(row["physical_offset"], row["message_id"], _body(row)) for row in rows] == [
            (row["physOffset"], row["msgId"], base64.b64decode(row["body"] or ""))
            for row in expected
        ]


def test_get_begins_at_a_time(fixture: StoreFixture) -> None:
    queue, expected = _queued(fixture)
    middle = expected[len(expected) // 2]["storeTimestamp"]
    first = next(row for row in expected if row["storeTimestamp"] >= middle)
    place = (queue["topic"], queue["queueId"], "--max", 1)
    (row,) = _rows(fixture, "get", *place, "--at", middle)
    assert row["physical_offset"] == first["physOffset"]
    (row,) = _rows(fixture, "get", *place, "--at", "1971-01-01")
    assert row["physical_offset"] == expected[0]["physOffset"]


def test_query_finds_what_the_real_store_found(fixture: StoreFixture) -> None:
    times = {row["physOffset"]: row["storeTimestamp"] for row in fixture.expected["rec"]}
    for expected in fixture.expected["query"][::60]:
        rows = _rows(fixture, "query", expected["topic"], "--key", expected["key"])
        found = [row["physical_offset"] for row in rows]
        assert found == sorted(found, reverse=True)
        assert set(found) <= set(expected["physOffsets"])
        for row in rows:
            keys = [*row["properties"].get("KEYS", "").split(), row["properties"].get("UNIQ_KEY")]
            assert (row["topic"], expected["key"] in keys) == (expected["topic"], True)
            assert row["store_timestamp_ms"] == times[row["physical_offset"]]


def test_query_takes_times(store_fixtures: StoreFixtures) -> None:
    fixture = store_fixtures.get("basic")
    expected = max(fixture.expected["query"], key=lambda row: len(row["physOffsets"]))
    query = ("query", expected["topic"], "--key", expected["key"])
    newest = _rows(fixture, *query, "--max", 1)
    assert _rows(fixture, *query)[:1] == newest
    at = newest[0]["store_timestamp_ms"]
    since = _rows(fixture, *query, "--since", at)
    assert since
    assert {row["store_timestamp_ms"] for row in since} == {at}
    # the index keeps whole seconds: what is left out is at least one away
    assert _rows(fixture, *query, "--until", at - 600_000) == []
    assert _rows(fixture, *query, "--since", "2023-11-14T22:00Z", "--until", "now") == _rows(
        fixture, *query
    )


def test_query_tells_what_there_is_not(store_fixtures: StoreFixtures) -> None:
    fixture = store_fixtures.get("basic")
    done = _lakelog(fixture, "query", "TopicA", "--key", "no\tsuch-key")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.endswith("no message has the key 'no\\tsuch-key' there\n")
    done = _lakelog(fixture, "query", "TopicZ", "--key", "K1")
    assert (done.exit_code, done.stdout) == (2, "")
    done = _lakelog(fixture, "query", "TopicA", "--key", "K", "--since", "now", "--until", "1h ago")
    assert (done.exit_code, done.stdout) == (2, "")


def test_stats(fixture: StoreFixture) -> None:
    done = _lakelog(fixture, "stats", "--json")
    assert done.exit_code == 0, done.stderr
    found, (store,) = json.loads(done.stdout), fixture.expected["store"]
    times = [row["storeTimestamp"] for row in fixture.expected["rec"]]
    assert (found["min_offset"], found["max_offset"]) == (
        store["minPhyOffset"],
        store["maxPhyOffset"],
    )
    assert found["first_store_timestamp_ms"] == times[0]
    assert found["last_store_timestamp_ms"] == times[-1]
    assert found["queues"] == len(fixture.expected["queue"])
    for part in ("commitlog", "consumequeue"):
        files = [each for each in (fixture.store / part).rglob("*") if each.is_file()]
        assert found["files"][part]["files"] == len(files)
        assert found["files"][part]["length_bytes"] == sum(each.stat().st_size for each in files)


def test_groups_of_a_real_broker(store_fixtures: StoreFixtures) -> None:
    rows = _rows(store_fixtures.get("real_broker"), "groups")
    ends = {
        (row["topic"], row["queueId"]): row["maxOffset"]
        for row in store_fixtures.get("real_broker").expected["queue"]
    }
    smoke = [row for row in rows if row["group"] == "smoke_consumer"]
    assert {row["queue_id"]: row["offset"] for row in smoke if row["topic"] == "SmokeTopic"}[
        0
    ] == 500
    for row in smoke:
        end = ends.get((row["topic"], row["queue_id"]))
        assert row["max_offset"] == end
        assert row["lag"] == (None if end is None else end - row["offset"])
