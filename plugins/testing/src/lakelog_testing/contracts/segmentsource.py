"""Contract tests for sources of deleted segments: they return them byte for byte."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from lakelog.errors import StoreError
from lakelog.interfaces import SegmentSource
from lakelog.registry import check_object
from lakelog_testing.samebytes import assert_same

SEGMENT_BYTES = 64 << 10


class SegmentSourceContract:
    """Subclass it and define :meth:`make`, which creates a source with given segments."""

    def make(self, segments: Mapping[int, bytes]) -> SegmentSource:
        """Create a source.

        :param segments: its contents by start offset; in any order
        """
        raise NotImplementedError

    def made(self) -> tuple[SegmentSource, dict[int, bytes]]:
        """A source of three segments, with a gap between two of them."""
        starts = [5 * SEGMENT_BYTES, 0, SEGMENT_BYTES]
        segments = {start: os.urandom(SEGMENT_BYTES) for start in starts}
        return self.make(segments), segments

    def test_it_has_the_methods_of_its_kind(self) -> None:
        assert check_object(self.make({}), SegmentSource) is None

    def test_an_empty_one_has_nothing(self) -> None:
        assert list(self.make({}).starts()) == []

    def test_it_says_what_it_has_in_order(self) -> None:
        source, segments = self.made()
        assert list(source.starts()) == sorted(segments)

    def test_it_gives_back_any_range(self) -> None:
        source, segments = self.made()
        whole = (0, SEGMENT_BYTES)
        for position, length in [(0, 8), whole, (4000, 5000), (SEGMENT_BYTES - 1, 1), (17, 3)]:
            for start, content in segments.items():
                found = source.read(start, position, length)
                assert_same(found, content[position : position + length])

    def test_what_it_does_not_have_is_an_error_of_the_store(self) -> None:
        source, _ = self.made()
        with pytest.raises(StoreError):
            source.read(3 * SEGMENT_BYTES, 0, 8)
