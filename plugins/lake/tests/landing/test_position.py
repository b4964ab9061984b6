"""The text of a position says all of it, and nothing else is taken for one."""

from __future__ import annotations

import pytest

from lakelog.format.checksum import Fingerprint
from lakelog_lake.tables.position import Position, from_text, key, merged, to_text


def test_a_position_comes_back_as_it_was() -> None:
    position = Position(5, 900, Fingerprint(800, 100, 0xFFFFFFFF), {"süß": {0: 7, 3: 1}})
    assert from_text(to_text(position)) == position
    assert "\n" not in to_text(position)


def test_a_position_without_a_record_does_too() -> None:
    assert from_text(to_text(Position(0, 50))).last is None


def test_two_commits_of_one_range_are_told_apart() -> None:
    assert Position(0, 50).commit != Position(0, 50).commit


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"v":2}', '{"v":1,"start":0,"end":1}', "null"])
def test_other_text_is_refused_with_what_it_is(text: str) -> None:
    with pytest.raises(ValueError, match="is not a position"):
        from_text(text)


def test_queue_offsets_go_on_where_a_queue_got_rows() -> None:
    assert merged({"a": {0: 1, 1: 2}, "b": {0: 9}}, {"a": {1: 5}, "c": {0: 1}}) == {
        "a": {0: 1, 1: 5},
        "b": {0: 9},
        "c": {0: 1},
    }


def test_each_store_has_a_property_of_its_own() -> None:
    assert key("one") != key("other")
