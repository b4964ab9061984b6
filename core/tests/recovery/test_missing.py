"""A log that lost its end after it was durable: it is said, and noted."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from core.tests.recovery.support import crash, open_and_close, recover_small
from core.tests.store.support import a_store, open_small, refused, segments
from lakelog.errors import BadSegment, StoreError

LOSSES = pytest.mark.parametrize(
    "lose",
    [
        Path.unlink,
        lambda last: last.write_bytes(bytes(last.stat().st_size)),
        lambda last: os.truncate(last, 0),
    ],
    ids=["removed", "zeroed", "emptied"],
)


@LOSSES
@pytest.mark.parametrize("clean", [True, False])
def test_a_lost_end_is_said_and_noted(
    tmp_path: Path, lose: Callable[[Path], object], clean: bool
) -> None:
    end = a_store(tmp_path)[-1].end_offset
    lose(segments(tmp_path)[-1])
    if not clean:
        crash(tmp_path)
    report = recover_small(tmp_path)
    assert {each.end_offset for each in report.missing} == {end}
    assert {each.offset for each in report.missing} == {report.end_offset}
    assert len(report.missing) == (3 if clean else 1)
    assert recover_small(tmp_path).missing == ()
    noted = json.loads((tmp_path / "lakelog" / "missing.json").read_text())
    assert noted["missing"][0]["end_offset"] == end
    assert noted["next_offsets"] == {"t": {"0": 100}}


@LOSSES
def test_refuse_refuses_before_anything_is_changed(
    tmp_path: Path, lose: Callable[[Path], object]
) -> None:
    a_store(tmp_path)
    lose(segments(tmp_path)[-1])
    for way in (partial(recover_small, dry_run=True), open_small):
        with refused(tmp_path, BadSegment, "on_damage", "once"):
            way(tmp_path, on_damage="refuse")


def test_an_owner_that_died_vouches_for_what_it_synced(tmp_path: Path) -> None:
    """Its checkpoint is beyond the last mark; ``abort`` and its page name the same process."""
    a_store(tmp_path, 20)
    kept = (tmp_path / "lakelog" / "queues.json").read_bytes()
    results = a_store(tmp_path)
    (tmp_path / "lakelog" / "queues.json").write_bytes(kept)
    (tmp_path / "abort").write_text(str(os.getpid()))
    segments(tmp_path)[-1].unlink()
    (missing,) = recover_small(tmp_path, dry_run=True).missing
    assert missing.end_offset == results[-1].end_offset
    (tmp_path / "abort").write_text("1")  # another program ran since
    assert recover_small(tmp_path, dry_run=True).missing == ()


def test_units_that_a_power_cut_left_are_no_loss(tmp_path: Path) -> None:
    a_store(tmp_path, 20)
    checkpoint = (tmp_path / "checkpoint").read_bytes()
    kept = (tmp_path / "lakelog" / "queues.json").read_bytes()
    a_store(tmp_path)
    (tmp_path / "checkpoint").write_bytes(checkpoint)
    (tmp_path / "lakelog" / "queues.json").write_bytes(kept)
    crash(tmp_path)
    segments(tmp_path)[-1].unlink()
    assert recover_small(tmp_path, on_damage="refuse").missing == ()


def test_a_whole_log_that_is_gone_is_refused(tmp_path: Path) -> None:
    a_store(tmp_path)
    for each in segments(tmp_path):
        each.unlink()
    with refused(tmp_path, StoreError, "check that the disk is mounted", "To begin a new log"):
        open_small(tmp_path)
    with refused(tmp_path, StoreError, "check that the disk is mounted"):
        recover_small(tmp_path)
    (tmp_path / "checkpoint").unlink()
    (tmp_path / "lakelog" / "queues.json").unlink()
    with refused(tmp_path, StoreError, "there are queues"):
        open_small(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue")
    assert recover_small(tmp_path, dry_run=True).end_offset == 0
    open_and_close(tmp_path)


def test_a_log_elsewhere_that_is_not_mounted_is_refused(tmp_path: Path) -> None:
    path, log = tmp_path / "store", tmp_path / "log"
    a_store(path, 20, commitlog_path=log)
    for each in log.iterdir():
        each.unlink()
    with refused(path, StoreError, str(log), "check that the disk is mounted"):
        open_small(path, commitlog_path=log)


def test_an_empty_store_opens_again(tmp_path: Path) -> None:
    open_and_close(tmp_path)
    assert recover_small(tmp_path, dry_run=True).end_offset == 0
    open_and_close(tmp_path)
