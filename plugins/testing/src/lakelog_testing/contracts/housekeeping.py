"""Contract tests for what keeps a disk from being full, and for what is left of it elsewhere.

Decisions of cleaners depend on their arguments only. Disk-space watchers return a report, and
change nothing. Sources of deleted segments return them byte for byte.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from lakelog import hooks
from lakelog.errors import StoreError
from lakelog.registry import check_object
from lakelog_testing.faultyfile import assert_same

Situation: TypeAlias = hooks.CleaningContext
HOUR_MS = 3_600_000
SEGMENT_BYTES = 1 << 20
NOW_MS = 1_700_000_000_000


def situations() -> Iterable[Situation]:
    """One situation per state of the disks, automatic and requested by a user."""
    for state in hooks.DiskState:
        for manual in (False, True):
            yield Situation(NOW_MS, state, manual, free_bytes=1 << 30, used_ratio=0.8)


def _name(situation: Situation) -> str:
    return situation.disk.value + ("-manual" if situation.manual else "")


EACH = pytest.mark.parametrize("situation", list(situations()), ids=_name)


class CleanerContract:
    """Subclass it and define :meth:`make`; each test creates its own cleaner."""

    def make(self) -> hooks.Cleaner:
        """Create a cleaner."""
        raise NotImplementedError

    def segments(self) -> list[hooks.SegmentInfo]:
        """Segments of thirty days, one per day, oldest first; some are pinned."""
        return [
            hooks.SegmentInfo(
                start_offset=day * SEGMENT_BYTES,
                size_bytes=SEGMENT_BYTES,
                last_timestamp_ms=NOW_MS - (30 - day) * 24 * HOUR_MS,
                pinned_by=("lake",) if day > 20 else (),
            )
            for day in range(30)
        ]

    def test_it_is_what_its_kind_asks_for(self) -> None:
        assert check_object(self.make(), hooks.Cleaner) is None

    def test_it_says_its_pace(self) -> None:
        assert isinstance(self.make().pace, hooks.DeletionRate)

    @EACH
    def test_of_nothing_it_deletes_nothing(self, situation: Situation) -> None:
        assert list(self.make().choose([], situation)) == []

    @EACH
    def test_each_decision_has_a_reason(self, situation: Situation) -> None:
        chosen = self.make().choose(self.segments(), situation)
        assert all(deletion.reason.strip() for deletion in chosen)

    @EACH
    def test_it_goes_from_the_first_on_and_leaves_no_gap(self, situation: Situation) -> None:
        given = self.segments()
        check_front(given, self.make().choose(given, situation))

    @EACH
    def test_a_log_that_does_not_begin_at_zero_is_no_other(self, situation: Situation) -> None:
        given = self.segments()
        away = [each._replace(start_offset=each.start_offset + (1 << 40)) for each in given]
        of_both = [len(self.make().choose(segments, situation)) for segments in (given, away)]
        assert of_both[0] == of_both[1]

    @EACH
    def test_the_same_question_has_the_same_answer(self, situation: Situation) -> None:
        cleaner, given = self.make(), self.segments()
        first = list(cleaner.choose(given, situation))
        assert list(cleaner.choose(given, situation)) == first
        assert list(self.make().choose(given, situation)) == first

    @EACH
    def test_it_changes_nothing_of_what_it_was_given(self, situation: Situation) -> None:
        given = self.segments()
        self.make().choose(given, situation)
        assert given == self.segments()

    def test_a_clock_that_runs_backwards_does_no_harm(self) -> None:
        given = self.segments()
        check_front(given, self.make().choose(given, Situation(0)))


def check_front(given: Sequence[hooks.SegmentInfo], chosen: Sequence[hooks.Deletion]) -> None:
    """Check that these are the oldest segments, without a gap."""
    front = [segment.start_offset for segment in given[: len(chosen)]]
    assert [deletion.start_offset for deletion in chosen] == front


class DiskWatcherContract:
    """Subclass it and define :meth:`make`; each test creates its own watcher."""

    def make(self) -> hooks.DiskWatcher:
        """Create a watcher."""
        raise NotImplementedError

    def test_it_has_the_methods_of_its_kind(self) -> None:
        assert check_object(self.make(), hooks.DiskWatcher) is None

    def test_it_answers_with_a_report(self, tmp_path: Path) -> None:
        report = self.make().observe([tmp_path])
        assert isinstance(report, hooks.DiskReport)
        assert isinstance(report.state, hooks.DiskState)

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
        assert bool(report.reason) is (report.state is not hooks.DiskState.OK)

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


ARCHIVED_BYTES = 64 << 10


class SegmentSourceContract:
    """Subclass it and define :meth:`make`, which creates a source with given segments."""

    def make(self, segments: Mapping[int, bytes]) -> hooks.SegmentSource:
        """Create a source.

        :param segments: its contents by start offset; in any order
        """
        raise NotImplementedError

    def made(self) -> tuple[hooks.SegmentSource, dict[int, bytes]]:
        """A source of three segments, with a gap between two of them."""
        starts = [5 * ARCHIVED_BYTES, 0, ARCHIVED_BYTES]
        segments = {start: os.urandom(ARCHIVED_BYTES) for start in starts}
        return self.make(segments), segments

    def test_it_has_the_methods_of_its_kind(self) -> None:
        assert check_object(self.make({}), hooks.SegmentSource) is None

    def test_an_empty_one_has_nothing(self) -> None:
        assert list(self.make({}).starts()) == []

    def test_it_says_what_it_has_in_order(self) -> None:
        source, segments = self.made()
        assert list(source.starts()) == sorted(segments)

    def test_it_gives_back_any_range(self) -> None:
        source, segments = self.made()
        whole = (0, ARCHIVED_BYTES)
        for position, length in [(0, 8), whole, (4000, 5000), (ARCHIVED_BYTES - 1, 1), (17, 3)]:
            for start, content in segments.items():
                found = source.read(start, position, length)
                assert_same(found, content[position : position + length])

    def test_what_it_does_not_have_is_an_error_of_the_store(self) -> None:
        source, _ = self.made()
        with pytest.raises(StoreError):
            source.read(3 * ARCHIVED_BYTES, 0, 8)
