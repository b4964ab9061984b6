"""Offsets and batches of a streaming query, called as Spark 4.1 calls them; without Spark."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import lakelog
from lakelog.errors import LakelogError
from lakelog_lake.errors import OffsetUnavailable, OtherStore
from lakelog_spark.progress import lag
from lakelog_spark.source import LakelogStreamReader
from plugins.lake.tests.stores import SEGMENT, filled, messages, open_small
from plugins.spark.tests.reading import Rows, offsets, options, read, rows_of

COUNT = 240
FOLLOWING = {"trigger": "processing-time"}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return filled(tmp_path / "store", COUNT)


def stream(path: Path, **given: str) -> LakelogStreamReader:
    return LakelogStreamReader(options(path, **given))


def batches(reader: LakelogStreamReader, most: int = 1000) -> list[Rows]:
    """What a query with a processing-time trigger gets until nothing is new."""
    found: list[Rows] = []
    start = reader.initialOffset()
    for _ in range(most):
        end = reader.latestOffset()
        if end == start:
            return found
        found.append(rows_of(reader, reader.partitions(start, end)))
        start = end
    raise AssertionError("it never ends")


def flat(rows: list[Rows]) -> Rows:
    return [row for batch in rows for row in batch]


def test_without_bounds_one_batch_takes_all_from_a_place(store: Path) -> None:
    rows = read(store)
    for start, expected in (
        ("2020-01-01", [rows]),
        (json.dumps({"offset": rows[100]["physical_offset"]}), [rows[100:]]),
        (str(int(time.time() * 1000) + 3_600_000), []),
    ):
        assert [each for each in batches(stream(store, start=start)) if each] == expected


@pytest.mark.parametrize(("count", "most"), [(40, 2_000), (COUNT, 20_000)])
def test_batches_of_bounded_bytes_give_everything_once(
    tmp_path: Path, count: int, most: int
) -> None:
    store = filled(tmp_path / "store", count)
    found = batches(stream(store, **FOLLOWING, max_bytes_per_batch=str(most)))
    assert flat(found) == read(store)
    assert len(found) > 3
    sizes = [sum(row["store_size"] for row in batch) for batch in found]
    assert max(sizes) <= max(most, 2_000)


@pytest.mark.parametrize("most", [1, 50, 239])
def test_batches_of_bounded_rows_give_everything_once(tmp_path: Path, most: int) -> None:
    count = min(COUNT, 10 * most)
    store = filled(tmp_path / "store", count)
    found = batches(stream(store, **FOLLOWING, max_rows_per_batch=str(most)))
    assert flat(found) == read(store)
    assert max(map(len, found)) <= most
    assert len(found) < 2 * count // most + 2


def test_under_available_now_a_bound_never_cuts_off_the_rest(store: Path) -> None:
    """Spark 4.1 asks for the latest offset once, and ends there: three caps must not become one."""
    with lakelog.open(store, mode="read") as opened:
        cap = opened.max_offset // 3
    reader = stream(store, max_bytes_per_batch=str(cap))
    start, end = reader.initialOffset(), reader.latestOffset()
    parts = reader.partitions(start, end)
    assert len(parts) >= 3
    assert rows_of(reader, parts) == read(store)


def test_after_a_restart_a_bounded_query_goes_on_where_it_was(store: Path) -> None:
    given = {**FOLLOWING, "max_bytes_per_batch": "20000"}
    before = stream(store, **given)
    start, end = before.initialOffset(), before.latestOffset()
    first = rows_of(before, before.partitions(start, end))
    again = stream(store, **given)
    assert again.partitions(end, end) == []  # so Spark says where it is
    later = again.latestOffset()
    assert later["offset"] > end["offset"]
    second = rows_of(again, again.partitions(end, later))
    assert first + second == read(store)[: len(first) + len(second)]
    assert second


def test_a_batch_that_was_left_unfinished_is_told(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark 4.1 runs it again, and under AvailableNow ends then: what is behind must be said."""
    before = stream(store, trigger="processing-time", max_bytes_per_batch="20000")
    start, end = before.initialOffset(), before.latestOffset()
    assert before.partitions(start, end)
    assert "unfinished" not in caplog.text
    stream(store).partitions(start, end)
    assert f"from 0 to {end['offset']} unfinished" in caplog.text
    assert "run the query once more" in caplog.text


def test_latest_begins_with_what_comes(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_small(path) as owner:
        owner.put_batch(list(messages(20)))
        reader = stream(path, start="latest", until="readable")
        start = reader.initialOffset()
        assert reader.latestOffset() == start
        new = owner.put_batch(list(messages(7)))
        found = rows_of(reader, reader.partitions(start, reader.latestOffset()))
        assert offsets(found) == [each.physical_offset for each in new]


def test_offsets_of_another_store_are_refused(store: Path, tmp_path: Path) -> None:
    open_small(tmp_path / "other").close()
    theirs = stream(tmp_path / "other").latestOffset()
    with pytest.raises(OtherStore, match="another checkpoint folder"):
        stream(store).partitions(theirs, theirs)


def drop_front(path: Path, segments: int) -> int:
    for number in range(segments):
        (path / "commitlog" / f"{number * SEGMENT:020d}").unlink()
    return segments * SEGMENT


def test_what_is_gone_fails_or_is_skipped(store: Path) -> None:
    rows = read(store)
    start, end = stream(store).initialOffset(), stream(store).latestOffset()
    minimum = drop_front(store, 2)
    with pytest.raises(OffsetUnavailable, match="lost=skip"):
        stream(store).partitions(start, end)
    reader = stream(store, lost="skip")
    left = [row for row in rows if row["physical_offset"] >= minimum]
    assert rows_of(reader, reader.partitions(start, end)) == left
    with pytest.raises(OffsetUnavailable):
        stream(store, start='{"offset": 0}').initialOffset()
    skipping = stream(store, start='{"offset": 0}', lost="skip")
    assert skipping.initialOffset()["offset"] == minimum


def test_an_offset_beyond_the_end_is_refused(store: Path) -> None:
    with pytest.raises(LakelogError, match="was the log cut"):
        stream(store, start='{"offset": 99999999}').initialOffset()


def test_a_log_that_was_cut_goes_back_no_offset(store: Path) -> None:
    reader = stream(store)
    beyond: dict[str, Any] = {**reader.latestOffset()}
    beyond["offset"] += 10_000
    assert reader.partitions(beyond, beyond) == []
    assert reader.latestOffset() == beyond


def test_progress(store: Path) -> None:
    reader = stream(store)
    start, end = reader.initialOffset(), reader.latestOffset()
    behind = lag(store, json.dumps(start))
    assert (behind.bytes, behind.messages) == (end["offset"], COUNT)
    assert 0 <= behind.seconds < 600
    assert lag(store, end) == lag(store, json.dumps(end))
    assert (lag(store, end).bytes, lag(store, end).seconds) == (0, 0.0)
