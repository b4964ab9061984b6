"""What every cleaner must do: decide, from what it is given alone."""

from __future__ import annotations

import pytest

from lakelog.interfaces import Cleaner, DiskState, SegmentInfo
from lakelog.registry import check_object

HOUR_MS = 3_600_000
SEGMENT_BYTES = 1 << 20
NOW_MS = 1_700_000_000_000


class CleanerContract:
    """Subclass it, and say in :meth:`make` how a cleaner is made; each test makes its own."""

    def make(self) -> Cleaner:
        """Make a cleaner."""
        raise NotImplementedError

    def segments(self) -> list[SegmentInfo]:
        """Segments of thirty days, one a day, oldest first; some are read or still needed."""
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

    def test_it_has_the_methods_of_its_kind(self) -> None:
        assert check_object(self.make(), Cleaner) is None

    @pytest.mark.parametrize("state", DiskState)
    def test_of_nothing_it_deletes_nothing(self, state: DiskState) -> None:
        assert list(self.make().choose([], state, NOW_MS)) == []

    @pytest.mark.parametrize("state", DiskState)
    def test_it_deletes_what_it_was_given_oldest_first_with_a_reason(
        self, state: DiskState
    ) -> None:
        given = self.segments()
        chosen = self.make().choose(given, state, NOW_MS)
        offsets = [deletion.start_offset for deletion in chosen]
        assert offsets == sorted(set(offsets))
        assert set(offsets) <= {segment.start_offset for segment in given}
        assert all(deletion.reason for deletion in chosen)

    @pytest.mark.parametrize("state", DiskState)
    def test_it_leaves_no_gap(self, state: DiskState) -> None:
        given = self.segments()
        chosen = self.make().choose(given, state, NOW_MS)
        front = [segment.start_offset for segment in given[: len(chosen)]]
        assert [deletion.start_offset for deletion in chosen] == front

    def test_a_clock_that_runs_backwards_does_no_harm(self) -> None:
        given = self.segments()
        self.make().choose(given, DiskState.OK, 0)
        assert given == self.segments()
