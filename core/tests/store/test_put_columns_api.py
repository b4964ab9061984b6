"""``put_columns`` is ``put_batch`` without an object for each message."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from core.tests.store.support import open_small


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
    assert [bytes(each.body) for each in found] == bodies
    assert found[7].tags == "T"
    assert found[7].keys == ["k7"]
    assert found[7].properties["a"] == "b"


def test_columns_of_different_lengths_are_refused(tmp_path: Path) -> None:
    with (
        open_small(tmp_path) as store,
        pytest.raises(ValueError, match="tags has 1 entries for 2 bodies"),
    ):
        store.put_columns("t", [b"a", b"b"], tags=["T"])
