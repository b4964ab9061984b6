"""Options are checked before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.errors import SettingsError, UnknownSetting
from lakelog_lake.log.wanted import NumberSpan, RecordCondition
from lakelog_lake.reading.options import ReadOptions


def test_a_path_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    for path in ("/a store", "a store", "file:///a%20store"):
        assert ReadOptions.of({"path": path}) == ReadOptions(Path("/a store"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"path": ""}, "name a store directory"),
        ({"corrupt": "colect"}, "did you mean 'collect'"),
        ({"until": "now"}, "'now' is neither flushed nor readable"),
        ({"records": "al"}, "neither queued nor all; did you mean 'all'"),
        ({"include": "bodies"}, "did you mean 'body'"),
        ({"decompress": "yes"}, "'yes' is neither true nor false"),
        ({"topics": " , "}, "give at least one name"),
        ({"queues": "orders:0"}, "'orders:0' is not a queue; write 0,1 or TOPIC/0"),
        ({"start": "earlest"}, "did you mean 'earliest'"),
        ({"start": "2026-13-01"}, "is no time; understood are ms since 1970"),
        ({"end": "earliest"}, "is empty"),
        ({"start": "{}"}, "it names no queue"),
        ({"start": '{"orders": 5}'}, "'orders' has 5; write queue offsets"),
        ({"start": '{"offset": 5, "stor": "x"}'}, "did you mean 'store'"),
        ({"max_partition_bytes": "0"}, "is not a size above 0"),
        ({"max_partition_bytes": "lots"}, "write bytes, or 128m or 1GiB"),
        ({"max_rows_per_batch": "1k"}, "is not a whole number above 0"),
        ({"trigger": "once"}, "neither available-now nor processing-time"),
        ({"paths": '["/a", "/b"]'}, "one load reads one store"),
    ],
)
def test_what_cannot_be_done_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        ReadOptions.of({"path": "/s", **given})


def test_what_spark_adds_to_a_table_is_no_option() -> None:
    """``CREATE TABLE … USING lakelog`` comes with the properties of the table."""
    own = {"owner": "me", "provider": "lakelog", "location": "file:/s", "comment": "a shop"}
    given = {"path": "/s", "topics": "t", "option.topics": "t", "made.by": "me", **own}
    assert ReadOptions.of(given) == ReadOptions.of({"path": "/s", "topics": "t"})
    assert ReadOptions.of({"path": "/s", "owner": "me"}) == ReadOptions.of({"path": "/s"})
    with pytest.raises(UnknownSetting, match="did you mean 'topics'"):
        ReadOptions.of({**given, "topicz": "t", "option.topicz": "t"})


def test_an_unknown_option_is_refused_with_what_is_known() -> None:
    with pytest.raises(UnknownSetting, match="known are path, store_id, topics"):
        ReadOptions.of({"path": "/s", "xyzzy": "x"})


def wanted(**given: str) -> RecordCondition:
    return ReadOptions.of({"path": "/s", **given}).wanted


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
