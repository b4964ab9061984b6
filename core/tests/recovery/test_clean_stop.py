"""What a clean stop noted: the next open goes by it while nobody has written, and not otherwise."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from core.tests.recovery.support import crash, flip_bit, log_bytes, offsets, recover_small, starts
from core.tests.store.faults import SeenFiles
from core.tests.store.support import (
    SEGMENT,
    FaultyFiles,
    a_store,
    fill,
    open_small,
    read_small,
    segments,
)
from lakelog import Message, RecoveryReport
from lakelog.files.checkpoint import read_checkpoint, write_checkpoint
from lakelog.files.filesystem import RealFile, RealFileSystem, identity_at
from lakelog.processes.shared_page import TRUSTED_S
from lakelog.recovery.clean_stop import CLEAN_STOP_FILE, UNCHANGED
from lakelog_testing.samples import copy_store

OLD: Final = b"left behind by somebody"


def note(path: Path) -> Path:
    return path / "lakelog" / CLEAN_STOP_FILE


def opened(path: Path, **more: Any) -> RecoveryReport:
    with open_small(path, **more) as store:
        assert store.recovery is not None
        return store.recovery


def read_anyway(path: Path) -> RecoveryReport:
    note(path).unlink()
    return recover_small(path, dry_run=True)


def in_place(path: Path, position: int, data: bytes) -> None:
    """Write without a change of the length."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


@pytest.mark.parametrize("count", [0, 110])
@pytest.mark.parametrize("writer", ["file", "mmap"])
def test_a_clean_stop_is_gone_by(count: int, writer: str, tmp_path: Path) -> None:
    more = {"plugins": None, "writer": writer} if writer == "mmap" else {}
    put = a_store(tmp_path, count, **more)
    end = put[-1].end_offset if put else 0
    for _ in range(2):
        report = opened(tmp_path, **more)
        assert (report.start_reason, report.end_offset) == (UNCHANGED, end)
        assert report.records == min(count, 1)
        assert not report.changed
    with open_small(tmp_path, **more) as store:
        assert store.put(Message("t", b"next", queue_id=0)).queue_offset == count
    assert opened(tmp_path, **more).start_reason == UNCHANGED


def test_it_says_what_reading_says(tmp_path: Path) -> None:
    """Also of queues that nobody has files of any more, and of a clock that was set back."""
    with open_small(tmp_path) as store:
        fill(store, 70)
        for number in range(9):
            store.put(Message("other", b"x" * 300, queue_id=number % 3))
            store.put(Message("removed", b"x" * 300, queue_id=1))
        store.delete_topic("removed")
        store.put(Message("t", b"last", queue_id=0))
    report = recover_small(tmp_path, dry_run=True)
    assert report.start_reason == UNCHANGED
    with open_small(tmp_path) as store:
        given = [
            store.put(Message(topic, b"y", queue_id=queue_id)).queue_offset
            for topic, queue_id in (("t", 0), ("other", 0), ("other", 2), ("removed", 1))
        ]
    assert given == [71, 3, 3, 9]
    full = read_anyway(tmp_path)
    assert full.start_reason != UNCHANGED
    assert full.end_offset == opened(tmp_path).end_offset


def test_it_counts_where_a_blank_ends_the_log(tmp_path: Path) -> None:
    a_store(tmp_path, 110)
    segments(tmp_path)[-1].unlink()  # what begins it is missing: the blank before it is the end
    end = opened(tmp_path).end_offset
    assert end % SEGMENT == 0
    assert (opened(tmp_path).start_reason, opened(tmp_path).end_offset) == (UNCHANGED, end)


def test_a_reader_goes_by_it(tmp_path: Path) -> None:
    put = a_store(tmp_path, 40)
    with read_small(tmp_path) as reader:
        assert reader.max_offset == put[-1].end_offset
        with open_small(tmp_path) as store:
            more = fill(store, 5)
            assert not note(tmp_path).exists()
        assert reader.max_offset == more[-1].end_offset
        in_place(segments(tmp_path)[-1], more[-1].physical_offset % SEGMENT, b"\x00" * 100)
        time.sleep(2 * TRUSTED_S)  # for which a reader does not look again
        assert reader.max_offset == more[-2].end_offset
        assert reader.max_offset == more[-2].end_offset


def behind(path: Path) -> None:
    """A byte right behind the end, as by `dd conv=notrunc`."""
    in_place(segments(path)[-1], end_of(path) % SEGMENT, OLD)


def behind_and_far(path: Path) -> None:
    """Further behind than anybody would look."""
    in_place(segments(path)[-1], SEGMENT - len(OLD), OLD)


def behind_and_dated_back(path: Path) -> None:
    """The same by somebody who sets the time of change to what it was."""
    before = segments(path)[-1].stat()
    behind_and_far(path)
    os.utime(segments(path)[-1], ns=(before.st_atime_ns, before.st_mtime_ns))


def end_of(path: Path) -> int:
    stop: int = json.loads(note(path).read_text())["stop"]["end_offset"]
    return stop


def replace_last(path: Path) -> None:
    """A backup that was put back: the same bytes and times in another file."""
    last = segments(path)[-1]
    shutil.copy2(last, path / "copy")
    (path / "copy").rename(last)


def add_segment(path: Path) -> None:
    start = int(segments(path)[-1].name) + SEGMENT
    (path / "commitlog" / f"{start:020d}").write_bytes(bytes(SEGMENT))


def rewrite_checkpoint(path: Path) -> None:
    write_checkpoint(RealFileSystem(), path, read_checkpoint(RealFileSystem(), path))


def start_as_rocketmq(path: Path) -> None:
    """It writes to `lock` whenever it starts, before it appends."""
    in_place(path / "lock", 0, b"lock")


def other_checkpoint(path: Path) -> None:
    found = read_checkpoint(RealFileSystem(), path)
    lower = found._replace(confirm_offset=found.confirm_offset - 1)
    write_checkpoint(RealFileSystem(), path, lower)


def of_another_store(path: Path) -> None:
    a_store(path.parent / "another", 41)
    shutil.copy2(note(path.parent / "another"), note(path))


def damage_last_record(path: Path) -> None:
    flip_bit(path, end_of(path) - 9)


@pytest.mark.parametrize(
    "change",
    [
        behind,
        behind_and_far,
        behind_and_dated_back,
        replace_last,
        add_segment,
        lambda path: segments(path)[-1].unlink(),
        lambda path: segments(path)[0].unlink(),
        lambda path: os.truncate(segments(path)[-1], SEGMENT // 2),
        lambda path: os.truncate(segments(path)[0], SEGMENT // 2),
        lambda path: os.truncate(segments(path)[-1], 2 * SEGMENT),
        damage_last_record,
        rewrite_checkpoint,
        other_checkpoint,
        start_as_rocketmq,
        crash,
        lambda path: (path / "lakelog" / "queues.json").unlink(),
        lambda path: shutil.rmtree(path / "consumequeue" / "t" / "0"),
        of_another_store,
        lambda path: note(path).write_bytes(b"[1, 2]\n"),
        lambda path: note(path).write_text(
            note(path).read_text().replace('"minimum": 0', '"minimum": 1')
        ),
        lambda path: note(path).write_text(
            note(path).read_text().replace('"version": 1', '"version": 2')
        ),
    ],
)
def test_what_somebody_changed_is_read(change: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "store"
    a_store(path, 110)
    assert recover_small(path, dry_run=True).start_reason == UNCHANGED
    change(path)
    report = opened(path, on_damage="cut-end")
    assert report.start_reason != UNCHANGED
    assert log_bytes(path)[report.end_offset :].strip(b"\x00") == b""
    assert opened(path).start_reason == UNCHANGED  # it was noted anew


def test_a_unit_behind_the_end_is_looked_into(tmp_path: Path) -> None:
    put = a_store(tmp_path, 110)
    (queue,) = (tmp_path / "consumequeue" / "t" / "0").iterdir()
    end = put[-1].end_offset
    in_place(queue, 110 * 20, end.to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(8))
    report = opened(tmp_path)
    assert report.start_reason != UNCHANGED
    assert [each.end_offset for each in report.missing] == [end + 100]


def test_queues_of_an_older_backup_are_completed(tmp_path: Path) -> None:
    """They agree with their list, but lack the last messages of the log."""
    a_store(tmp_path, 10)
    (queue,) = (tmp_path / "consumequeue" / "t" / "0").iterdir()
    files = {each: each.read_bytes() for each in (queue, tmp_path / "lakelog" / "queues.json")}
    with open_small(tmp_path) as store:
        fill(store, 5)
    for file, before in files.items():
        file.write_bytes(before)
    assert recover_small(tmp_path, dry_run=True).start_reason != UNCHANGED
    with open_small(tmp_path) as store:
        assert len(store.get("t", 0, 0, 100).messages) == 15


def test_any_torn_or_flipped_note_is_read_over(tmp_path: Path) -> None:
    put = a_store(tmp_path, 3)
    whole = note(tmp_path).read_bytes()
    for at in range(0, len(whole) - 1, 31):
        for text in (whole[:at], whole[:at] + bytes([whole[at] ^ 2]) + whole[at + 1 :]):
            note(tmp_path).write_bytes(text)
            report = recover_small(tmp_path, dry_run=True)
            assert report.start_reason != UNCHANGED
            assert report.end_offset == put[-1].end_offset


def test_a_copy_of_a_store_is_read_once(tmp_path: Path) -> None:
    a_store(tmp_path / "store", 110)
    copy_store(tmp_path / "store", tmp_path / "copy")
    assert opened(tmp_path / "copy").start_reason != UNCHANGED
    assert opened(tmp_path / "copy").start_reason == UNCHANGED
    assert opened(tmp_path / "store").start_reason == UNCHANGED


@pytest.mark.parametrize(
    "more", [{"require_record_crc": True}, {"commitlog_path": "elsewhere"}], ids=str
)
def test_other_settings_read_the_log(more: dict[str, Any], tmp_path: Path) -> None:
    a_store(tmp_path / "store", 110, record_crc=True)
    if "commitlog_path" in more:
        copy_store(tmp_path / "store" / "commitlog", tmp_path / "elsewhere")
        more = {"commitlog_path": str(tmp_path / "elsewhere")}
    assert opened(tmp_path / "store", **more).start_reason != UNCHANGED
    assert opened(tmp_path / "store", **more).start_reason == UNCHANGED


def test_it_is_gone_before_the_store_is_open_and_there_before_abort_goes(
    tmp_path: Path,
) -> None:
    a_store(tmp_path, 10)
    files = SeenFiles()
    store = open_small(tmp_path, files=files)
    gone = files.named().index(("unlink", CLEAN_STOP_FILE))
    assert files.named()[gone + 1] == ("sync_dir", "lakelog")
    assert files.named().index(("open", "abort")) < gone
    assert not note(tmp_path).exists()
    files.seen.clear()
    store.close()
    there = files.named().index(("rename", CLEAN_STOP_FILE))
    assert files.named()[there + 1] == ("sync_dir", "lakelog")
    assert there < files.named().index(("unlink", "abort"))


def test_without_exact_times_nothing_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a file system that keeps times in whole seconds."""
    monkeypatch.setattr(RealFile, "stamp", lambda _: None)
    put = a_store(tmp_path, 10)
    assert not note(tmp_path).exists()
    with open_small(tmp_path) as store:
        assert offsets(store) == starts(put)


def test_where_it_cannot_be_written_the_stop_is_a_clean_one_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = FaultyFiles()
    with open_small(tmp_path, files=files) as store:
        put = fill(store, 10)
        files.failing.add("stamp")
    assert "cannot be noted" in caplog.text
    assert not (tmp_path / "abort").exists()
    assert opened(tmp_path).end_offset == put[-1].end_offset


def test_a_write_in_the_same_tick_of_the_clock_is_noticed(tmp_path: Path) -> None:
    """The kernel's time of change is the same for writes that follow at once."""
    path = tmp_path / "file"
    for _ in range(100):
        path.write_bytes(bytes(100))
        file = RealFileSystem().open(path, write=True)
        stamped = file.stamp()
        assert stamped is not None
        assert identity_at(path) == stamped
        file.write_at(5, b"x")
        assert identity_at(path) != stamped
        file.close()
        path.unlink()
