"""Contract tests for cleaners: decisions must depend only on the arguments."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import pytest

from lakelog.interfaces import Cleaner, CleaningContext, DeletionRate, DiskState, SegmentInfo
from lakelog.registry import check_object

HOUR_MS = 3_600_000
SEGMENT_BYTES = 1 << 20
NOW_MS = 1_700_000_000_000


def situations() -> Iterable[CleaningContext]:
    """One situation per state of the disks, automatic and requested by a user."""
    for state in DiskState:
        for manual in (False, True):
            yield CleaningContext(NOW_MS, state, manual, free_bytes=1 << 30, used_ratio=0.8)


def _name(situation: CleaningContext) -> str:
    return situation.disk.value + ("-manual" if situation.manual else "")


EACH = pytest.mark.parametrize("situation", list(situations()), ids=_name)


class CleanerContract:
    """Subclass it and define :meth:`make`; each test creates its own cleaner."""

    def make(self) -> Cleaner:
        """Create a cleaner."""
        raise NotImplementedError

    def segments(self) -> list[SegmentInfo]:
        """Segments of thirty days, one per day, oldest first; some are in use or pinned."""
        return [
            SegmentInfo(
                start_offset=day * SEGMENT_BYTES,
                size_bytes=SEGMENT_BYTES,
                last_timestamp_ms=NOW_MS - (30 - day) * 24 * HOUR_MS,
                readers=day % 3,
                pinned_by=("lake",) if day > 20 else (),
            )
            for day in range(30)
        ]

    def test_it_is_what_its_kind_asks_for(self) -> None:
        assert check_object(self.make(), Cleaner) is None

    def test_it_says_its_pace(self) -> None:
        assert isinstance(self.make().pace, DeletionRate)

    @EACH
    def test_of_nothing_it_deletes_nothing(self, situation: CleaningContext) -> None:
        assert list(self.make().choose([], situation)) == []

    @EACH
    def test_each_decision_has_a_reason(self, situation: CleaningContext) -> None:
        chosen = self.make().choose(self.segments(), situation)
        assert all(deletion.reason.strip() for deletion in chosen)

    @EACH
    def test_it_goes_from_the_first_on_and_leaves_no_gap(self, situation: CleaningContext) -> None:
        given = self.segments()
        chosen = self.make().choose(given, situation)
        front = [segment.start_offset for segment in given[: len(chosen)]]
        assert [deletion.start_offset for deletion in chosen] == front

    @EACH
    def test_a_log_that_does_not_begin_at_zero_is_no_other(
        self, situation: CleaningContext
    ) -> None:
        given = self.segments()
        away = [attrs.evolve(each, start_offset=each.start_offset + (1 << 40)) for each in given]
        of_both = [len(self.make().choose(segments, situation)) for segments in (given, away)]
        assert of_both[0] == of_both[1]

    @EACH
    def test_the_same_question_has_the_same_answer(self, situation: CleaningContext) -> None:
        cleaner, given = self.make(), self.segments()
        first = list(cleaner.choose(given, situation))
        assert list(cleaner.choose(given, situation)) == first
        assert list(self.make().choose(given, situation)) == first

    @EACH
    def test_it_changes_nothing_of_what_it_was_given(self, situation: CleaningContext) -> None:
        given = self.segments()
        self.make().choose(given, situation)
        assert given == self.segments()

    def test_a_clock_that_runs_backwards_does_no_harm(self) -> None:
        given = self.segments()
        chosen = self.make().choose(given, CleaningContext(0))
        assert [each.start_offset for each in chosen] == [
            each.start_offset for each in given[: len(chosen)]
        ]
