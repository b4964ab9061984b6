"""Segments that an archive has are read from there, without the directory of their store."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lakelog
from lakelog.errors import LakelogError, NotAStore, StoreError
from lakelog_lake.errors import OffsetUnavailable
from lakelog_spark.source import ArchivedReader
from plugins.lake.tests.stores import expected_rows, filled
from plugins.spark.tests.reading import Rows, offsets, options, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def moved(path: Path, place: str) -> tuple[str, Rows]:
    """Move a store to an archive, but its last segment; the URL, and the rows that are there."""
    from lakelog_archive.archive import Archive, place_at

    uuid = json.loads((path / "lakelog" / "store.json").read_text())["uuid"]
    archive, end = Archive(place_at(url := f"{place}/{uuid}")), 0
    for segment in sorted((path / "commitlog").iterdir())[:-1]:
        archive.keep(segment, int(segment.name))
        end = int(segment.name) + segment.stat().st_size
    with lakelog.open(path, mode="read") as store:
        rows = expected_rows(store.scan(None, end), uuid)
    shutil.rmtree(path)
    assert len(rows) > 100
    return url, rows


@pytest.fixture
def archived(tmp_path: Path) -> tuple[str, Rows]:
    return moved(filled(tmp_path / "store", 300), f"local://{tmp_path / 'old'}")


def test_all_rows_are_read(archived: tuple[str, Rows]) -> None:
    url, rows = archived
    reader = ArchivedReader(options(Path("/"), path=url), url)
    parts = reader.partitions()
    assert len(parts) > 3
    found = rows_of(pickle.loads(pickle.dumps(reader)), parts)
    assert [{**each, "keys": None} for each in found] == [{**each, "keys": None} for each in rows]


def test_options_choose_rows(archived: tuple[str, Rows]) -> None:
    url, rows = archived
    place = rows[60]["physical_offset"]
    given = {"topics": "topic-1", "start": json.dumps({"offset": place})}
    reader = ArchivedReader(options(Path("/"), path=url, **given), url)
    wanted = [each for each in rows[60:] if each["topic"] == "topic-1"]
    assert offsets(rows_of(reader, reader.partitions())) == [e["physical_offset"] for e in wanted]


def test_what_is_gone_is_told(archived: tuple[str, Rows]) -> None:
    url, rows = archived
    first = Path(url.removeprefix("local:")) / "manifest" / f"{0:020d}"
    first.unlink()
    with pytest.raises(OffsetUnavailable, match="offset 0 is not in the log"):
        ArchivedReader(options(Path("/"), path=url, start='{"offset": 0}'), url)
    given = {"start": '{"offset": 0}', "lost": "skip"}
    reader = ArchivedReader(options(Path("/"), path=url, **given), url)
    found = offsets(rows_of(reader, reader.partitions()))
    assert found == [each["physical_offset"] for each in rows][-len(found) :]
    assert 0 < len(found) < len(rows)


def test_a_damaged_entry_of_the_manifest_is_said(archived: tuple[str, Rows]) -> None:
    url, _ = archived
    for content in ("", "{}", '{"v": 1, "start": 0}'):
        (Path(url.removeprefix("local:")) / "manifest" / f"{0:020d}").write_text(content)
        with pytest.raises(StoreError, match="cannot be read: the manifest entry of 0 is damaged"):
            ArchivedReader(options(Path("/"), path=url), url)


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    url = f"local://{tmp_path}/nothing"
    with pytest.raises(NotAStore, match="not a folder of a store written by lakelog-archive"):
        ArchivedReader(options(Path("/"), path=url), url)
    with pytest.raises(LakelogError, match="cannot be read: Protocol not known: nix"):
        ArchivedReader(options(Path("/"), path="nix://x/y"), "nix://x/y")


def test_spark_reads_an_archive(spark: SparkSession, archived: tuple[str, Rows]) -> None:
    url, rows = archived
    frame = spark.read.format("lakelog").load(url)
    found = sorted(each.physical_offset for each in frame.select("physical_offset").collect())
    assert found == [each["physical_offset"] for each in rows]
