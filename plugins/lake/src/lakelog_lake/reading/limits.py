"""Limits of single columns derived from a predicate, as an option of a read.

Limits are JSON, such as ``{"topic": ["a", "b"], "queue_offset": [5, null]}``: the possible values
of a column, or the first number and the exclusive end of a span. Times are in ms since 1970. Limits
may admit too many rows, as the caller filters the rows again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from lakelog_lake.log.wanted import LAST, NumberSpan, RecordCondition
from lakelog_lake.reading.values import refused

Limit: TypeAlias = "frozenset[Any] | NumberSpan"

SPANS: Final = {
    "physical_offset": "physical",
    "queue_offset": "queue_offsets",
    "store_timestamp": "times_ms",
}
SETS: Final = {"topic": "topics", "queue_id": "queue_ids", "tags": "tags"}
"""Columns with limits, and their fields of :class:`~lakelog_lake.log.wanted.RecordCondition`."""
_WHERE: Final = "where"


TIME: Final = "store_timestamp"
_MICROS_PER_MS: Final = 1000


def compared(operator: str, name: str, value: int) -> dict[str, Limit]:
    """The limit of column ``name`` for a comparison (``<``, ``<=``, ``>``, ``>=``) with a number.

    Times are in µs since 1970; the ms that contains the number is included on both sides.
    """
    if name not in SPANS:
        return {}
    strict = len(operator) == 1 and name != TIME
    number = _number(name, value)
    if operator.startswith(">"):
        return {name: NumberSpan(low=min(number + strict, LAST))}
    return {name: NumberSpan(end=min(number + (not strict), LAST))}


def among(name: str, values: Sequence[Any]) -> dict[str, Limit]:
    """The limit of column ``name`` for membership in a list of constants without null."""
    if name not in {*SPANS, *SETS} or not values:
        return {}
    if name in SETS:
        return {name: frozenset(values)}
    numbers = [_number(name, each) for each in values]
    return {name: NumberSpan(min(numbers), min(max(numbers) + 1, LAST))}


def _number(name: str, value: int) -> int:
    return value // _MICROS_PER_MS if name == TIME else value


def both(one: Mapping[str, Limit], other: Mapping[str, Limit]) -> dict[str, Limit]:
    """Limits of a conjunction."""
    found = {**one, **other}
    for name in one.keys() & other.keys():
        left, right = one[name], other[name]
        if isinstance(left, NumberSpan) and isinstance(right, NumberSpan):
            found[name] = left.both(right)
        elif isinstance(left, frozenset) and isinstance(right, frozenset):
            found[name] = left & right
    return found


def either(one: Mapping[str, Limit], other: Mapping[str, Limit]) -> dict[str, Limit]:
    """Limits of a disjunction; a gap between two spans of numbers is included."""
    found: dict[str, Limit] = {}
    for name in one.keys() & other.keys():
        left, right = one[name], other[name]
        if isinstance(left, NumberSpan) and isinstance(right, NumberSpan):
            found[name] = NumberSpan(min(left.low, right.low), max(left.end, right.end))
        elif isinstance(left, frozenset) and isinstance(right, frozenset):
            found[name] = left | right
    return found


def to_option(limits: Mapping[str, Limit]) -> str:
    """Write limits as an option of the reader."""
    return json.dumps({name: _plain(each) for name, each in limits.items()})


def _plain(limit: Limit) -> list[Any]:
    if isinstance(limit, frozenset):
        return sorted(limit)
    return [limit.low if limit.low > -LAST else None, limit.end if limit.end < LAST else None]


def limited(wanted: RecordCondition, text: str | None) -> RecordCondition:
    """Restrict ``wanted`` by limits; raises :class:`~lakelog.errors.SettingsError`."""
    if text is None:
        return wanted
    changed: dict[str, Any] = {}
    for column, values in _read(text).items():
        if column in SPANS:
            low, end = values
            span = NumberSpan(-LAST if low is None else low, LAST if end is None else end)
            changed[SPANS[column]] = getattr(wanted, SPANS[column]).both(span)
        else:
            held, these = getattr(wanted, SETS[column]), frozenset(values)
            changed[SETS[column]] = these if held is None else held & these
    return attrs.evolve(wanted, **changed)


def _read(text: str) -> dict[str, list[Any]]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found.keys() <= {*SPANS, *SETS}:
        raise refused(
            _WHERE,
            f"{text!r} was not written by lakelog_spark.read: call lakelog_spark.read(spark, path, "
            "where=...) with the predicate, which sets this option",
        )
    return found
