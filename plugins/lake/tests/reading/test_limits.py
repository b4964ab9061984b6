"""Limits leave out rows for which a predicate cannot be true; they may let too much through."""

from __future__ import annotations

import pytest

from lakelog.errors import SettingsError
from lakelog_lake.log.wanted import ALL, Span, Wanted
from lakelog_lake.reading.limits import Limit, both, either, limited, to_option

AB, BC = frozenset("ab"), frozenset("bc")


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, Wanted()),
        ({"topic": AB}, Wanted(topics=AB)),
        ({"topic": frozenset()}, Wanted(topics=frozenset())),
        ({"queue_id": frozenset({3})}, Wanted(queue_ids=frozenset({3}))),
        ({"tags": frozenset("t")}, Wanted(tags=frozenset("t"))),
        ({"queue_offset": Span(6, 10)}, Wanted(queue_offsets=Span(6, 10))),
        ({"physical_offset": Span(end=9)}, Wanted(physical=Span(end=9))),
        ({"store_timestamp": Span(low=5)}, Wanted(times_ms=Span(low=5))),
    ],
)
def test_an_option_carries_them(limits: dict[str, Limit], expected: Wanted) -> None:
    assert limited(Wanted(), to_option(limits)) == expected


def test_options_and_limits_both_hold() -> None:
    given = Wanted(topics=AB, physical=Span(100, 200), queue_ids=frozenset({1}))
    found = limited(given, to_option({"topic": BC, "physical_offset": Span(150)}))
    assert found == Wanted(topics=frozenset("b"), physical=Span(150, 200), queue_ids=frozenset({1}))
    assert found.times_ms == ALL


def test_and_takes_what_is_in_both_and_or_what_is_in_one() -> None:
    one: dict[str, Limit] = {"topic": AB, "queue_offset": Span(2, 6), "tags": frozenset("t")}
    other: dict[str, Limit] = {"topic": BC, "queue_offset": Span(4, 9), "queue_id": frozenset({1})}
    assert both(one, other) == {
        "topic": frozenset("b"),
        "queue_offset": Span(4, 6),
        "tags": frozenset("t"),
        "queue_id": frozenset({1}),
    }
    assert either(one, other) == {"topic": frozenset("abc"), "queue_offset": Span(2, 9)}
    assert either(one, {}) == {}


@pytest.mark.parametrize("text", ["topic = 'a'", "[]", '{"body": []}'])
def test_a_predicate_is_no_option(text: str) -> None:
    with pytest.raises(SettingsError, match=r"lakelog_spark.read\(spark, path, where"):
        limited(Wanted(), text)
