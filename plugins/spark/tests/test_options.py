"""Options are checked before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakelog.errors import SettingsError, UnknownSetting
from lakelog_lake.log.wanted import NumberSpan, RecordCondition
from lakelog_lake.reading.options import ReadOptions


@pytest.mark.parametrize(
    ("given", "more"),
    [
        ({"path": "/a store"}, {}),
        ({"path": "a store"}, {}),
        ({"path": "file:///a%20store"}, {}),
        ({"path": "/a store", "corrupt": "skip"}, {"corrupt": "skip"}),
        ({"path": "/a store", "until": "readable"}, {"until": "readable"}),
    ],
)
def test_a_path_is_enough_and_damage_then_fails(
    given: dict[str, str], more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    assert ReadOptions.of(given) == ReadOptions(Path("/a store"), **more)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "name a store directory"),
        ({"path": ""}, "name a store directory"),
        ({"path": "/s", "corrupt": "ignore"}, "'ignore' is neither fail, skip nor collect"),
        ({"path": "/s", "corrupt": "colect"}, "did you mean 'collect'"),
        ({"path": "/s", "until": "now"}, "'now' is neither flushed nor readable"),
        ({"path": "/s", "records": "al"}, "neither queued nor all; did you mean 'all'"),
        ({"path": "/s", "include": "bodies"}, "did you mean 'body'"),
        ({"path": "/s", "decompress": "yes"}, "'yes' is neither true nor false"),
        ({"path": "/s", "topics": " , "}, "give at least one name"),
        ({"path": "/s", "queues": "orders:0"}, "'orders:0' is not a queue; write 0,1 or TOPIC/0"),
        ({"path": "/s", "start": "earlest"}, "did you mean 'earliest'"),
        ({"path": "/s", "start": "2026-13-01"}, "is not a time; write ms since 1970 or ISO 8601"),
        ({"path": "/s", "end": "earliest"}, "is empty"),
        ({"path": "/s", "start": "{"}, "is not JSON"),
        ({"path": "/s", "start": "{}"}, "it names no queue"),
        ({"path": "/s", "start": '{"orders": 5}'}, "'orders' has 5; write queue offsets"),
        ({"path": "/s", "start": '{"orders": {"0": -1}}'}, "write queue offsets"),
        ({"path": "/s", "start": '{"offset": 5, "stor": "x"}'}, "did you mean 'store'"),
        ({"path": "/s", "max_partition_bytes": "0"}, "is not a size above 0"),
        ({"path": "/s", "max_partition_bytes": "lots"}, "write bytes, or 128m or 1GiB"),
        ({"path": "/s", "max_rows_per_batch": "1k"}, "is not a whole number above 0"),
        ({"path": "/s", "trigger": "once"}, "neither available-now nor processing-time"),
        ({"paths": '["/a", "/b"]'}, "one load reads one store"),
    ],
)
def test_what_cannot_be_done_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        ReadOptions.of(given)


@pytest.mark.parametrize(
    ("name", "said"),
    [("corupt", "did you mean 'corrupt'"), ("xyzzy", "known are path, store_id, topics")],
)
def test_an_unknown_option_is_refused_with_what_is_known(name: str, said: str) -> None:
    with pytest.raises(UnknownSetting, match=said):
        ReadOptions.of({"path": "/s", name: "x"})


def wanted(**given: str) -> RecordCondition:
    return ReadOptions.of({"path": "/s", **given}).wanted


def test_topics_that_are_named_may_be_system_topics() -> None:
    assert not wanted().has_topic("SCHEDULE_TOPIC_XXXX")
    assert wanted(system_topics="true").has_topic("SCHEDULE_TOPIC_XXXX")
    named = wanted(topics="SCHEDULE_TOPIC_XXXX, orders")
    assert named.has_topic("SCHEDULE_TOPIC_XXXX")
    assert not named.has_topic("others")


def test_queues_by_number_or_by_name() -> None:
    assert wanted(queues="0, 2").queue_ids == frozenset({0, 2})
    assert wanted(queues="a/b/3,c/0").queues == frozenset({("a/b", 3), ("c", 0)})


def test_places() -> None:
    given = wanted(start='{"orders": {"0": 5}}', end='{"orders": {"0": 9, "1": 3}}')
    assert given.span_of(("orders", 0)) == NumberSpan(5, 9)
    assert given.span_of(("orders", 1)).end == 3
    assert wanted(start='{"offset": 100}').physical.low == 100
    day = wanted(start="2026-11-21", end="2026-11-21T01:00:00+01:00").times_ms
    assert (day.low, day.end) == (1795219200000, 1795219200000)


def test_sizes() -> None:
    sizes = {"4096": 4096, "16k": 16 << 10, "1 GiB": 1 << 30, "2mb": 2 << 20}
    for text, size in sizes.items():
        found = ReadOptions.of({"path": "/s", "max_partition_bytes": text})
        assert found.max_partition_bytes == size
