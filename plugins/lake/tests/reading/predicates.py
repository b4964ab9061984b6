"""Random predicates in SQL, and whether they are true of a row: compared with null is unknown."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from typing import Any

import attrs

Row = dict[str, Any]
Holds = Callable[[Row], bool | None]
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "<>": operator.ne,
}
COLUMNS = (
    *("topic", "queue_id", "tags", "queue_offset", "physical_offset", "store_timestamp"),
    *("flag", "unique_key", "store_size"),
)


@attrs.frozen
class Predicate:
    """:ivar holds: true, false, or ``None`` where it is unknown."""

    sql: str
    holds: Holds

    def of(self, rows: list[Row]) -> list[Row]:
        return [row for row in rows if self.holds(row)]


@attrs.frozen
class RandomPredicates:
    """Of the values that ``rows`` have; :ivar literal: a value in the dialect of SQL."""

    rows: list[Row]
    chance: random.Random
    literal: Callable[[Any], str]

    def predicate(self, depth: int = 2) -> Predicate:
        kind = self.chance.random()
        if depth and kind < 0.3:
            one, other = self.predicate(depth - 1), self.predicate(depth - 1)
            return Predicate(f"({one.sql} AND {other.sql})", _both(one, other, ends=False))
        if depth and kind < 0.55:
            one, other = self.predicate(depth - 1), self.predicate(depth - 1)
            return Predicate(f"({one.sql} OR {other.sql})", _both(one, other, ends=True))
        if depth and kind < 0.62:
            inner = self.predicate(depth - 1)
            return Predicate(f"NOT {inner.sql}", _not(inner))
        return self.simple(self.chance.choice(COLUMNS))

    def simple(self, column: str) -> Predicate:
        low, high = (self.chance.choice(self.rows)[column] for _ in range(2))
        if low is None or high is None or self.chance.random() < 0.05:
            return Predicate(f"({column} IS NULL)", lambda row: row[column] is None)
        kind = self.chance.choice([*COMPARISONS, "=", "IN", "BETWEEN", "turned"])
        first, second = self.literal(low), self.literal(high)
        if kind == "IN":
            sql = f"({column} IN ({first}, {second}))"
            return Predicate(sql, _known(column, lambda value: value in (low, high)))
        if kind == "BETWEEN":
            sql = f"({column} BETWEEN {first} AND {second})"
            return Predicate(sql, _known(column, lambda value: low <= value <= high))
        if kind == "turned":
            return Predicate(f"({first} < {column})", _known(column, lambda value: low < value))
        compare, sql = COMPARISONS[kind], f"({column} {kind} {first})"
        return Predicate(sql, _known(column, lambda value: compare(value, low)))


def _known(column: str, test: Callable[[Any], bool]) -> Holds:
    return lambda row: None if row[column] is None else test(row[column])


def _both(one: Predicate, other: Predicate, *, ends: bool) -> Holds:
    """AND ends with one that is false, OR with one that is true."""

    def holds(row: Row) -> bool | None:
        found = one.holds(row), other.holds(row)
        return ends if ends in found else None if None in found else not ends

    return holds


def _not(inner: Predicate) -> Holds:
    def holds(row: Row) -> bool | None:
        found = inner.holds(row)
        return None if found is None else not found

    return holds
