"""Rows are handed over once, whatever became of the log and of the staged files meanwhile."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

import lakelog
from lakelog.errors import StoreLocked
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.layout import segment_name
from lakelog.message import Message
from lakelog_spark.writing import pruning
from lakelog_spark.writing.access import finish_write, handing_over
from lakelog_spark.writing.access import open_to_append as open_for_job
from lakelog_spark.writing.errors import HandoverStopped, NoSuchStore, StagingLost
from lakelog_spark.writing.handover import Handover
from lakelog_spark.writing.journal import read_journal
from lakelog_spark.writing.staging import folder_of, remove_run, stage, verify
from lakelog_testing.copies import copy_store
from plugins.spark.tests.writing.jobs import (
    JOB,
    SIZES,
    counts,
    expected,
    hand_over,
    is_killed,
    open_to_append,
    rows_of,
    stage_all,
)

FILES = RealFileSystem()
_BEFORE_THE_SECOND_SYNC = 16


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    open_to_append(path).close()
    return path


def test_partitions_come_in_their_order_and_leave_a_note_only(store: Path) -> None:
    assert hand_over(store, stage_all(store)[::-1]) == sum(SIZES)
    with lakelog.open(store, mode="read") as opened:
        topics = [each.topic for each in opened.scan()]
        assert opened.flushed_offset == opened.max_offset
    assert topics == sorted(topics)
    assert counts(store) == expected()
    assert [each.name for each in folder_of(store, JOB).iterdir()] == ["journal.json"]
    assert hand_over(store, stage_all(store)) == 0
    assert counts(store) == expected()


def test_a_note_without_rows_is_a_job_too(store: Path) -> None:
    assert hand_over(store, [stage(FILES, folder_of(store, JOB), 0, "run", [])]) == 0
    journal = read_journal(FILES, folder_of(store, JOB))
    assert journal is not None
    assert journal.done


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


def test_a_failing_task_leaves_no_file(store: Path) -> None:
    def failing() -> object:
        yield rows_of(0, 3)
        raise ValueError("bad row")

    folder = folder_of(store, JOB)
    with pytest.raises(ValueError, match="bad row"):
        stage(FILES, folder, 0, "run", failing())  # type: ignore[arg-type]  # it fails on purpose
    assert list(folder.iterdir()) == []


def test_what_one_run_staged_can_be_removed(store: Path) -> None:
    folder = folder_of(store, JOB)
    stage_all(store)
    kept = stage(FILES, folder, 0, "other", [rows_of(0, 3)])
    remove_run(FILES, folder, "run")
    assert [each.name for each in folder.iterdir()] == [kept.file]
    verify(FILES, folder, kept)
    remove_run(FILES, folder, "other")
    assert not folder.exists()


def test_who_may_append(store: Path, tmp_path: Path) -> None:
    closed = {"attach": {"listen": False}}
    with (
        open_to_append(store, **closed),
        pytest.raises(StoreLocked, match="has this store open and lets nobody in: attach"),
    ):
        open_for_job(store)
    with pytest.raises(NoSuchStore, match="option create=true"):
        open_for_job(tmp_path / "none")
    (tmp_path / "notes.txt").write_text("no store")
    for create in (True, False):
        with pytest.raises(lakelog.LakelogError, match=r"holds notes.txt"):
            open_for_job(tmp_path, create=create)


def test_jobs_of_several_drivers_wait_for_one_another(store: Path) -> None:
    with (
        handing_over(store),
        pytest.raises(lakelog.LakelogError, match="another job is still appending"),
        handing_over(store, wait_seconds=0.1),
    ):
        pytest.fail("two at once")
    with handing_over(store, wait_seconds=0):
        pass


def test_a_job_goes_through_a_living_owner(store: Path) -> None:
    parts = stage_all(store)
    with open_to_append(store) as owner:
        owner.put(Message("other", b"before"))
        with handing_over(store) as beside:
            assert Handover(FILES, beside, JOB, named=True).run(parts) == sum(SIZES)
            owner.put(Message("other", b"between"))
            assert Handover(FILES, beside, JOB, named=True).run(parts) == 0
        assert owner.flushed_offset >= owner.max_offset
    found = counts(store)
    assert {body for topic, body in found if topic == "other"} == {b"before", b"between"}
    assert Counter({key: n for key, n in found.items() if key[0] != "other"}) == expected()


@pytest.mark.parametrize(
    ("named", "days", "left"), [(False, 29, True), (False, 31, False), (True, 400, True)]
)
def test_jobs_that_are_done_are_remembered(store: Path, named: bool, days: int, left: bool) -> None:
    with open_to_append(store) as owner:
        Handover(FILES, owner, JOB, named=named).run(stage_all(store))
    now = folder_of(store, JOB).stat().st_mtime + days * 24 * 3600
    pruning.prune(FILES, store, now)
    assert folder_of(store, JOB).exists() is left


def test_rows_of_a_driver_that_died_are_removed_after_a_week(store: Path) -> None:
    stage_all(store)
    now = folder_of(store, JOB).stat().st_mtime
    pruning.prune(FILES, store, now + 6 * 24 * 3600)
    assert folder_of(store, JOB).exists()
    pruning.prune(FILES, store, now + 8 * 24 * 3600)
    assert not folder_of(store, JOB).exists()


def test_rows_that_may_be_in_the_log_are_never_removed(unsynced: Path) -> None:
    pruning.prune(FILES, unsynced, folder_of(unsynced, JOB).stat().st_mtime + 1e9)
    assert (
        len(list(folder_of(unsynced, JOB).iterdir())) == len([each for each in SIZES if each]) + 2
    )


def test_rows_are_durable_whatever_the_flush_strategy(store: Path) -> None:
    with open_to_append(store, flush="none") as owner:
        Handover(FILES, owner, JOB).run(stage_all(store))
        assert owner.flushed_offset == owner.max_offset > 0
