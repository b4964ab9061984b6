"""Data frames that read only the part of a store that a predicate needs.

Spark resolves the predicate on a frame that is never read. The limits of single columns become an
option of a second frame, which is loaded for this call only, so that no other query shares it. The
second frame is filtered by the whole predicate again: limits only exclude rows for which the
predicate cannot be true.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from lakelog_lake.reading.options import Limit, among, both, compared, either, to_option

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_OPERATORS: Final = {
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_TURNED: Final = {
    "EqualTo": "EqualTo",
    "EqualNullSafe": "EqualNullSafe",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
}
"""Comparisons with their mirrored forms."""


def read(
    spark: SparkSession,
    path: str | os.PathLike[str],
    where: str | Column | None = None,
    **options: str,
) -> DataFrame:
    """Load the rows of a store for which ``where`` is true, and read as few others as possible.

    :param where: SQL such as ``"topic = 'orders' AND queue_offset >= 100"``, or a boolean column.
        Comparisons of ``topic``, ``queue_id``, ``tags``, ``queue_offset``, ``physical_offset`` and
        ``store_timestamp`` with constants, ``IN`` and ``BETWEEN``, combined by ``AND`` and ``OR``,
        limit the read part of the log; any other condition only filters rows
    :param options: options of the format ``lakelog``

    Each call returns a new frame, which has the state of the log at its first use. With Spark
    Connect the whole log is read. Raises Spark's errors for a wrong predicate or option.
    """
    reader = spark.read.format("lakelog").options(**options)
    frame = reader.load(os.fspath(path))
    if where is None:
        return frame
    limits = limits_of(frame.filter(where))
    if limits:
        frame = reader.option("where", to_option(limits)).load(os.fspath(path))
    return frame.filter(where)


def limits_of(filtered: DataFrame) -> dict[str, Limit]:
    """The limits of single columns in the outermost filter of a frame."""
    java = getattr(filtered, "_jdf", None)
    if java is None:  # Spark Connect: the plan is on the server
        return {}
    plan = java.queryExecution().analyzed()
    return _limits(plan.condition()) if _kind(plan) == "Filter" else {}


def _limits(condition: Any) -> dict[str, Limit]:
    kind = _kind(condition)
    if kind in ("And", "Or"):
        sides = _limits(condition.left()), _limits(condition.right())
        return (both if kind == "And" else either)(*sides)
    if kind == "Between":
        return _between(condition.replacement())
    if kind == "In":
        found = condition.list()
        return _among(condition.value(), [found.apply(at) for at in range(found.size())])
    if kind in _TURNED:
        left, right = condition.left(), condition.right()
        return _compared(kind, left, right) or _compared(_TURNED[kind], right, left)
    return {}


def _between(found: Any) -> dict[str, Limit]:
    """Convert the two comparisons of ``BETWEEN``.

    Their left sides refer to an expression that Spark's ``With`` defines.
    """
    if _kind(found) != "With" or found.defs().size() != 1:
        return _limits(found)
    column, sides = found.defs().apply(0).child(), found.child()
    pair = [_compared(_kind(each), column, each.right()) for each in (sides.left(), sides.right())]
    return both(*pair)


def _compared(kind: str, column: Any, constant: Any) -> dict[str, Limit]:
    """The limit of ``column`` for a comparison with a constant."""
    if kind in ("EqualTo", "EqualNullSafe"):
        return _among(column, [constant])
    name, value = _name(column), _value(constant)
    return {} if value is None else compared(_OPERATORS[kind], name, value)


def _among(column: Any, constants: list[Any]) -> dict[str, Limit]:
    """The limit of ``column`` for a list of constants without null."""
    name, values = _name(column), [_value(each) for each in constants]
    return {} if None in values else among(name, values)


def _name(expression: Any) -> str:
    """The name of a column; empty for any other expression."""
    if _kind(expression) == "Cast" and _type(expression) == _type(expression.child()):
        return _name(expression.child())  # IN casts both sides
    return str(expression.name()).lower() if _kind(expression) == "AttributeReference" else ""


def _value(expression: Any) -> Any:
    """The value of a constant: a number, a text, or a time in µs since 1970; ``None`` otherwise."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
    from pyspark.errors import PySparkException

    if not _is_constant(expression):
        return None
    try:
        value = expression.eval(None)
        if _type(expression) == "string" and value is not None:
            return str(value.toString())
    except (Py4JError, PySparkException):  # as for text that is no number: Spark's filter raises
        return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_constant(expression: Any) -> bool:
    """Whether an expression never changes; Spark's optimizer also counts the current time so."""
    kind = _kind(expression)
    return kind == "Literal" or (kind == "Cast" and _is_constant(expression.child()))


def _type(expression: Any) -> str:
    return str(expression.dataType().catalogString())


def _kind(found: Any) -> str:
    return str(found.getClass().getSimpleName())
