"""What every disk-space watcher must do: answer with a state, and change nothing."""

from __future__ import annotations

from pathlib import Path

from lakelog.interfaces import DiskState, DiskWatcher
from lakelog.registry import check_object


class DiskWatcherContract:
    """Subclass it, and say in :meth:`make` how a watcher is made; each test makes its own."""

    def make(self) -> DiskWatcher:
        """Make a watcher."""
        raise NotImplementedError

    def test_it_has_the_methods_of_its_kind(self) -> None:
        assert check_object(self.make(), DiskWatcher) is None

    def test_it_answers_with_a_state(self, tmp_path: Path) -> None:
        assert isinstance(self.make().observe([tmp_path]), DiskState)

    def test_several_paths_on_one_disk_are_one_disk(self, tmp_path: Path) -> None:
        below = tmp_path / "commitlog"
        below.mkdir()
        watcher = self.make()
        assert watcher.observe([tmp_path, below, tmp_path]) is watcher.observe([below])

    def test_it_changes_nothing(self, tmp_path: Path) -> None:
        self.make().observe([tmp_path])
        assert list(tmp_path.iterdir()) == []
