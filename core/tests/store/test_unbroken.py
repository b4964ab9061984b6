"""A scan beside deletions: what went away unread is an error, and no empty log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakelog.errors import OffsetOutOfRange
from lakelog.log.reading.pieces import Damage
from lakelog.log.reading.sources import Extent, NoGapSource


class AllGone:
    """A log all of whose files went away between the look at their folder and their opening."""

    def known_damage(self) -> dict[int, Damage]:
        return {}

    def starts(self) -> list[int]:
        return []

    def extents(self, start: int) -> Iterator[Extent]:
        return iter(())


def test_a_log_whose_files_all_went_before_they_were_opened_is_no_empty_one() -> None:
    assert list(NoGapSource(AllGone(), lambda: 0).extents(0)) == []
    with pytest.raises(OffsetOutOfRange, match="deleted by retention"):
        list(NoGapSource(AllGone(), lambda: 4096).extents(0))
