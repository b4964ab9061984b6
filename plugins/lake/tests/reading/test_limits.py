"""Limits leave out rows for which a predicate cannot be true; they may let too much through."""

from __future__ import annotations

import pytest

from lakelog.errors import SettingsError
from lakelog_lake.log.wanted import ALL, NumberSpan, RecordCondition
from lakelog_lake.reading.options import Limit, limited, to_option

AB, BC = frozenset("ab"), frozenset("bc")


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, RecordCondition()),
        ({"topic": AB}, RecordCondition(topics=AB)),
        ({"topic": frozenset()}, RecordCondition(topics=frozenset())),
        ({"queue_id": frozenset({3})}, RecordCondition(queue_ids=frozenset({3}))),
        ({"tags": frozenset("t")}, RecordCondition(tags=frozenset("t"))),
        ({"queue_offset": NumberSpan(6, 10)}, RecordCondition(queue_offsets=NumberSpan(6, 10))),
        ({"physical_offset": NumberSpan(end=9)}, RecordCondition(physical=NumberSpan(end=9))),
        ({"store_timestamp": NumberSpan(low=5)}, RecordCondition(times_ms=NumberSpan(low=5))),
    ],
)
def test_an_option_carries_them(limits: dict[str, Limit], expected: RecordCondition) -> None:
    assert limited(RecordCondition(), to_option(limits)) == expected


def test_options_and_limits_both_hold() -> None:
    given = RecordCondition(topics=AB, physical=NumberSpan(100, 200), queue_ids=frozenset({1}))
    found = limited(given, to_option({"topic": BC, "physical_offset": NumberSpan(150)}))
    assert found == RecordCondition(
        topics=frozenset("b"), physical=NumberSpan(150, 200), queue_ids=frozenset({1})
    )
    assert found.times_ms == ALL


@pytest.mark.parametrize("text", ["topic = 'a'", "[]", '{"body": []}'])
def test_a_predicate_is_no_option(text: str) -> None:
    with pytest.raises(SettingsError, match=r"lakelog_spark.read\(spark, path, where"):
        limited(RecordCondition(), text)
