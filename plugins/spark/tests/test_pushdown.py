"""Filters say what is wanted; Spark applies them again, so that they may let too much through."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
)

from lakelog_lake.log.wanted import ALL, Span, Wanted
from lakelog_spark.source.pushdown import narrowed

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
NOON_MS = 1795262400000


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([EqualTo(("topic",), "a")], Wanted(topics=frozenset("a"))),
        ([In(("topic",), ("a", "b", None))], Wanted(topics=frozenset("ab"))),
        (
            [EqualTo(("topic",), "a"), EqualTo(("topic",), "b")],
            Wanted(topics=frozenset(), nothing=True),
        ),
        ([EqualTo(("queue_id",), 3)], Wanted(queue_ids=frozenset({3}))),
        ([EqualTo(("tags",), "t")], Wanted(tags=frozenset("t"))),
        ([EqualTo(("unique_key",), "k")], Wanted(unique_key="k")),
        (
            [EqualTo(("unique_key",), "k"), EqualTo(("unique_key",), "l")],
            Wanted(unique_key="l", nothing=True),
        ),
        ([EqualTo(("store",), "s")], Wanted()),
        ([EqualTo(("store",), "other")], Wanted(nothing=True)),
        (
            [GreaterThan(("queue_offset",), 5), LessThanOrEqual(("queue_offset",), 9)],
            Wanted(queue_offsets=Span(6, 10)),
        ),
        (
            [GreaterThanOrEqual(("physical_offset",), 5), LessThan(("physical_offset",), 9)],
            Wanted(physical=Span(5, 9)),
        ),
        ([EqualTo(("physical_offset",), 7)], Wanted(physical=Span(7, 8))),
        ([In(("queue_offset",), (9, 4))], Wanted(queue_offsets=Span(4, 10))),
        (
            [GreaterThan(("store_timestamp",), NOON), LessThan(("store_timestamp",), NOON)],
            Wanted(times_ms=Span(NOON_MS, NOON_MS + 1)),
        ),
        ([EqualTo(("store_timestamp",), NOON)], Wanted(times_ms=Span(NOON_MS, NOON_MS + 1))),
        ([IsNotNull(("topic",))], Wanted()),
        ([Not(EqualTo(("topic",), "a"))], Wanted()),
        ([StringContains(("topic",), "a")], Wanted()),
        ([EqualTo(("properties", "topic"), "a")], Wanted()),
        ([EqualTo(("body",), b"a")], Wanted()),
    ],
)
def test_filters_narrow_what_is_wanted(filters: list[Filter], expected: Wanted) -> None:
    assert narrowed(Wanted(), filters, "s") == expected


def test_options_and_filters_both_hold() -> None:
    given: dict[str, Any] = {"topics": frozenset("ab"), "physical": Span(100, 200)}
    filters = [EqualTo(("topic",), "b"), GreaterThanOrEqual(("physical_offset",), 150)]
    found = narrowed(Wanted(**given), filters, "s")
    assert (found.topics, found.physical) == (frozenset("b"), Span(150, 200))
    assert found.times_ms == ALL
