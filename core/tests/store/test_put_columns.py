"""Columns of messages can be put like a list of messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.tests.store.support import SEGMENT, open_small, read_small
from lakelog import PutRefused, PutStatus
from lakelog.message import MessageColumns


def test_columns_that_take_several_segments(tmp_path: Path) -> None:
    """They go in pieces, as a list of messages does."""
    bodies = [b"%04d" % number * 50 for number in range(3 * SEGMENT // 250)]
    with open_small(tmp_path) as store:
        results = store.put_batch(MessageColumns("t", bodies, queue_ids=0, tags="a"))
        assert [each.queue_offset for each in results] == list(range(len(bodies)))
        found = [store.look_up(each.physical_offset) for each in results]
        assert [each.body for each in found] == bodies
        assert {each.tags for each in found} == {"a"}
    with read_small(tmp_path) as reader:
        assert [each.body for each in reader.scan()] == bodies


def test_no_columns_and_bad_columns(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        assert len(store.put_batch(MessageColumns("t", []))) == 0
        with pytest.raises(PutRefused, match="message 2 of the batch") as caught:
            store.put_batch(MessageColumns("t", [b"a", b"b", "c"]))  # type: ignore[list-item]  # a wrong type is the test
        assert caught.value.status is PutStatus.MESSAGE_ILLEGAL
        assert list(store.scan()) == []
