"""Columns of messages are put like a list of messages, without an object for each."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from core.tests.store.support import SEGMENT, open_small, read_small
from lakelog.message import MessageColumns


@pytest.mark.parametrize("kind", ["list", "arrow"])
def test_columns_become_messages(kind: str, tmp_path: Path) -> None:
    bodies = [b"body %d" % number for number in range(200)]
    with open_small(tmp_path) as store:
        results = store.put_columns(
            "t",
            pa.array(bodies) if kind == "arrow" else bodies,
            queue_ids=1,
            tags="T",
            keys=[f"k{number}" for number in range(200)],
            properties={"a": "b"},
        )
        assert [each.queue_offset for each in results] == list(range(200))
        assert store.wait_dispatched()
        found = store.get("t", 1, 0, 200).messages
        assert len(store.put_columns("t", [])) == len(store.put_batch([])) == 0
    assert [bytes(each.body) for each in found] == bodies
    assert (found[7].tags, found[7].keys, found[7].properties["a"]) == ("T", ["k7"], "b")


def test_columns_that_take_several_segments(tmp_path: Path) -> None:
    bodies = [b"%04d" % number * 50 for number in range(3 * SEGMENT // 250)]
    with open_small(tmp_path) as store:
        results = store.put_batch(MessageColumns("t", bodies, queue_ids=0, tags="a"))
        assert [each.queue_offset for each in results] == list(range(len(bodies)))
        found = [store.look_up(each.physical_offset) for each in results]
        assert [each.body for each in found] == bodies
        assert {each.tags for each in found} == {"a"}
    with read_small(tmp_path) as reader:
        assert [each.body for each in reader.scan()] == bodies
