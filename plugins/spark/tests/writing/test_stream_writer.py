"""Micro-batches go into the log once, whatever is run again; without Spark."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

import lakelog
from lakelog.errors import SettingsError
from lakelog.files.filesystem import RealFileSystem
from lakelog_spark.writing.staging import STAGING_DIR, BadJournal, StagingLost, prune
from lakelog_spark.writing.writer import LakelogStreamWriter, StagedMessage, WriteOptions
from plugins.lake.tests.stores import open_small

SCHEMA = StructType([StructField("topic", StringType()), StructField("body", BinaryType())])
QUERY = "0f9a8f0e-1111-2222-3333-444455556666"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    open_small(tmp_path / "store").close()
    return tmp_path / "store"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "check point"
    folder.mkdir()
    (folder / "metadata").write_text(json.dumps({"id": QUERY}))
    return folder


def writer(store: Path, checkpoint: Path | str | None = None, **more: str) -> LakelogStreamWriter:
    given = {"path": str(store), **more}
    if checkpoint is not None:
        given["checkpointLocation"] = str(checkpoint)
    return LakelogStreamWriter(SCHEMA, *WriteOptions.of_stream(given), overwrite=False)


def commit(store: Path, checkpoint: Path | str, content: bytes, batch: int = 0) -> None:
    part = writer(store, checkpoint).write(iter([rows(content)]))
    writer(store, checkpoint).commit([part], batch)


def rows(*bodies: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"topic": ["t"] * len(bodies), "body": list(bodies)})


def bodies(store: Path) -> list[bytes]:
    with lakelog.open(store, mode="read", dispatchers=()) as opened:
        return [each.body for each in opened.scan()]


def staged(store: Path) -> list[str]:
    return sorted(each.name for each in (store / "lakelog" / STAGING_DIR).rglob("*.arrow"))


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_batch_that_is_run_again_is_in_the_log_once(
    store: Path, checkpoint: Path, scheme: str
) -> None:
    where = scheme + (str(checkpoint).replace(" ", "%20") if scheme else str(checkpoint))
    for content, batch in ((b"a", 0), (b"b", 1), (b"b", 1), (b"c", 2)):
        commit(store, where, content, batch)
    assert bodies(store) == [b"a", b"b", b"c"]
    assert staged(store) == []
    notes = sorted(each.name for each in (store / "lakelog" / STAGING_DIR).iterdir())
    assert notes == ["lock", f"stream-{QUERY}"]


def test_a_batch_that_was_stopped_is_finished_by_its_next_run(
    store: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("lakelog_spark.writing.staging.write_last_batch", _stopped)
        with pytest.raises(OSError, match="stopped"):
            commit(store, checkpoint, b"a")
    commit(store, checkpoint, b"a")
    assert bodies(store) == [b"a"]
    assert staged(store) == []


def _stopped(*_: object) -> None:
    raise OSError("stopped here")


def test_a_new_checkpoint_is_another_query(store: Path, checkpoint: Path) -> None:
    commit(store, checkpoint, b"a")
    (checkpoint / "metadata").write_text(json.dumps({"id": "another"}))
    commit(store, checkpoint, b"a")
    assert bodies(store) == [b"a", b"a"]


def test_the_note_of_a_query_outlives_what_is_pruned(store: Path, checkpoint: Path) -> None:
    commit(store, checkpoint, b"a", 7)
    lost = writer(store, checkpoint).write(iter([rows(b"never committed")]))
    assert lost.part is not None
    assert staged(store) == [lost.part.file]
    folder = store / "lakelog" / STAGING_DIR / f"stream-{QUERY}"
    prune(RealFileSystem(), store, folder.stat().st_mtime + 400 * 24 * 3600)
    assert staged(store) == []
    writer(store, checkpoint).commit([StagedMessage(None)], 7)
    assert bodies(store) == [b"a"]


def test_what_cannot_be_told_is_refused(store: Path, checkpoint: Path, tmp_path: Path) -> None:
    def refuse(made: LakelogStreamWriter) -> None:
        made.commit([StagedMessage(None)], 0)

    with pytest.raises(SettingsError, match="no checkpoint; give option checkpointLocation"):
        refuse(writer(store))
    with pytest.raises(SettingsError, match="s3a://b/c, which this process cannot read"):
        refuse(writer(store, "s3a://b/c"))
    with pytest.raises(SettingsError, match="expected Spark's id of the query"):
        refuse(writer(store, tmp_path))
    with pytest.raises(StagingLost, match="one file for each of 1 partitions"):
        refuse(writer(store, job_id="mine"))
    made = writer(store, checkpoint)
    with pytest.raises(SettingsError, match="outputMode"):
        LakelogStreamWriter(SCHEMA, made._options, None, overwrite=True)
    folder = store / "lakelog" / STAGING_DIR / f"stream-{QUERY}"
    folder.mkdir(parents=True)
    (folder / "last_batch").write_text("seven")
    with pytest.raises(BadJournal, match="last_batch"):
        refuse(made)
    assert os.listdir(folder) == ["last_batch"]
