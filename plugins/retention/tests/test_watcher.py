"""``psutil``, on simulated disks."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import attrs
import pytest

from lakelog.hooks import DiskState
from lakelog_retention.settings import WatcherSettings
from lakelog_retention.watcher import Measure, PsutilWatcher, measure

LOG, QUEUES = Path("/a/commitlog"), Path("/b/consumequeue")
OK, CLEAN, FORCIBLY, STOP = DiskState


@attrs.define
class Disks:
    """A meter: folders are on the disk of their nearest named parent."""

    sizes: dict[Path, Measure] = attrs.field(factory=dict)

    def put(self, path: str, used: float, total: int = 1000, inodes: int | None = None) -> None:
        """A disk of ``total`` bytes with the ratio ``used`` in use."""
        taken = round(used * total)
        device = self.sizes[Path(path)].device if Path(path) in self.sizes else len(self.sizes)
        self.sizes[Path(path)] = Measure(device, taken, total - taken, inodes)

    def __call__(self, path: Path) -> Measure:
        return next(self.sizes[each] for each in (path, *path.parents) if each in self.sizes)


@pytest.fixture
def disks() -> Disks:
    made = Disks()
    made.put("/a", 0.5)
    made.put("/b", 0.5)
    return made


def watcher(disks: Disks, **settings: Any) -> PsutilWatcher:
    return PsutilWatcher(WatcherSettings(**settings), disks)


FLOOR = {
    "min_free_bytes": 100,
    **dict.fromkeys(("max_used_ratio", "clean_forcibly_ratio", "warning_ratio"), 1),
}


@pytest.mark.parametrize(
    ("settings", "used", "state", "reason"),
    [
        ({}, 0.75, OK, ""),
        ({}, 0.751, CLEAN, "75.1% are used, max_used_ratio is 75.0%"),
        ({}, 0.85, CLEAN, "85.0% are used, max_used_ratio is 75.0%"),
        ({}, 0.851, FORCIBLY, "85.1% are used, clean_forcibly_ratio is 85.0%"),
        ({}, 0.9, FORCIBLY, "90.0% are used, clean_forcibly_ratio is 85.0%"),
        ({}, 0.901, STOP, "90.1% are used, warning_ratio is 90.0%"),
        (FLOOR, 0.8, OK, ""),
        (FLOOR, 0.801, CLEAN, "199 bytes are free, 2 times min_free_bytes is 200 bytes"),
        (FLOOR, 0.851, FORCIBLY, "149 bytes are free, 1.5 times min_free_bytes is 150 bytes"),
        (FLOOR, 0.901, STOP, "99 bytes are free, min_free_bytes is 100 bytes"),
    ],
)
def test_the_lines(
    disks: Disks, settings: dict[str, Any], used: float, state: DiskState, reason: str
) -> None:
    disks.put("/a", used)
    report = watcher(disks, **settings).observe([LOG])
    assert report.state is state
    assert report.reason == (f"{LOG}: {reason}" if reason else "")


def test_who_stopped_writes_again_only_below_where_it_is_cleaned_forcibly(disks: Disks) -> None:
    watching = watcher(disks)
    seen = []
    for used in (0.89, 0.91, 0.89, 0.86, 0.85, 0.89, 0.7):
        disks.put("/a", used)
        report = watching.observe([LOG, QUEUES])
        seen.append(report.state)
        if used == 0.86:
            waits = "clean_forcibly_ratio is 85.0%; it was fuller, and not yet below"
            assert report.reason.endswith(waits)
    assert seen == [FORCIBLY, STOP, STOP, STOP, CLEAN, FORCIBLY, OK]


def test_above_the_floor_again_is_half_as_much_more(disks: Disks) -> None:
    watching = watcher(disks, min_free_bytes=100, warning_ratio=1, clean_forcibly_ratio=1)
    seen = []
    for used in (0.95, 0.86, 0.85):
        disks.put("/a", used)
        seen.append(watching.observe([LOG]).state)
    assert seen == [STOP, STOP, CLEAN]


def test_the_fullest_decides_and_each_is_told_apart(disks: Disks) -> None:
    watching = watcher(disks)
    disks.put("/b", 0.95)
    report = watching.observe([Path("/a/x"), LOG, QUEUES])
    assert (report.state, report.reason.split(":")[0]) == (STOP, str(QUEUES))
    assert [each.used_ratio for each in report.disks] == [0.5, 0.5, 0.95]
    disks.put("/b", 0.5)
    disks.put("/a", 0.87)
    assert watching.observe([LOG, QUEUES]).state is FORCIBLY, "it was the other"


def test_the_worst_state_decides_whatever_share_is_used(disks: Disks) -> None:
    disks.put("/a", 0.8)
    disks.put("/b", 0.1, inodes=1)
    report = watcher(disks, min_free_inodes=5).observe([LOG, QUEUES])
    assert report.state is STOP
    assert report.reason == f"{QUEUES}: 1 inodes are free, min_free_inodes is 5"
    disks.put("/b", 0.1, inodes=None)
    assert watcher(disks, min_free_inodes=5).observe([QUEUES]).state is OK, "it has no limit"


def test_all_that_is_wrong_is_said(disks: Disks) -> None:
    disks.put("/a", 0.95, inodes=1)
    reason = watcher(disks, min_free_bytes=60, min_free_inodes=10).observe([LOG]).reason
    assert [part.split()[-3] for part in reason.split("; ")] == [
        *("warning_ratio", "is", "min_free_inodes")
    ]


def test_what_must_stay_free_for_puts_to_go_on(disks: Disks) -> None:
    assert watcher(disks).observe([LOG]).disks[0].keep_free_bytes == 100
    floor = watcher(disks, min_free_bytes=300).observe([LOG])
    assert [each.keep_free_bytes for each in floor.disks] == [300]


@pytest.mark.parametrize(("files", "expected"), [(0, None), (100, 7)])
def test_the_real_meter_says_what_df_does(
    files: int, expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a path that is not there, and a relative one; some file systems count no inodes."""
    monkeypatch.chdir(tmp_path)
    real = os.statvfs(tmp_path)
    said = os.statvfs_result((*real[:5], files, 9, 7, *real[8:]))
    monkeypatch.setattr(os, "statvfs", lambda _: said)
    found = measure(Path("not") / "there")
    assert found.device == os.stat(tmp_path).st_dev
    assert abs(found.used_bytes - shutil.disk_usage(tmp_path).used) < 1 << 30
    assert found.free_inodes == expected
