"""Small files become few while messages trickle in: rows, their order and positions stay."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lakelog.errors import SettingsError
from lakelog_lake.landing.targets import Target, Targets
from lakelog_lake.maintenance import folders
from lakelog_lake.maintenance.folders import PeriodicCompaction
from lakelog_lake.maintenance.tables import compact as compact_tables
from lakelog_lake.sinks.delta import DeltaSink
from lakelog_lake.tasks.task import LandingSource
from lakelog_testing.samples import copy_store
from plugins.lake.tests.landing.tables import assert_exactly, files, keys_of, land_all, make
from plugins.lake.tests.landing.test_cli import run
from plugins.lake.tests.stores import filled

MIB = 1 << 20


def delta(path: Path) -> DeltaSink:
    sink = make("delta", path)
    assert isinstance(sink, DeltaSink)
    return sink


def trickled(store: Path, sink: Any, passes: int) -> None:
    """So many passes of 15 messages."""
    for _ in range(passes):
        filled(store, 15)
        land_all(LandingSource(store, "S"), sink)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store ``s`` and a Delta table ``t`` of eleven passes."""
    path = tmp_path_factory.mktemp("made")
    trickled(path / "s", delta(path / "t"), 11)
    return path


@pytest.fixture
def landed(made: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Copies of both, to be changed."""
    return copy_store(made / "s", tmp_path / "s"), copy_store(made / "t", tmp_path / "t")


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_files_stay_few_and_nothing_is_lost(kind: str, tmp_path: Path) -> None:
    store, path = tmp_path / "s", tmp_path / "t"
    sink = make(kind, path)
    compacting = PeriodicCompaction(Targets([Target(sink)]), 11, MIB)
    for _ in range(12):
        trickled(store, sink, 1)
        compacting()
    assert len(files(kind, path)) == 3 + 3
    assert_exactly(kind, path, keys_of(store, "S"))
    before = sink.head("S").position
    assert before is not None
    assert land_all(LandingSource(store, "S"), make(kind, path)) == []
    assert sink.head("S").position == before


def test_a_compaction_that_was_outrun_changes_nothing(
    landed: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store, path = landed
    inner = folders._commit_delta

    def outrun(*given: Any) -> None:
        trickled(store, delta(path), 1)
        inner(*given)

    monkeypatch.setattr(folders, "_commit_delta", outrun)
    with caplog.at_level(logging.WARNING):
        PeriodicCompaction(Targets([Target(delta(path))]), 1, MIB)()
    assert "changed by another writer" in caplog.text
    assert not list(path.rglob("compacted-*"))
    assert_exactly("delta", path, keys_of(store, "S"))


def test_a_compaction_that_fails_behind_its_commit_removes_no_listed_file(
    landed: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next compaction replaces its files, but an older version still lists them."""
    store, path = landed
    inner, versions = DeltaSink.write, list[int]()

    def write(self: DeltaSink, *given: Any, **named: Any) -> int:
        monkeypatch.setattr(DeltaSink, "write", inner)
        versions.append(inner(self, *given, **named))
        trickled(store, delta(path), 1)
        compact_tables(f"delta:{path}", None, MIB, None)
        raise OSError("the answer is lost")

    monkeypatch.setattr(DeltaSink, "write", write)
    with pytest.raises(OSError, match="lost"):
        folders.compact_new(delta(path), MIB)
    merged = DeltaTable(path, version=versions[0])
    assert all(Path(each).exists() for each in merged.file_uris())


KILLED = """
import os, signal, sys
from lakelog_lake.maintenance import folders
from plugins.lake.tests.landing.passes import sink_for
from lakelog_lake.sinks.delta import DeltaSink
from lakelog_lake.tables.data_files import mergeable

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

before = (folders, "_commit_delta")
setattr(*(before if sys.argv[2] == "before" else (DeltaSink, "sync_version")), die)
folders.compact_new(sink_for(sys.argv[1]), 1 << 20)
"""


def test_a_kill_while_it_compacts_loses_nothing(landed: tuple[Path, Path]) -> None:
    store, path = landed
    for when, left in (("before", 33), ("behind", 3)):
        killed = subprocess.run([sys.executable, "-c", KILLED, f"delta:{path}", when], check=False)
        assert killed.returncode == -signal.SIGKILL
        assert len(files("delta", path)) == left
    found = DeltaTable(path).metadata().configuration["delta.deletedFileRetentionDuration"]
    assert found == "interval 3600 seconds"
    trickled(store, delta(path), 1)
    assert_exactly("delta", path, keys_of(store, "S"))


def test_dispatch_compacts_when_told(landed: tuple[Path, Path]) -> None:
    store, path = landed
    filled(store, 15)
    command = ["dispatch", str(store), "--to", f"delta:{path}", "--once", "--store-id", "S"]
    assert run(*command, "--compact", "1").exit_code == 0
    assert len(files("delta", path)) < 33
    assert list(path.rglob("compacted-*"))


def test_iceberg_is_compacted_by_spark(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="lake compact"):
        PeriodicCompaction(Targets([Target(make("iceberg", tmp_path))]), 1, MIB)
