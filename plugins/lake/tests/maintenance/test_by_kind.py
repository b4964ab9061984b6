"""Compaction and expiry: rows, their order and the positions stay, and dispatch goes on.

Iceberg's compaction needs Spark: see test_spark_maintenance.py.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from shutil import copyfile
from typing import Any
from uuid import uuid4

import pytest

from lakelog import Message
from lakelog_lake.errors import TooBusy, Unreachable
from lakelog_lake.maintenance.tables import compact as compact_tables
from lakelog_lake.maintenance.tables import expire as expire_tables
from lakelog_lake.maintenance.terms import RetentionTerms
from lakelog_lake.sinks.iceberg import sqlite_catalog
from lakelog_lake.sinks.parquet import ParquetSink
from lakelog_lake.tables.data_files import found
from lakelog_lake.tables.remote import sync
from lakelog_lake.tasks.engines import in_process
from lakelog_lake.tasks.task import LandingSource
from plugins.lake.tests.landing.passes import land
from plugins.lake.tests.landing.tables import (
    KINDS,
    SMALL,
    TABLE,
    assert_exactly,
    files,
    iceberg,
    keys_in,
    keys_of,
    land_all,
    land_one,
    make,
    position_in,
    read,
    when,
)
from plugins.lake.tests.landing.test_cli import run
from plugins.lake.tests.stores import filled, open_small

MIB = 1 << 20
EVERYTHING = RetentionTerms(0)
_DAYS = 86_400


def compact(kind: str, path: Path) -> None:
    compact_tables(f"{kind}:{path}", None, MIB, None)


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_dispatch_goes_on_after_care(kind: str, store_path: Path, tmp_path: Path) -> None:
    source, path = LandingSource(store_path, "S"), tmp_path / "t"
    sink = make(kind, path)
    land_all(source, sink)
    before = position_in(sink)
    small = len(files(kind, path))
    ((_, done),) = compact_tables(f"{kind}:{path}", None, MIB, None)
    assert (done.removed, done.made) == (small, 3)
    ((_, gone),) = expire_tables(f"{kind}:{path}", None, EVERYTHING)
    assert gone.files >= small
    assert len(files(kind, path)) == 3
    assert len([each for each in path.rglob("*.parquet") if "checkpoint" not in each.name]) == 3
    after = position_in(make(kind, path))
    assert (after.end, after.last, after.commit) == (before.end, before.last, before.commit)
    assert land_all(source, make(kind, path)) == []
    filled(store_path, 60)
    with open_small(store_path) as store:  # topics that no path can have as they are
        store.put_batch([Message(name, b"1") for name in ("a%b", "with space", "a=b", "ü")])
    assert sum(each.rows for each in land_all(source, make(kind, path))) == 64
    compact(kind, path)
    expire_tables(f"{kind}:{path}", None, EVERYTHING)
    assert keys_in(read(kind, path)) == keys_of(store_path, "S")


def test_a_topic_whose_folder_would_have_too_long_a_name_stays(tmp_path: Path) -> None:
    """Deltalake writes it percent-encoded; the files of others are merged."""
    source, path = LandingSource(tmp_path / "s", "S"), tmp_path / "t"
    for _ in range(2):
        with open_small(source.path) as store:
            store.put_batch([Message(name, b"1", queue_id=0) for name in ("|" * 127, "short")])
        land_all(source, make("delta", path))
    compact("delta", path)
    assert len(files("delta", path)) == 3
    assert keys_in(read("delta", path)) == keys_of(source.path, "S")


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_compaction_while_a_dispatcher_writes(
    kind: str, store_path: Path, tmp_path: Path
) -> None:
    source, path = LandingSource(store_path, "S"), tmp_path / "t"
    sink = make(kind, path)
    land_one(source, sink)

    def care() -> None:
        compact(kind, path)
        expire_tables(f"{kind}:{path}", None, EVERYTHING)

    assert land_one(source, sink, on_phase=when("written", care)).won
    land_all(source, sink)
    assert keys_in(read(kind, path)) == keys_of(store_path, "S")


def test_a_dispatcher_that_is_faster_does_not_end_a_compaction(
    store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, path = LandingSource(store_path, "S"), tmp_path / "t"
    filled(store_path, 100)
    for _ in range(2):  # a file of each partition, and another one
        land(source, make("parquet", path), in_process, SMALL)
    inner = ParquetSink._publish
    landed: list[object] = []

    def slow(*given: Any) -> None:
        if "compacted" in str(given[-1]["files"]) and len(landed) < 2:
            monkeypatch.setattr(ParquetSink, "_publish", inner)
            landed.append(land(source, make("parquet", path), in_process, SMALL))
            monkeypatch.setattr(ParquetSink, "_publish", slow)
        inner(*given)

    monkeypatch.setattr(ParquetSink, "_publish", slow)
    compact("parquet", path)
    monkeypatch.undo()
    assert len(landed) == 2
    assert None not in landed
    land_all(source, make("parquet", path))
    assert keys_in(read("parquet", path)) == keys_of(store_path, "S")


def test_a_compaction_behind_another_changes_nothing(
    store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has merged the files before the other one is committed."""
    path = tmp_path / "t"
    land_all(LandingSource(store_path, "S"), make("parquet", path))

    def other_first(folder: Path) -> None:
        monkeypatch.undo()
        compact("parquet", path)
        sync(folder)

    monkeypatch.setattr("lakelog_lake.maintenance.folders.sync", other_first)
    with pytest.raises(TooBusy, match="another compaction"):
        compact("parquet", path)
    assert keys_in(read("parquet", path)) == keys_of(store_path, "S")
    assert len(list((path / "data").glob("*.parquet"))) == 3


def gone(path: Path, retention: RetentionTerms) -> int:
    """How many files that removed."""
    return sum(done.files for _, done in expire_tables(f"parquet:{path}", None, retention))


def test_a_compaction_that_fails_behind_its_commit_removes_no_listed_file(
    store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next compaction replaces its files, but an older version still lists them."""
    source, sink = LandingSource(store_path, "S"), ParquetSink(tmp_path / "t")
    land_all(source, make("parquet", sink.path))
    inner = ParquetSink.replace

    def replace(self: ParquetSink, *given: Any) -> None:
        monkeypatch.setattr(ParquetSink, "replace", inner)
        inner(self, *given)
        filled(store_path, 60)
        land_all(source, make("parquet", sink.path))
        compact("parquet", sink.path)
        raise OSError("the answer is lost")

    monkeypatch.setattr(ParquetSink, "replace", replace)
    with pytest.raises(Unreachable, match="the answer is lost"):
        compact("parquet", sink.path)
    listed = [sink.path / each["path"] for n in sink.versions() for each in sink.entries(n)]
    assert all(found(each).exists() for each in listed)


def test_young_versions_stay(store_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "t"
    land_all(LandingSource(store_path, "S"), make("parquet", path))
    small = len(files("parquet", path))
    compact("parquet", path)
    newest = max((path / "_lakelog").glob("*.json")).name
    assert gone(path, RetentionTerms(7 * _DAYS)) == 0
    assert gone(path, RetentionTerms(0, keep=2)) == 0
    for manifest in (path / "_lakelog").iterdir():  # an old table, but it was just compacted
        if manifest.name != newest:
            os.utime(manifest, (0, 0))
    assert gone(path, RetentionTerms(7 * _DAYS)) == 0
    assert gone(path, EVERYTHING) == small
    assert_exactly("parquet", path, keys_of(store_path, "S"))


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        *((each, "{}.parquet") for each in KINDS),
        ("iceberg", "../metadata/.{}.avro.crc"),  # Hadoop's, for a manifest that is gone
        ("delta", "{}.parquet#1"),  # of a compaction that was killed
        ("delta", "../../../_delta_log/{}.json#1"),
    ],
    ids=[*KINDS, "checksum", "unfinished", "unfinished-commit"],
)
def test_files_that_no_version_names_go_when_they_are_old(
    kind: str, place: str, store_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    sink = make(kind, path)
    land_all(LandingSource(store_path, "S"), sink)
    data = files(kind, path)[0].parent
    old, young = data / place.format("old"), data / place.format("young")
    for each in (old, young):
        each.write_bytes(b"of one who was killed")
    then = time.time() - 2 * _DAYS
    os.utime(old, (then, then))
    expire_tables(f"{kind}:{path}", None, EVERYTHING)
    assert not old.exists()
    assert young.exists()
    assert keys_in(read(kind, path)) == keys_of(store_path, "S")


def test_metadata_of_commits_that_failed_goes_when_it_is_old(
    store_path: Path, tmp_path: Path
) -> None:
    """A catalog's client writes it before it asks for the commit."""
    path = tmp_path / "t"
    land_all(LandingSource(store_path, "S"), make("iceberg", path))
    metadata = Path(iceberg(path).metadata_location.removeprefix("file://"))
    old = metadata.with_name(f"00007-{uuid4()}.metadata.json")
    young = metadata.with_name(f"00008-{uuid4()}.metadata.json")
    for each in (old, young):
        copyfile(metadata, each)
    then = time.time() - 2 * _DAYS
    for each in metadata.parent.iterdir():
        if each != young:
            os.utime(each, (then, then))
    expire_tables(f"iceberg:{path}", None, EVERYTHING)
    assert not old.exists()
    assert young.exists()
    logged = [each.metadata_file for each in iceberg(path).metadata.metadata_log]
    assert logged
    assert all(Path(each.removeprefix("file://")).exists() for each in logged)
    assert_exactly("iceberg", path, keys_of(store_path, "S"))


def test_iceberg_expires_without_java(store_path: Path, tmp_path: Path) -> None:
    source = LandingSource(store_path, "S")
    land_all(source, make("iceberg", tmp_path / "t"))
    before = make("iceberg", tmp_path / "t").head("S").position
    ((_, gone),) = expire_tables(f"iceberg:{tmp_path / 't'}", None, EVERYTHING)
    table = sqlite_catalog(tmp_path / "t").load_table(TABLE)
    assert len(table.metadata.snapshots) == 1
    assert gone.versions > 1
    assert make("iceberg", tmp_path / "t").head("S").position == before
    assert land_all(source, make("iceberg", tmp_path / "t")) == []
    assert_exactly("iceberg", tmp_path / "t", keys_of(store_path, "S"))


def test_the_commands(store_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "t"
    land_all(LandingSource(store_path, "S"), make("parquet", path))
    small = len(files("parquet", path))
    done = run("lake", "compact", f"parquet:{path}")
    assert done.stdout == f"the Parquet table {path}: {small} files became 3\n"
    again = run("lake", "compact", f"parquet:{path}", "--json")
    assert json.loads(again.stdout)["removed"] == 0
    assert "0 versions and 0 files removed" in run("lake", "expire", f"parquet:{path}").stdout
    all_of_it = run("lake", "expire", f"parquet:{path}", "--older-than", "0s")
    assert f"{small} files removed" in all_of_it.stdout
    wrong = run("lake", "expire", f"parquet:{path}", "--older-than", "soon")
    assert wrong.exit_code == 2
    assert "write 7d" in wrong.stderr
