"""What a table consists of is on the disk before its position counts."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from lakelog_lake.sinks.iceberg import sqlite_catalog
from lakelog_lake.tables.data_files import hidden
from lakelog_lake.tasks.engines import in_process
from lakelog_lake.tasks.task import LandingSource
from plugins.lake.tests.landing.passes import land
from plugins.lake.tests.landing.tables import SMALL, TABLE, files, make


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What was synced, in its order."""
    found: list[Path] = []
    inner = os.fsync

    def fsync(fd: int) -> None:
        found.append(Path(f"/proc/self/fd/{fd}").readlink())
        inner(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def test_files_and_metadata_of_a_commit_are_synced(
    kind: str, store_path: Path, tmp_path: Path, synced: list[Path]
) -> None:
    path = tmp_path.resolve() / "t"
    sink = make(kind, path)
    synced.clear()
    assert land(LandingSource(store_path, "S"), sink, in_process, SMALL) is not None
    for file in files(kind, path):
        written = hidden(file) if kind == "parquet" else file
        assert {written, file.parent} <= set(synced)
    if kind == "iceberg":
        _assert_iceberg(path, synced)
    elif kind == "delta":
        assert synced[-2:] == [path / "_delta_log" / f"{1:020d}.json", path / "_delta_log"]
    else:
        assert synced[-3].suffix == ".tmp"
        assert synced[-2:] == [path / "_lakelog", path / "data"], "then the files get their names"


def _assert_iceberg(path: Path, synced: list[Path]) -> None:
    table = sqlite_catalog(path).load_table(TABLE)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifests = [each.manifest_path for each in snapshot.manifests(table.io)]
    for location in (*manifests, snapshot.manifest_list, table.metadata_location):
        file = Path(unquote(urlsplit(location).path))
        assert {file, file.parent} <= set(synced), file
