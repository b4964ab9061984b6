"""``psutil``, on simulated disks."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from lakelog.interfaces import DiskState
from lakelog_retention.measure import measure
from lakelog_retention.settings import WatcherSettings
from lakelog_retention.watcher import PsutilWatcher
from plugins.retention.tests.support import Disks

LOG, QUEUES = Path("/a/commitlog"), Path("/b/consumequeue")


@pytest.fixture
def disks() -> Disks:
    made = Disks()
    made.put("/a", 0.5)
    made.put("/b", 0.5)
    return made


def watcher(disks: Disks, **settings: Any) -> PsutilWatcher:
    return PsutilWatcher(WatcherSettings(**settings), disks)


@pytest.mark.parametrize(
    ("used", "state", "reason"),
    [
        (0.75, DiskState.OK, ""),
        (0.751, DiskState.CLEAN, "75.1% are used, max_used_ratio is 75.0%"),
        (0.85, DiskState.CLEAN, "85.0% are used, max_used_ratio is 75.0%"),
        (0.851, DiskState.CLEAN_FORCIBLY, "85.1% are used, clean_forcibly_ratio is 85.0%"),
        (0.9, DiskState.CLEAN_FORCIBLY, "90.0% are used, clean_forcibly_ratio is 85.0%"),
        (0.901, DiskState.STOP_WRITING, "90.1% are used, warning_ratio is 90.0%"),
        (1, DiskState.STOP_WRITING, "100.0% are used, warning_ratio is 90.0%"),
    ],
)
def test_the_lines(disks: Disks, used: float, state: DiskState, reason: str) -> None:
    disks.put("/a", used)
    report = watcher(disks).observe([LOG])
    assert report.state is state
    assert report.reason == (f"{LOG}: {reason}" if reason else "")


def test_who_stopped_writes_again_only_below_where_it_is_cleaned_forcibly(disks: Disks) -> None:
    watching = watcher(disks)
    seen = []
    for used in (0.89, 0.91, 0.89, 0.86, 0.85, 0.89, 0.7):
        disks.put("/a", used)
        seen.append(watching.observe([LOG, QUEUES]).state)
    stop, forcibly = DiskState.STOP_WRITING, DiskState.CLEAN_FORCIBLY
    assert seen == [forcibly, stop, stop, stop, DiskState.CLEAN, forcibly, DiskState.OK]


def test_while_it_waits_it_says_so(disks: Disks) -> None:
    watching = watcher(disks)
    disks.put("/a", 0.95)
    watching.observe([LOG])
    disks.put("/a", 0.87)
    reason = watching.observe([LOG]).reason
    assert reason.endswith("clean_forcibly_ratio is 85.0%; it was fuller, and not yet below")


def test_the_fullest_decides_and_each_is_told_apart(disks: Disks) -> None:
    watching = watcher(disks)
    disks.put("/b", 0.95)
    report = watching.observe([LOG, QUEUES])
    assert (report.state, report.reason.split(":")[0]) == (DiskState.STOP_WRITING, str(QUEUES))
    assert [(each.path, each.used_ratio) for each in report.disks] == [(LOG, 0.5), (QUEUES, 0.95)]
    disks.put("/b", 0.5)
    disks.put("/a", 0.87)
    assert watching.observe([LOG, QUEUES]).state is DiskState.CLEAN_FORCIBLY, "it was the other"


def test_the_worst_state_decides_whatever_share_is_used(disks: Disks) -> None:
    disks.put("/a", 0.8)
    disks.put("/b", 0.1, inodes=1)
    report = watcher(disks, min_free_inodes=5).observe([LOG, QUEUES])
    assert report.state is DiskState.STOP_WRITING
    assert report.reason == f"{QUEUES}: 1 inodes are free, min_free_inodes is 5"


def test_one_disk_of_several_paths_is_one(disks: Disks) -> None:
    disks.put("/a", 0.8)
    report = watcher(disks).observe([Path("/a/x"), LOG, QUEUES])
    assert (report.state, report.reason.split(":")[0]) == (DiskState.CLEAN, "/a/x")
    assert [each.used_ratio for each in report.disks] == [0.8, 0.8, 0.5]


@pytest.mark.parametrize(
    ("free", "state", "reason"),
    [
        (200, DiskState.OK, ""),
        (199, DiskState.CLEAN, "199 bytes are free, 2 times min_free_bytes is 200 bytes"),
        (149, DiskState.CLEAN_FORCIBLY, "149 bytes are free, 1.5 times min_free_bytes is"),
        (99, DiskState.STOP_WRITING, "99 bytes are free, min_free_bytes is 100 bytes"),
    ],
)
def test_a_floor_of_free_bytes(disks: Disks, free: int, state: DiskState, reason: str) -> None:
    disks.put("/a", 1 - free / 1000)
    no_ratios = dict.fromkeys(("max_used_ratio", "clean_forcibly_ratio", "warning_ratio"), 1)
    watching = watcher(disks, min_free_bytes=100, **no_ratios)
    report = watching.observe([LOG])
    assert report.state is state
    assert reason in report.reason


def test_above_the_floor_again_is_half_as_much_more(disks: Disks) -> None:
    watching = watcher(disks, min_free_bytes=100, warning_ratio=1, clean_forcibly_ratio=1)
    seen = []
    for used in (0.95, 0.86, 0.85):
        disks.put("/a", used)
        seen.append(watching.observe([LOG]).state)
    assert seen == [DiskState.STOP_WRITING, DiskState.STOP_WRITING, DiskState.CLEAN]


def test_a_floor_of_inodes(disks: Disks) -> None:
    watching = watcher(disks, min_free_inodes=10)
    disks.put("/a", 0.1, inodes=9)
    report = watching.observe([LOG])
    assert report.state is DiskState.STOP_WRITING
    assert report.reason == f"{LOG}: 9 inodes are free, min_free_inodes is 10"
    disks.put("/a", 0.1, inodes=None)
    assert watching.observe([LOG]).state is DiskState.OK, "it has no limit"


def test_all_that_is_wrong_is_said(disks: Disks) -> None:
    disks.put("/a", 0.95, inodes=1)
    reason = watcher(disks, min_free_bytes=60, min_free_inodes=10).observe([LOG]).reason
    assert [part.split()[-3] for part in reason.split("; ")] == [
        "warning_ratio",
        "is",
        "min_free_inodes",
    ]


def test_what_must_stay_free_for_puts_to_go_on(disks: Disks) -> None:
    assert watcher(disks).observe([LOG]).disks[0].keep_free_bytes == 100
    floor = watcher(disks, min_free_bytes=300).observe([LOG])
    assert [each.keep_free_bytes for each in floor.disks] == [300]


def test_a_disk_that_cannot_be_asked() -> None:
    def broken(_: Path) -> Any:
        raise OSError(5, "broken")

    with pytest.raises(OSError, match="broken"):
        PsutilWatcher(WatcherSettings(), broken).observe([LOG])


def test_no_paths_are_no_disks(disks: Disks) -> None:
    report = watcher(disks).observe([])
    assert (report.state, report.disks) == (DiskState.OK, ())


def test_the_real_meter_says_what_df_does(tmp_path: Path) -> None:
    found = measure(tmp_path / "not" / "there")
    usage = shutil.disk_usage(tmp_path)
    assert found.device == os.stat(tmp_path).st_dev
    assert abs(found.used_bytes - usage.used) < 1 << 30, "others write at the same time"
    assert found.free_inodes is None or found.free_inodes > 0


@pytest.mark.parametrize(("files", "expected"), [(0, None), (100, 7)])
def test_some_file_systems_have_no_limit_of_inodes(
    files: int, expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.statvfs(tmp_path)
    said = os.statvfs_result((*real[:5], files, 9, 7, *real[8:]))
    monkeypatch.setattr(os, "statvfs", lambda _: said)
    assert measure(tmp_path).free_inodes == expected


def test_a_relative_path_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert measure(Path("store")).device == os.stat(tmp_path).st_dev
