"""Options choose rows: all of what they choose, and nothing else, however it is found."""

from __future__ import annotations

import os
import shutil
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lakelog
from lakelog import Message
from lakelog.errors import CorruptRecord, SettingsError
from lakelog.format.layout import COMPRESSED, segment_name
from lakelog.format.record_batch import RecordBatch
from lakelog_lake.errors import CorruptLog, DurableEndUnknown, OffsetUnavailable, OtherStore
from lakelog_lake.log.extent import READABLE
from lakelog_lake.log.records import LogSpan, one_batch, steps, store_name, unpacked
from lakelog_lake.log.wanted import NumberSpan
from lakelog_lake.reading.log_ranges import plan
from lakelog_lake.reading.options import FLUSHED, ReadOptions
from plugins.lake.tests.stores import (
    SEGMENT,
    expected_rows,
    filled,
    messages,
    milliseconds,
    mislabelled,
    open_small,
    overwrite,
)
from plugins.spark.tests.reading import Rows, offsets, read, reader, rows_of
from tests.support.fixtures import StoreFixtures

Row = dict[str, Any]
_STORE_TIME = 56
"""Where in a record its store time stands, with an IPv4 address before it."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("selection") / "store", 240)


@pytest.fixture(scope="module")
def rows(store: Path) -> Rows:
    return read(store)


@pytest.mark.parametrize(
    ("given", "wants"),
    [
        ({"topics": "topic-1"}, lambda row: row["topic"] == "topic-1"),
        ({"topics": "topic-1,topic-2"}, lambda row: row["topic"] != "topic-0"),
        ({"topics": "none"}, lambda _: False),
        ({"queues": "0,3"}, lambda row: row["queue_id"] in (0, 3)),
        (
            {"queues": "topic-1/0,topic-2/3"},
            lambda row: (row["topic"], row["queue_id"]) in (("topic-1", 0), ("topic-2", 3)),
        ),
        ({"tags": "tag-1 || tag-3"}, lambda row: row["tags"] in ("tag-1", "tag-3")),
        ({"key": "key-77"}, lambda row: "key-77" in row["keys"]),
        (
            {"key": "all", "topics": "topic-1"},
            lambda row: row["topic"] == "topic-1" and row["keys"],
        ),
        ({"key": f"{33:032X}"}, lambda row: row["unique_key"] == f"{33:032X}"),
        (
            {"start": '{"topic-1": {"2": 10}}', "end": '{"topic-1": {"2": 12}}'},
            lambda row: (
                (row["topic"], row["queue_id"]) != ("topic-1", 2) or 10 <= row["queue_offset"] < 12
            ),
        ),
        ({"start": "2020-01-01"}, lambda _: True),
        ({"end": "2020-01-01"}, lambda _: False),
    ],
)
@pytest.mark.parametrize("most_bytes", ["40k", "1g"])
def test_options(
    given: dict[str, str], wants: Callable[[Row], bool], most_bytes: str, store: Path, rows: Rows
) -> None:
    found = read(store, max_partition_bytes=most_bytes, **given)
    assert found == [row for row in rows if wants(row)]


def test_a_range_of_the_log_need_not_begin_with_a_record(store: Path, rows: Rows) -> None:
    low, end = rows[100]["physical_offset"] + 1, rows[200]["physical_offset"] - 1
    found = read(store, start=f'{{"offset": {low}}}', end=f'{{"offset": {end}}}')
    assert found == rows[101:200]


def test_times(store_fixtures: StoreFixtures) -> None:
    """The ms of a limit may come along: who sets it filters again."""
    path = store_fixtures.get("real_broker").store
    given = {"system_topics": "true", "max_partition_bytes": "64k"}
    rows = read(path, **given)
    middle = rows[len(rows) // 2]["store_timestamp"]
    late = read(path, {"store_timestamp": NumberSpan(milliseconds(middle))}, **given)
    assert late == [row for row in rows if row["store_timestamp"] >= middle]
    early = read(path, {"store_timestamp": NumberSpan(end=milliseconds(middle) + 1)}, **given)
    assert early == [row for row in rows if row["store_timestamp"] <= middle]


def test_a_clock_that_was_set_back_hides_nothing_from_limits(tmp_path: Path) -> None:
    """The last third is an hour older than what is before it, as RocketMQ may write it."""
    path = tmp_path / "store"
    with open_small(path) as made:
        done = made.put_batch([Message("t", bytes(900)) for _ in range(60)])
    for each in done[40:]:
        start = each.physical_offset // SEGMENT * SEGMENT
        with (path / "commitlog" / segment_name(start)).open("r+b") as file:
            place = each.physical_offset - start + _STORE_TIME
            (now,) = struct.unpack(">q", os.pread(file.fileno(), 8, place))
            os.pwrite(file.fileno(), struct.pack(">q", now - 3_600_000), place)
    rows = read(path)
    limit = milliseconds(rows[0]["store_timestamp"]) - 600_000
    assert milliseconds(rows[-1]["store_timestamp"]) < limit
    found = read(path, {"store_timestamp": NumberSpan(end=limit)}, max_partition_bytes="16k")
    assert offsets(found) == [each.physical_offset for each in done[40:]]


def test_system_topics_are_for_those_who_ask(store_fixtures: StoreFixtures) -> None:
    path = store_fixtures.get("real_broker").store
    with_all = {row["topic"] for row in read(path, system_topics="true")}
    system = {each for each in with_all if each.startswith(("RMQ_SYS", "SCHEDULE", "rmq_sys"))}
    assert system
    assert {row["topic"] for row in read(path)} == {
        each for each in with_all - system if not each.startswith("%RETRY%")
    }
    topic = min(system)
    assert {row["topic"] for row in read(path, topics=topic)} == {topic}
    assert read(path, {"topic": frozenset({topic})}) == []


def test_without_bodies_and_under_another_name(store: Path, rows: Rows) -> None:
    found = read(store, include="headers", store_id="broker-a")
    assert found == [
        {name: row[name] for name in row if name != "body"} | {"store": "broker-a"} for row in rows
    ]


def test_starts_that_make_no_sense(store: Path) -> None:
    with pytest.raises(SettingsError, match="streaming"):
        reader(store, start="latest")
    with pytest.raises(OtherStore):
        reader(store, start='{"offset": 0, "store": "other"}')
    with pytest.raises(OffsetUnavailable, match="has 0 to"):
        reader(store, start='{"offset": 99999999}').partitions()


# --- bodies that clients compressed ---


def test_bodies_are_unpacked_unless_that_is_not_wanted(store_fixtures: StoreFixtures) -> None:
    path = store_fixtures.get("basic").store
    stored = [row for row in read(path, decompress="false") if row["sys_flag"] & COMPRESSED]
    unpacked = [row for row in read(path) if row["sys_flag"] & COMPRESSED]
    assert [zlib.decompress(row["body"]) for row in stored] == [row["body"] for row in unpacked]
    assert stored


def test_a_body_that_cannot_be_unpacked(tmp_path: Path) -> None:
    bodies = [b"body %d" % at for at in range(5)]
    places = mislabelled(tmp_path / "store", bodies, 2)
    with pytest.raises(CorruptRecord, match="no ZLIB data"):
        read(tmp_path / "store")
    for how in ("skip", "collect"):
        found = read(tmp_path / "store", corrupt=how)
        assert offsets(found) == places
        assert [row["body"] for row in found] == bodies
        if how == "collect":
            assert [row["error"] is None for row in found] == [True, True, False, True, True]


# --- damage as rows ---


def test_damage_is_collected_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "store"
    filled(path, 100)
    whole = read(path, corrupt="collect")
    assert {row["error"] for row in whole} == {None}
    bad, after = whole[40]["physical_offset"], whole[41]["physical_offset"]
    overwrite(path, bad + 4, b"!")
    found = read(path, corrupt="collect")
    assert found[:40] + found[41:] == whole[:40] + whole[41:]
    damage = found[40]
    assert (damage["physical_offset"], damage["store_size"]) == (bad, after - bad)
    assert f"skipped {bad} to {after}" in damage["error"]
    assert {damage[name] for name in ("topic", "queue_id", "body", "keys")} == {None}


# --- the end of a log ---


def test_whole_records_behind_a_hole_that_a_crash_left_are_read(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_small(path) as made:
        done = made.put_batch([Message("t", bytes([at]) * 900) for at in range(60)])
    (path / "abort").write_text("1")
    hole = done[50].physical_offset
    overwrite(path, hole, bytes(done[51].physical_offset - hole))
    found = read(path, corrupt="skip", until="readable")
    assert offsets(found) == [each.physical_offset for each in done if each != done[50]]


# --- queues that may lack something ---


def few(path: Path) -> lakelog.Store:
    owner = open_small(path)
    every = [Message("few" if at % 50 == 3 else "many", bytes(300)) for at in range(500)]
    owner.put_batch(every)
    assert owner.wait_dispatched()
    return owner


@pytest.mark.parametrize("by_a_broker", [False, True])
def test_records_of_a_topic_before_it_was_deleted_are_read(
    by_a_broker: bool, tmp_path: Path
) -> None:
    """They stand in no queue any more; of a broker, the new queues begin with 0 again."""
    path = tmp_path / "store"

    def put(owner: lakelog.Store, topic: str, count: int) -> None:
        owner.put_batch([Message(topic, bytes(200), queue_id=0) for _ in range(count)])
        assert owner.wait_dispatched()

    with open_small(path) as owner:
        for topic, count in (("many", 60), ("few", 5), ("many", 60)):
            put(owner, topic, count)
        if not by_a_broker:
            owner.delete_topic("few")
    if by_a_broker:
        shutil.rmtree(path / "consumequeue" / "few")
        (path / "config").mkdir(exist_ok=True)
        (path / "config" / "topics.json").write_text("{}")
    with open_small(path) as owner:
        put(owner, "few", 3)
        put(owner, "many", 60)
    expected = [row for row in read(path) if row["topic"] == "few"]
    parts = reader(path, topics="few").partitions()
    assert parts[-1].value.units is not None
    assert parts[0].value.units is None
    assert read(path, topics="few") == expected
    assert read(path, {"topic": frozenset({"few"})}) == expected
    assert len(expected) == 8


def test_beside_an_owner_the_last_part_is_read_without_its_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakelog_lake.log.extent.NOT_YET_QUEUED_BYTES", 2 * SEGMENT)
    with few(tmp_path / "store"):
        made = reader(tmp_path / "store", topics="few", until="readable")
        parts = made.partitions()
        assert [each.value.units is not None for each in parts] == [True, False]
        assert parts[0].value.end == parts[1].value.start
        assert len(rows_of(made, parts)) == 10


def test_after_a_crash_queues_are_not_believed(tmp_path: Path) -> None:
    few(tmp_path / "store").close()
    assert reader(tmp_path / "store", topics="few").partitions()[0].value.units is not None
    (tmp_path / "store" / "abort").write_text("1")
    given = {"topics": "few", "until": "readable"}
    assert reader(tmp_path / "store", **given).partitions()[0].value.units is None
    assert len(read(tmp_path / "store", **given)) == 10


def test_times_far_apart_are_found_without_a_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten minutes pass after the first half."""
    path, clock = tmp_path / "store", time.time
    with open_small(path) as owner:
        owner.put_batch(list(messages(120)))
        monkeypatch.setattr("time.time", lambda: clock() + 600)
        monkeypatch.setattr("time.time_ns", lambda: int((clock() + 600) * 1e9))
        late = owner.put_batch(list(messages(120)))
    monkeypatch.undo()
    rows = read(path)
    if rows[-1]["store_timestamp"] - rows[0]["store_timestamp"] < timedelta(minutes=9):
        pytest.fail("the clock of this test is not the store's")
    start = str(milliseconds(rows[-1]["store_timestamp"]) - 300_000)
    parts = reader(path, start=start, max_partition_bytes="16k").partitions()
    assert parts[0].value.start >= late[0].physical_offset - 4000
    assert read(path, start=start) == rows[120:]
    parts = reader(path, end=start, max_partition_bytes="16k").partitions()
    assert parts[-1].value.end <= late[0].physical_offset + 4000
    assert read(path, end=start) == rows[:120]


def ends(path: Path, until: str | None) -> int:
    with lakelog.open(path, mode="read") as store:
        return plan(store, ReadOptions(path, until=until))[-1].end


def test_what_is_not_durable_is_no_row(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A power cut could take it back, and the table would hold what never was."""
    path = tmp_path / "store"
    with open_small(path, flush="none") as made:
        made.put_batch(list(messages(50)))
        durable = made.flush()
        end = made.put(Message("t", b"x")).end_offset
        assert ends(path, None) == ends(path, FLUSHED) == durable
        assert f"{end - durable} bytes are not durable yet" in caplog.text
        assert ends(path, READABLE) == end
    assert ends(path, None) == ends(path, FLUSHED) == end


def test_where_nobody_knows_what_is_durable(tmp_path: Path, store_fixtures: StoreFixtures) -> None:
    """RocketMQ publishes no positions: beside it, and after its crash, all that can be read."""
    crashed = store_fixtures.get("abnormal")
    assert (crashed.store / "abort").exists()
    assert ends(crashed.store, None) == ends(crashed.store, READABLE) > 0
    with pytest.raises(DurableEndUnknown, match="until=readable"):
        ends(crashed.store, FLUSHED)


@pytest.mark.parametrize("damage", ["zeros", "gone", "cut"])
def test_zeros_or_nothing_inside_of_the_log_is_damage(tmp_path: Path, damage: str) -> None:
    path = filled(tmp_path / "store", 300)
    made = reader(path)
    parts, second = made.partitions(), path / "commitlog" / segment_name(SEGMENT)
    if damage == "zeros":
        overwrite(path, SEGMENT + SEGMENT // 2, bytes(SEGMENT // 2))
    elif damage == "gone":
        second.unlink()
    else:
        os.truncate(second, SEGMENT // 2)
    with pytest.raises(CorruptLog):
        rows_of(made, parts)
    with lakelog.open(path, mode="read") as store:
        whole = expected_rows(store.scan(on_damage=lambda _: None), store_name(path))
    assert rows_of(reader(path, corrupt="skip"), parts) == whole


# --- bodies that an append callback stores otherwise ---

# Executors know the callback by what is installed and by the store's own settings file.
BODIES = [b"%04d " % at * 100 for at in range(300)]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store whose callback is installed, and named in the store's settings file."""
    installed = tmp_path / "site" / "compressing-1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Name: compressing\nVersion: 1.0\n")
    point = "[lakelog]\ncompressing = examples.compress_bodies:plugin\n"
    (installed / "entry_points.txt").write_text(point)
    monkeypatch.syspath_prepend(installed.parent)
    path = tmp_path / "s"
    (path / "lakelog").mkdir(parents=True)
    settings = 'append = "compress"\nflush = "inline"\nsegment_size_bytes = "16KiB"\n'
    (path / "lakelog" / "lakelog.toml").write_text(settings)
    with lakelog.open(path) as store:
        bodies = enumerate(BODIES)
        store.put_batch([Message("t", each, tags=f"t{at % 2}", queue_id=0) for at, each in bodies])
    return path


def test_rows(path: Path) -> None:
    with lakelog.open(path, mode="read") as store:
        assert all(len(body) < 100 for batch in batches(store) for body in batch.bodies)
    for decompress in ("true", "false"):
        for more, expected in (({}, BODIES), ({"tags": "t1"}, BODIES[1::2])):
            found = read(path, decompress=decompress, **more)
            assert [row["body"] for row in found] == expected
            assert not any(row["sys_flag"] & COMPRESSED for row in found)


def test_what_lands(path: Path) -> None:
    with lakelog.open(path, mode="read") as store:
        whole = one_batch(batches(store), LogSpan(0, store.max_offset))
    assert whole is not None
    found = [unpacked(part, ["body"]) for part in steps(whole, np.arange(0, len(whole), 2), 4096)]
    assert not any(errors for _, errors in found)
    bodies = [body for each, _ in found for body in each.column("body").to_pylist()]
    assert bodies == BODIES[::2]


def batches(store: lakelog.Store) -> Iterator[RecordBatch]:
    return (each for each in store.scan_pieces() if isinstance(each, RecordBatch))
