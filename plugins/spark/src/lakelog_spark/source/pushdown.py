"""Filters of a query as what a read wants: less is read, and Spark checks every row again.

Spark pushes filters down where ``spark.sql.python.filterPushdown.enabled`` is true (4.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

import attrs
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from lakelog_lake.log.wanted import Span, Wanted
from lakelog_spark.source.values import ms_of

_SPANS: Final = {
    "physical_offset": "physical",
    "queue_offset": "queue_offsets",
    "store_timestamp": "times_ms",
}
_SETS: Final = {"topic": "topics", "queue_id": "queue_ids", "tags": "tags"}


def narrowed(wanted: Wanted, filters: Iterable[Filter], store: str) -> Wanted:
    """What is left of ``wanted`` where all of ``filters`` are true.

    :param store: what the column ``store`` says
    """
    for each in filters:
        wanted = _narrowed(wanted, each, store)
    return wanted


def _narrowed(wanted: Wanted, filtered: Filter, store: str) -> Wanted:
    name = ".".join(getattr(filtered, "attribute", ()))
    values = _values(filtered)
    if name in _SPANS:
        span = _span(filtered, values)
        both = getattr(wanted, _SPANS[name]).both(span)
        return _with(wanted, {_SPANS[name]: both})
    if values is None:
        return wanted
    if name in _SETS:
        held = getattr(wanted, _SETS[name])
        both = values if held is None else held & values
        return _with(wanted, {_SETS[name]: both, "nothing": wanted.nothing or not both})
    if name == "store" and store not in values:
        return attrs.evolve(wanted, nothing=True)
    if name == "unique_key" and len(values) == 1:
        (key,) = values
        other = wanted.unique_key not in (None, key)
        return attrs.evolve(wanted, unique_key=key, nothing=wanted.nothing or other)
    return wanted


def _with(wanted: Wanted, changed: dict[str, Any]) -> Wanted:
    return attrs.evolve(wanted, **changed)


def _values(filtered: Filter) -> frozenset[Any] | None:
    """The values that a column may have; ``None`` where that is not what the filter says."""
    if isinstance(filtered, EqualTo | EqualNullSafe):
        return None if filtered.value is None else frozenset((filtered.value,))
    if isinstance(filtered, In):
        return frozenset(each for each in filtered.value if each is not None)
    return None


def _span(filtered: Filter, values: frozenset[Any] | None) -> Span:
    """The numbers, or ms, between which a column is; all of them where nothing is known."""
    if values:
        return Span(min(map(_floor, values)), max(map(_floor, values)) + 1)
    if isinstance(filtered, GreaterThan | GreaterThanOrEqual):
        strict = isinstance(filtered, GreaterThan) and not isinstance(filtered.value, datetime)
        return Span(low=_floor(filtered.value) + strict)
    if isinstance(filtered, LessThan | LessThanOrEqual):
        strict = isinstance(filtered, LessThan) and not isinstance(filtered.value, datetime)
        return Span(end=_floor(filtered.value) + 1 - strict)
    return Span()


def _floor(value: Any) -> int:
    """A time in ms, rounded down; a row of that ms is let through, for Spark to look at."""
    return ms_of(value) if isinstance(value, datetime) else int(value)
