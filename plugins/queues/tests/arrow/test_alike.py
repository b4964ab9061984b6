"""Property strings in one table give the values that each of them gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tests.codec.support import log_of
from lakelog.codec import decode_run
from lakelog.format.properties import decode_properties
from lakelog.message import Message
from lakelog_queues.arrow import to_arrow
from lakelog_queues.arrow.alikeproperties import alike_properties

ROWS = st.integers(1, 14).flatmap(
    lambda width: st.lists(
        st.lists(
            st.sampled_from([b"\x01", b"\x02", b"\x00", b"a", b"A", b"T"]),
            min_size=width,
            max_size=width,
        ).map(b"".join),
        min_size=1,
        max_size=4,
    )
)


@given(rows=ROWS, repeat=st.booleans())
def test_values_are_those_of_each_row(rows: list[bytes], repeat: bool) -> None:
    rows = rows[:1] * 3 if repeat else rows
    table = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)
    parts = alike_properties(table)
    if parts is None:
        assert not repeat
        return
    for row in rows:
        found = {name.decode(): row[part].decode() for name, part in parts.items()}
        assert found == decode_properties(row)


@pytest.mark.parametrize(
    ("tags", "alike"),
    [(["ab", "cd"], True), (["ab", "a"], False), (["", ""], True), ([None, None], True)],
)
def test_columns_of_messages_that_are_alike(tags: list[str | None], alike: bool) -> None:
    put = [Message("t", b"%d" % at, tags=each, keys=["k", "k2"]) for at, each in enumerate(tags)]
    batch = decode_run(log_of(put))
    lengths = batch.property_lengths
    assert bool((lengths == lengths[0]).all()) == alike
    rows = to_arrow(batch, ["tags", "keys", "unique_key", "body"])
    assert rows["tags"].to_pylist() == [batch.message(at).tags for at in range(2)]
    assert rows["keys"].to_pylist() == [["k", "k2"]] * 2
    assert rows["unique_key"].to_pylist() == [None, None]
    assert rows["body"].to_pylist() == [b"0", b"1"]


def test_other_names_in_the_same_places_are_not_alike() -> None:
    table = np.frombuffer(b"TAGS\x01a\x02KEYS\x01a\x02", np.uint8).reshape(2, 7)
    assert alike_properties(table) is None
