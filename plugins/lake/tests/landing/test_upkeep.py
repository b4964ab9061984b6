"""A table stays quick by itself: commits expire snapshots, merge manifests, and lose nothing."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot

from lakelog.errors import SettingsError
from lakelog_lake.landing.targets import TableSpec, targets_for
from lakelog_lake.sinks import iceberg_expiry
from lakelog_lake.sinks.delta import drop_versions
from lakelog_lake.sinks.iceberg import IcebergSink
from lakelog_lake.sinks.iceberg_expiry import GRACE_SECONDS, SnapshotExpiry
from lakelog_lake.sinks.parquet import WHOLE_EVERY, ParquetSink
from lakelog_lake.tables import settings
from lakelog_lake.tables.settings import DEFAULT_HISTORY, HISTORY, MAX_AGE, MIN_KEPT
from lakelog_lake.tasks.task import LandingSource, TaskLimits
from plugins.lake.tests.landing.iceberg_states import roll_back
from plugins.lake.tests.landing.killing import killed_at
from plugins.lake.tests.landing.many_commits import STORE, Day
from plugins.lake.tests.landing.tables import (
    assert_exactly,
    iceberg,
    keys_of,
    land_all,
    land_one,
    make,
    position_in,
    read,
    when,
)
from plugins.lake.tests.stores import filled

TINY = TaskLimits(pass_bytes=2500, task_bytes=2500)
KEPT = 8


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    """Messages for a dozen of passes that are ``TINY``."""
    return filled(tmp_path / "store", 120)


def keeping(path: Path, history: str) -> IcebergSink:
    sink = make("iceberg", path)
    assert isinstance(sink, IcebergSink)
    sink.keep(history)
    return sink


def manifests(path: Path) -> list[Any]:
    table = iceberg(path)
    return list(table.current_snapshot().manifests(table.io))


def avro(path: Path) -> set[str]:
    return {each.name for each in path.rglob("*.avro")}


def named(path: Path) -> set[str]:
    table = iceberg(path)
    found = {each.manifest_list for each in table.metadata.snapshots}
    for each in table.metadata.snapshots:
        found |= {one.manifest_path for one in each.manifests(table.io)}
    return {each.rpartition("/")[2] for each in found}


def test_a_trickle_does_not_make_the_metadata_grow(tmp_path: Path) -> None:
    day = Day.of("iceberg", tmp_path, str(KEPT))
    for _ in range(2):
        for _ in range(26):
            day.commit()
        assert len(iceberg(tmp_path).metadata.snapshots) == KEPT
        assert len(manifests(tmp_path)) <= 2 * 9 + 2
    table = iceberg(tmp_path)
    metadata = Path(table.metadata_location.removeprefix("file://"))
    assert metadata.stat().st_size < 48 << 10
    assert len(list(table.scan().plan_files())) == day.second
    assert len(avro(tmp_path)) > 100
    day.second += int(GRACE_SECONDS) + 1
    day.commit()
    assert len(avro(tmp_path) - named(tmp_path)) <= 1  # what just expired stays for an hour


def test_a_reader_of_an_expired_version_reads_on_for_an_hour(
    store_path: Path, tmp_path: Path
) -> None:
    path, now = tmp_path / "t", 0.0
    sink = keeping(path, "1")
    sink.clock = lambda: now
    source = LandingSource(store_path, "S")
    first = land_one(source, sink, TINY)
    old = iceberg(path)
    manifests = Path(old.current_snapshot().manifest_list.removeprefix("file://"))
    land_one(source, sink, TINY)
    now = GRACE_SECONDS - 1
    land_one(source, sink, TINY)
    assert old.scan().to_arrow().num_rows == first.rows
    now = GRACE_SECONDS + 1
    assert manifests.exists()
    land_one(source, sink, TINY)
    assert not manifests.exists()
    land_all(source, sink, TINY)
    assert_exactly("iceberg", path, keys_of(store_path, "S"))


@pytest.mark.parametrize("read", [100, 1])
def test_what_processes_have_left_goes_when_it_is_a_day_old(
    read: int, store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where so many snapshots are kept that only the oldest is read."""
    path, source = tmp_path / "t", LandingSource(store_path, "S")
    monkeypatch.setattr(iceberg_expiry, "_SWEPT_EVERY", 6)
    monkeypatch.setattr(iceberg_expiry, "_MOST_AT_ONCE", read)
    keeping(path, "2")
    for number in range(1, 7):
        assert len(avro(path) - named(path)) == max(0, number - 3)
        if number == 4:
            for each in path.rglob("*.avro"):
                os.utime(each, (0, 0))
        land_one(source, make("iceberg", path), TINY)
    assert len(avro(path) - named(path)) == 1
    land_all(source, make("iceberg", path))
    assert_exactly("iceberg", path, keys_of(store_path, "S"))


def test_what_a_tag_holds_stays(store_path: Path, tmp_path: Path) -> None:
    path, now = tmp_path / "t", 0.0
    source, sink = LandingSource(store_path, "S"), keeping(path, "2")
    sink.clock = lambda: now
    for _ in range(4):
        land_one(source, sink, TINY)
    table = iceberg(path)
    tagged = table.current_snapshot().snapshot_id
    rows = table.scan().to_arrow().num_rows
    table.manage_snapshots().create_tag(tagged, "eve").commit()
    for _ in range(4):
        now += GRACE_SECONDS
        land_one(source, sink, TINY)
    assert len(iceberg(path).metadata.snapshots) == 5
    assert iceberg(path).scan(snapshot_id=tagged).to_arrow().num_rows == rows
    table = iceberg(path)
    table.manage_snapshots().remove_tag("eve").commit()
    land_one(source, sink, TINY)
    assert len(iceberg(path).metadata.snapshots) == 2


@pytest.mark.slow
def test_after_a_rollback_what_was_rolled_back_can_still_be_read(tmp_path: Path) -> None:
    path, now = tmp_path / "t", 0.0
    store_path = filled(tmp_path / "store", 240)
    source, sink = LandingSource(store_path, "S"), keeping(path, "3")
    sink.clock = lambda: now
    for _ in range(8):
        land_one(source, sink, TINY)
    table = iceberg(path)
    newest, rows = table.current_snapshot().snapshot_id, table.scan().to_arrow().num_rows
    roll_back(path, -2)
    for _ in range(6):
        now += GRACE_SECONDS
        land_one(source, sink, TINY)
    assert iceberg(path).scan(snapshot_id=newest).to_arrow().num_rows == rows
    land_all(source, sink, TINY)
    assert_exactly("iceberg", path, keys_of(store_path, "S"))


def test_a_table_of_somebody_else_keeps_all_until_it_is_told(
    store_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    make("iceberg", path)
    assert iceberg(path).properties[HISTORY] == DEFAULT_HISTORY
    iceberg(path).transaction().remove_properties(HISTORY).commit_transaction()
    source = LandingSource(store_path, "S")
    for _ in range(6):
        land_one(source, make("iceberg", path), TINY)
    assert len(iceberg(path).metadata.snapshots) == 6
    targets_for(TableSpec(f"iceberg:{path}", history="3"))
    land_one(source, make("iceberg", path), TINY)
    assert len(iceberg(path).metadata.snapshots) == 3
    targets_for(TableSpec(f"iceberg:{path}", history="off"))
    land_one(source, make("iceberg", path), TINY)
    assert len(iceberg(path).metadata.snapshots) == 4


def test_the_commits_of_others_meanwhile_are_no_hindrance(store_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "t"
    source, other = LandingSource(store_path, "S"), LandingSource(store_path, "O")
    sink = keeping(path, "1")
    meanwhile = when("written", lambda: land_one(other, make("iceberg", path), TINY))
    for _ in range(3):
        land_one(source, sink, TINY, meanwhile)
    land_all(source, sink)
    land_all(other, make("iceberg", path))
    assert_exactly("iceberg", path, keys_of(store_path, "S") + keys_of(store_path, "O"))
    assert len(iceberg(path).metadata.snapshots) == 1


@pytest.mark.parametrize(
    ("owner", "name"),
    [pytest.param(SqlCatalog, "commit_table", marks=pytest.mark.slow), (SnapshotExpiry, "_remove")],
)
def test_kills_neither_lose_nor_double_rows(
    owner: Any, name: str, store_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    keeping(path, "1")

    def work() -> None:
        land_all(LandingSource(store_path, "S"), make("iceberg", path), TINY)

    assert all(killed_at(work, owner, name, times) for times in (1, 2))
    assert read("iceberg", path).num_rows < 120
    work()
    assert_exactly("iceberg", path, keys_of(store_path, "S"))
    assert len(iceberg(path).metadata.snapshots) == 1


def log_of(path: Path) -> list[int]:
    return sorted(int(each.stem) for each in (path / "_delta_log").glob("*[0-9].json"))


def test_the_log_of_a_delta_table_does_not_grow(tmp_path: Path) -> None:
    day = Day.of("delta", tmp_path / "t", "1s")
    for _ in range(2):
        for _ in range(30):
            day.commit()
        for each in (tmp_path / "t" / "_delta_log").iterdir():
            os.utime(each, (0, 0))
    for _ in range(21):
        day.commit()
    found = log_of(tmp_path / "t")
    assert len(found) <= 45
    assert found == list(range(found[0], found[-1] + 1))
    assert len(DeltaTable(tmp_path / "t").file_uris()) == day.second
    ends = position_in(make("delta", tmp_path / "t"), STORE).next_offsets
    assert ends["orders"][0] == day.second


def test_one_of_many_commits_cleans_the_log_of_a_delta_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To clean it, deltalake lists all of it; `None` leaves it to the table's own settings."""
    day, cleans = Day.of("delta", tmp_path / "t"), list[bool | None]()
    write = DeltaTable.create_write_transaction

    def written(table: DeltaTable, *given: Any, **named: Any) -> None:
        cleans.append(named["post_commithook_properties"].cleanup_expired_logs)
        write(table, *given, **named)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", written)
    for _ in range(40):
        day.commit()
    assert cleans == 2 * [*19 * [False], None]


def test_a_delta_table_keeps_a_number_of_versions(tmp_path: Path) -> None:
    path = tmp_path / "t"
    day, found = Day.of("delta", path, "30"), [0]
    for _ in range(76):
        day.commit()
        found = log_of(path)
        assert found == list(range(found[0], found[-1] + 1))
        assert min(31, found[-1] + 1) <= len(found) <= 30 + 2 * 20
        checkpoints = sorted((path / "_delta_log").glob("*.checkpoint.parquet"))
        assert found[0] == (int(checkpoints[0].name[:20]) if found[0] else 0)
    assert DeltaTable(path, version=found[0]).version() == found[0]
    assert len(DeltaTable(path).file_uris()) == day.second
    ends = position_in(make("delta", path), STORE).next_offsets
    assert ends["orders"][0] == day.second


@pytest.mark.parametrize("trouble", [PermissionError(13, "not allowed"), SettingsError("no")])
def test_a_commit_stands_though_versions_cannot_go(
    trouble: Exception,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> None:
        raise trouble

    monkeypatch.setattr("lakelog_lake.sinks.delta.drop_versions", fail)
    day = Day.of("delta", tmp_path / "t", "1")
    for _ in range(20):
        day.commit()
    assert len(DeltaTable(tmp_path / "t").file_uris()) == 20
    assert "cannot remove old versions" in caplog.text


def test_a_kill_while_versions_go_leaves_a_log_without_a_hole(tmp_path: Path) -> None:
    day = Day.of("delta", tmp_path / "t", "off")
    for _ in range(50):
        day.commit()
    log = tmp_path / "t" / "_delta_log"
    found = log_of(tmp_path / "t")
    last = found[-1]
    checkpoints = [int(each.name[:20]) for each in log.glob("*.checkpoint.parquet")]
    oldest = max(each for each in checkpoints if each <= 45)
    for times in (1, 3, 8):
        assert killed_at(lambda: drop_versions(log, 45), Path, "unlink", times)
        found = log_of(tmp_path / "t")
        assert found == list(range(found[0], last + 1))
        assert len(DeltaTable(tmp_path / "t").file_uris()) == 50
    assert 0 < found[0] < oldest
    drop_versions(log, 45)
    assert log_of(tmp_path / "t") == list(range(oldest, last + 1))


@pytest.mark.parametrize(
    ("history", "cleaned", "retention"),
    [
        ("12h", "true", "interval 43200 seconds"),
        ("off", "false", "interval 432000 seconds"),
        ("5000", "true", "interval 432000 seconds"),
    ],
)
def test_delta_keeps_its_log_as_told(
    history: str, cleaned: str, retention: str, tmp_path: Path
) -> None:
    targets_for(TableSpec(f"delta:{tmp_path}"))
    assert DeltaTable(tmp_path).metadata().configuration[HISTORY] == DEFAULT_HISTORY
    for _ in range(2):
        targets_for(TableSpec(f"delta:{tmp_path}", history=history))
    found = DeltaTable(tmp_path)
    assert found.version() == 1
    assert found.metadata().configuration["delta.enableExpiredLogCleanup"] == cleaned
    assert found.metadata().configuration.get("delta.logRetentionDuration") == retention
    assert found.metadata().configuration[HISTORY] == history


def test_versions_stay_as_long_as_they_should(store_path: Path, tmp_path: Path) -> None:
    path, ahead = tmp_path / "t", 0
    source, sink = LandingSource(store_path, "S"), keeping(path, "1h")
    sink.clock = lambda: time.time() + ahead
    for _ in range(4):
        land_one(source, sink, TINY)
    assert len(iceberg(path).metadata.snapshots) == 4
    ahead = 3700
    land_one(source, sink, TINY)
    assert len(iceberg(path).metadata.snapshots) == 2


def test_a_history_by_time_has_at_most_so_many_versions(
    store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And at least as many as Iceberg's property says; its age is Iceberg's as well."""
    path, ahead = tmp_path / "t", 0
    monkeypatch.setattr(iceberg_expiry, "MOST_VERSIONS", 4)
    source, sink = LandingSource(store_path, "S"), make("iceberg", path)
    assert isinstance(sink, IcebergSink)
    sink.clock = lambda: time.time() + ahead
    assert iceberg(path).properties[MAX_AGE] == str(5 * 86_400_000)
    for _ in range(6):
        land_one(source, sink, TINY)
    assert len(iceberg(path).metadata.snapshots) == 4
    given = {MIN_KEPT: "3", MAX_AGE: "3600000"}
    iceberg(path).transaction().set_properties(given).commit_transaction()
    ahead = 3700
    land_one(source, sink, TINY)
    assert len(iceberg(path).metadata.snapshots) == 3


def test_a_delta_log_by_time_has_at_most_so_many_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "MOST_VERSIONS", 15)
    day = Day.of("delta", tmp_path / "t")
    for _ in range(41):
        day.commit()
    assert log_of(tmp_path / "t") == list(range(19, 42))


def plain(metadata: TableMetadata) -> object:
    return json.loads(json.dumps(metadata.model_dump(), default=str))


def test_a_commit_costs_the_same_after_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads no metadata that this process wrote, and makes JSON of one snapshot."""
    day = Day.of("iceberg", tmp_path)
    day.commit()
    parse, dump, counts = TableMetadataUtil.parse_raw, Snapshot.model_dump_json, Counter[str]()

    def parsed(text: str) -> TableMetadata:
        counts["parsed"] += 1
        return parse(text)

    def dumped(snapshot: Snapshot, **more: Any) -> str:
        counts["dumped"] += 1
        return dump(snapshot, **more)

    monkeypatch.setattr(TableMetadataUtil, "parse_raw", staticmethod(parsed))
    monkeypatch.setattr(Snapshot, "model_dump_json", dumped)
    for _ in range(10):
        day.commit()
    assert counts == {"dumped": 10}
    assert len(iceberg(tmp_path).metadata.snapshots) == 11
    assert counts == {"dumped": 10, "parsed": 1}


def test_what_a_commit_writes_is_what_the_next_one_knows(store_path: Path, tmp_path: Path) -> None:
    """Also after expiry, settings, a tag, and the changes of others."""
    path, source = tmp_path / "t", LandingSource(store_path, "S")
    sink = keeping(path, "3")

    def assert_known() -> None:
        known = sink.load()
        file = PyArrowFileIO().new_input(known.metadata_location)
        assert plain(known.metadata) == plain(FromInputFile.table_metadata(file))

    for number in range(6):
        land_one(source, sink, TINY)
        assert_known()
        if number == 3:
            table = iceberg(path)
            table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "e").commit()
            assert_known()
        if number == 4:
            sink.keep("4")
            assert_known()
    with iceberg(path).update_schema() as update:
        update.update_column("body", doc='é "snapshots":[]')
    assert_known()
    land_all(source, sink)
    assert_known()
    assert sink.load().metadata_location == iceberg(path).metadata_location
    assert_exactly("iceberg", path, keys_of(store_path, "S"))


def test_metadata_that_are_gone_are_not_taken_from_memory(store_path: Path, tmp_path: Path) -> None:
    path, source = tmp_path / "t", LandingSource(store_path, "S")
    sink = keeping(path, "off")
    land_one(source, sink, TINY)
    place = Path(sink.load().metadata_location.removeprefix("file://"))
    place.rename(tmp_path / "aside")
    with pytest.raises(FileNotFoundError):
        sink.load()
    (tmp_path / "aside").rename(place)
    land_all(source, sink)
    assert_exactly("iceberg", path, keys_of(store_path, "S"))


def test_many_versions_expire_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None that is young, and not one at each commit."""
    monkeypatch.setattr(iceberg_expiry, "_PART_AT_ONCE", 4)
    day, begun, oldest = Day.of("iceberg", tmp_path, "40s"), time.time() + 10, set[int]()
    assert isinstance(day.sink, IcebergSink)
    monkeypatch.setattr(time, "time", lambda: begun + day.second)
    day.sink.clock = lambda: begun + day.second
    for _ in range(70):
        day.commit()
        found = iceberg(tmp_path).metadata.snapshots
        assert min(day.second, 41) <= len(found) <= 41 + 41 // 3
        oldest.add(found[0].snapshot_id)
    assert 2 <= len(oldest) <= 4


def test_times_rise_though_the_clock_is_set_back(
    store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of snapshots, and of changes without one; Java's library refuses a table whose times fall."""
    path, now = tmp_path / "t", time.time
    source, sink = LandingSource(store_path, "S"), keeping(path, "off")
    with monkeypatch.context() as ahead:
        ahead.setattr(time, "time", lambda: now() + 600)
        for _ in range(2):
            land_one(source, sink, TINY)
    land_one(source, sink, TINY)
    sink.keep("7d")
    land_one(source, make("iceberg", path), TINY)
    metadata = iceberg(path).metadata
    snapshots = [each.timestamp_ms for each in metadata.snapshots]
    assert snapshots == sorted(set(snapshots))
    assert snapshots == [each.timestamp_ms for each in metadata.snapshot_log]
    changes = [*(each.timestamp_ms for each in metadata.metadata_log), metadata.last_updated_ms]
    assert len(changes) == 7
    assert changes == sorted(set(changes))
    assert changes[-1] / 1000 > now() + 500


def test_a_whole_manifest_has_the_files_of_its_own_commit(tmp_path: Path) -> None:
    day = Day.of("parquet", tmp_path / "t")
    assert isinstance(day.sink, ParquetSink)
    for _ in range(WHOLE_EVERY + 1):
        day.commit()
        assert len(day.sink.files()) == day.second
