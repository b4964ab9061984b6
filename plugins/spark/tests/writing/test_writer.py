"""What Spark calls, and the handover behind it: rows come once, whatever fails or is run again."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

import lakelog
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.layout import segment_name
from lakelog_spark.writing import staging
from lakelog_spark.writing.handover import Handover, finish_write, handing_over
from lakelog_spark.writing.handover import open_to_append as open_for_job
from lakelog_spark.writing.staging import STAGING_DIR, HandoverStopped, StagingLost, folder_of
from lakelog_spark.writing.writer import LakelogWriter, StagedMessage, WriteOptions
from lakelog_testing.samples import copy_store
from plugins.spark.tests.writing.jobs import (
    JOB,
    SIZES,
    counts,
    expected,
    hand_over,
    in_order,
    is_killed,
    open_to_append,
    stage_all,
)

SCHEMA = StructType().add("topic", StringType()).add("body", StringType())
BODIES = [b"%d" % number for number in range(20)]


def writer(store: Path, **more: str) -> LakelogWriter:
    options = WriteOptions.of({"path": str(store), **more})
    made: LakelogWriter = pickle.loads(
        pickle.dumps(LakelogWriter(SCHEMA, options, overwrite=False))
    )
    return made


def table() -> pa.RecordBatch:
    bodies = [each.decode() for each in BODIES]
    return pa.RecordBatch.from_pydict({"topic": ["t"] * len(bodies), "body": bodies})


@pytest.fixture
def store(tmp_path: Path) -> Path:
    open_to_append(tmp_path / "store").close()
    return tmp_path / "store"


def left(store: Path) -> list[str]:
    return sorted(file.name for file in (store / "lakelog" / STAGING_DIR).glob("*/*"))


def test_a_commit_that_is_called_again_doubles_nothing(store: Path) -> None:
    made = writer(store)
    messages = [made.write(iter([table()]))]
    for _ in range(2):
        made.commit(messages)
    made.abort(messages)
    made.commit(messages)
    assert in_order(store) == BODIES
    assert left(store) == ["journal.json"]


def test_an_abort_leaves_only_rows_that_another_run_staged(store: Path) -> None:
    lone = writer(store)
    lone.write(iter([table()]))
    lone.abort([None])
    assert left(store) == []
    first, second = writer(store, job_id="j"), writer(store, job_id="j")
    messages = [first.write(iter([table()]))]
    second.write(iter([table()]))
    second.abort([None])
    first.commit(messages)
    assert in_order(store) == BODIES


def test_a_commit_that_stops_can_be_finished_by_the_same_job(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = writer(store, job_id="j")
    messages = [made.write(iter([table()]))]
    with monkeypatch.context() as patch:
        patch.setattr(staging, "write_journal", _full_disk)
        with pytest.raises(HandoverStopped, match="No space left"):
            made.commit(messages)
    made.abort(messages)
    again = writer(store, job_id="j")
    said = again.write(iter([table()]))
    assert said.part is None, "what was staged first counts"
    again.commit([said])
    assert in_order(store) == BODIES


def _full_disk(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_task_without_a_message_stops_the_commit(store: Path) -> None:
    made = writer(store)
    for messages in ([made.write(iter([table()])), None], [StagedMessage(None)]):
        with pytest.raises(StagingLost, match="one file for each of"):
            made.commit(messages)
    assert in_order(store) == []


FILES = RealFileSystem()
_BEFORE_THE_SECOND_SYNC = 16


@pytest.fixture(scope="module")
def unsynced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose handover died with one batch durable, and one not yet."""
    path = tmp_path_factory.mktemp("power_cut") / "store"
    open_to_append(path).close()
    assert is_killed(path, stage_all(path), _BEFORE_THE_SECOND_SYNC)
    return path


@pytest.mark.parametrize("lost", [[0], [2, 4], [0, 1, 2, 3, 4, 5, 6]])
@pytest.mark.parametrize("followed", [False, True])
def test_a_power_cut_loses_what_was_not_durable(
    unsynced: Path, tmp_path: Path, lost: list[int], followed: bool
) -> None:
    store = tmp_path / "store"
    copy_store(unsynced, store)
    with lakelog.open(store, mode="read", dispatchers=()) as opened:
        places = [(each.physical_offset, each.size) for each in opened.scan()]
    assert len(places) == 14
    with (store / "commitlog" / segment_name(0)).open("r+b") as segment:
        for at in lost:
            offset, size = places[7 + at]
            os.pwrite(segment.fileno(), bytes(size), offset)
    other = Counter({("other", b""): 2}) if followed else Counter()
    if followed:
        with open_to_append(store) as owner:
            owner.put_batch([lakelog.Message("other", b"")] * 2)
    hand_over(store, None)
    assert counts(store) == expected() + other


def test_a_log_that_was_cut_is_refused(unsynced: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    copy_store(unsynced, store)
    for each in (store / "commitlog").iterdir():
        each.unlink()
    for name in ("abort", "checkpoint"):
        (store / name).unlink()
    with pytest.raises(HandoverStopped, match=r"offset \d+, but the log has 0 to 0: it was cut"):
        hand_over(store, None)


def test_a_stopped_job_is_finished_without_spark(unsynced: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    copy_store(unsynced, store)
    assert finish_write(store, JOB) == sum(SIZES) - 14
    assert finish_write(store, JOB) == 0
    assert counts(store) == expected()
    with pytest.raises(StagingLost, match="the staged rows of job other, found none"):
        finish_write(store, "other")


# --- what is staged, and how long it stays ---


def test_staged_files_are_checked_before_anything_is_appended(store: Path) -> None:
    parts = stage_all(store)
    file = folder_of(store, JOB) / str(parts[2].file)
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(StagingLost, match=f"{parts[2].bytes} bytes with CRC .* found"):
        hand_over(store, parts)
    file.unlink()
    with pytest.raises(StagingLost, match="same path on the driver"):
        hand_over(store, parts)
    assert counts(store) == Counter()


def test_a_file_that_is_lost_on_the_way_stops_the_job_and_says_how_to_go_on(store: Path) -> None:
    parts = stage_all(store)
    file = folder_of(store, JOB) / str(parts[3].file)
    content = file.read_bytes()

    def lose(step: str) -> None:
        if step == "appended":
            file.unlink(missing_ok=True)

    with open_to_append(store) as owner, pytest.raises(HandoverStopped, match=f"job_id={JOB}"):
        Handover(FILES, owner, JOB, at=lose).run(parts)
    assert sum(counts(store).values()) == SIZES[0] + SIZES[2]
    file.write_bytes(content)
    assert hand_over(store, None) == SIZES[3]
    assert counts(store) == expected()


def test_jobs_of_several_drivers_wait_for_one_another(store: Path) -> None:
    with (
        handing_over(store),
        pytest.raises(lakelog.LakelogError, match="another job is still appending"),
        handing_over(store, wait_seconds=0.1),
    ):
        pytest.fail("two at once")
    with handing_over(store, wait_seconds=0):
        pass


def test_rows_are_durable_whatever_the_flush_strategy(store: Path) -> None:
    with open_to_append(store, flush="none") as owner:
        Handover(FILES, owner, JOB).run(stage_all(store))
        assert owner.flushed_offset == owner.max_offset > 0


def stays(store: Path, days: int) -> bool:
    """What is staged, for so many days."""
    folder = folder_of(store, JOB)
    staging.prune(FILES, store, folder.stat().st_mtime + days * 24 * 3600)
    return folder.exists()


@pytest.mark.parametrize(
    ("named", "days", "left"), [(False, 29, True), (False, 31, False), (True, 400, True)]
)
def test_jobs_that_are_done_are_remembered(store: Path, named: bool, days: int, left: bool) -> None:
    with open_to_append(store) as owner:
        Handover(FILES, owner, JOB, named=named).run(stage_all(store))
    assert stays(store, days) is left


def test_rows_of_a_driver_that_died_stay_a_week_unless_they_may_be_in_the_log(
    store: Path, unsynced: Path
) -> None:
    stage_all(store)
    assert stays(store, 6)
    assert not stays(store, 8)
    assert stays(unsynced, 10_000)
    assert len(list(folder_of(unsynced, JOB).iterdir())) == len(list(filter(None, SIZES))) + 2


def test_a_folder_of_somebody_else_becomes_no_store(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no store")
    for create in (True, False):
        with pytest.raises(lakelog.LakelogError, match=r"holds notes.txt"):
            open_for_job(tmp_path, create=create)
