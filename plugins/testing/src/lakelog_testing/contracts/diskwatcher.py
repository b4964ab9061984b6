"""Contract tests for disk-space watchers: they return a report, and change nothing."""

from __future__ import annotations

import os
from pathlib import Path

from lakelog.interfaces import DiskReport, DiskState, DiskWatcher
from lakelog.registry import check_object


class DiskWatcherContract:
    """Subclass it and define :meth:`make`; each test creates its own watcher."""

    def make(self) -> DiskWatcher:
        """Create a watcher."""
        raise NotImplementedError

    def test_it_has_the_methods_of_its_kind(self) -> None:
        assert check_object(self.make(), DiskWatcher) is None

    def test_it_answers_with_a_report(self, tmp_path: Path) -> None:
        report = self.make().observe([tmp_path])
        assert isinstance(report, DiskReport)
        assert isinstance(report.state, DiskState)

    def test_it_says_how_full_the_disk_of_each_path_is(self, tmp_path: Path) -> None:
        below = tmp_path / "commitlog"
        below.mkdir()
        paths = [below, tmp_path, below]
        report = self.make().observe(paths)
        assert [each.path for each in report.disks] == paths
        assert all(0 <= each.used_ratio <= 1 for each in report.disks)
        assert all(0 <= each.free_bytes <= each.total_bytes for each in report.disks)

    def test_it_says_why_unless_all_is_well(self, tmp_path: Path) -> None:
        report = self.make().observe([tmp_path])
        assert bool(report.reason) is (report.state is not DiskState.OK)

    def test_several_paths_on_one_disk_are_one_disk(self, tmp_path: Path) -> None:
        below = tmp_path / "commitlog"
        below.mkdir()
        watcher = self.make()
        assert watcher.observe([tmp_path, below]).state is watcher.observe([below]).state

    def test_a_path_that_is_not_there_yet_is_on_the_disk_of_its_parent(
        self, tmp_path: Path
    ) -> None:
        report = self.make().observe([tmp_path / "not" / "there"])
        assert report.disks[0].path == tmp_path / "not" / "there"

    def test_it_changes_nothing(self, tmp_path: Path) -> None:
        self.make().observe([tmp_path])
        assert os.listdir(tmp_path) == []
