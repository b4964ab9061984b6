"""What Spark calls, called as a driver would that fails, retries and starts again."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

import lakelog
from lakelog_spark.writing import handover
from lakelog_spark.writing.errors import HandoverStopped, StagingLost
from lakelog_spark.writing.options import WriteOptions
from lakelog_spark.writing.staging import STAGING_DIR
from lakelog_spark.writing.writer import LakelogWriter, StagedMessage
from plugins.spark.tests.writing.jobs import open_to_append

SCHEMA = StructType().add("topic", StringType()).add("body", StringType())
ROWS = 20


@pytest.fixture
def store(tmp_path: Path) -> Path:
    open_to_append(tmp_path / "store").close()
    return tmp_path / "store"


def writer(store: Path, **more: str) -> LakelogWriter:
    options = WriteOptions.of({"path": str(store), **more})
    made: LakelogWriter = pickle.loads(
        pickle.dumps(LakelogWriter(SCHEMA, options, overwrite=False))
    )
    return made


def table() -> pa.RecordBatch:
    bodies = list(map(str, range(ROWS)))
    return pa.RecordBatch.from_pydict({"topic": ["t"] * ROWS, "body": bodies})


def bodies(store: Path) -> list[int]:
    with lakelog.open(store, mode="read") as opened:
        return [int(each.body) for each in opened.scan()]


def left(store: Path) -> list[str]:
    return sorted(file.name for file in (store / "lakelog" / STAGING_DIR).glob("*/*"))


def test_a_commit_that_is_called_again_doubles_nothing(store: Path) -> None:
    made = writer(store)
    messages = [made.write(iter([table()]))]
    for _ in range(2):
        made.commit(messages)
    made.abort(messages)
    made.commit(messages)
    assert bodies(store) == list(range(ROWS))
    assert left(store) == ["journal.json"]


def test_an_abort_leaves_nothing(store: Path) -> None:
    made = writer(store)
    made.write(iter([table()]))
    made.abort([None])
    assert left(store) == []
    assert bodies(store) == []


def test_an_abort_leaves_rows_that_another_run_staged(store: Path) -> None:
    first, second = writer(store, job_id="j"), writer(store, job_id="j")
    messages = [first.write(iter([table()]))]
    second.write(iter([table()]))
    second.abort([None])
    first.commit(messages)
    assert bodies(store) == list(range(ROWS))


def test_a_commit_that_stops_can_be_finished_by_the_same_job(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = writer(store, job_id="j")
    messages = [made.write(iter([table()]))]
    with monkeypatch.context() as patch:
        patch.setattr(handover, "write_journal", _full_disk)
        with pytest.raises(HandoverStopped, match="No space left"):
            made.commit(messages)
    made.abort(messages)
    again = writer(store, job_id="j")
    said = again.write(iter([table()]))
    assert said.part is None, "what was staged first counts"
    again.commit([said])
    assert bodies(store) == list(range(ROWS))


def _full_disk(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_task_without_a_message_stops_the_commit(store: Path) -> None:
    made = writer(store)
    for messages in ([made.write(iter([table()])), None], [StagedMessage(None)]):
        with pytest.raises(StagingLost, match="one file for each of"):
            made.commit(messages)
    assert bodies(store) == []


def test_an_owner_that_came_meanwhile_does_the_appending(store: Path) -> None:
    made = writer(store)
    messages = [made.write(iter([table()]))]
    with open_to_append(store) as owner:
        made.commit(messages)
        assert owner.flushed_offset == owner.max_offset > 0
    assert bodies(store) == list(range(ROWS))
