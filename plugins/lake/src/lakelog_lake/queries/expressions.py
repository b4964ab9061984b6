"""Converts an Arrow filter to limits of single columns, where possible.

Arrow expressions can only be inspected as text. A part that is not recognised limits nothing, as
the reader's caller filters the rows again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from lakelog_lake.reading.limits import SETS, Limit, among, both, compared, either

if TYPE_CHECKING:
    import pyarrow.compute as pc

_TEXT: Final = r'"[^"\\]*"'
_MOMENT: Final = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}Z"
_COMPARED: Final = re.compile(rf"(\w+) (==|<=|>=|<|>) ({_TEXT}|{_MOMENT}|-?\d+)")
_LIST: Final = r'\[((?:\n\s+(?:"[\w%|.-]*"|-?\d+),?)+)\n\]'
_AMONG: Final = re.compile(
    rf"if_else\(is_valid\((\w+)\), is_in\(\1, \{{value_set=\w+:{_LIST}, "
    r"null_matching_behavior=\w+\}\), null\[bool\]\)"
)
_STRINGS: Final = "value_set=string:["
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[()\[\]{}]| and | or ')
_OPENING: Final = "([{"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def limits_of(condition: pc.Expression) -> Mapping[str, Limit]:
    """The values that columns can have where ``condition`` is true."""
    text = str(condition)
    if text.count(_STRINGS) > sum(1 for found in _AMONG.finditer(text) if _STRINGS in found[0]):
        return {}  # Arrow does not escape quotes in lists, so the rest is ambiguous
    return _limits(text)


def _limits(text: str) -> dict[str, Limit]:
    found = _AMONG.fullmatch(text)
    if found is not None:
        values = [each.strip().rstrip(",") for each in found[2].split("\n") if each.strip()]
        # A tag may contain the characters that end a list's value; a topic cannot.
        return {} if found[1] == "tags" else _one_of(found[1], values)
    inner = text[1:-1]
    middle = list(_middles(inner))
    if not text.startswith("(") or not text.endswith(")") or len(middle) > 1:
        return {}
    if middle:
        first, behind = middle[0]
        sides = _limits(inner[:first]), _limits(inner[behind:])
        return (both if inner[first:behind] == " and " else either)(*sides)
    found = _COMPARED.fullmatch(inner)
    return {} if found is None else _compared(*found.groups())


def _compared(name: str, operator: str, constant: str) -> dict[str, Limit]:
    if operator == "==":
        return _one_of(name, [constant])
    return {} if constant.startswith('"') else compared(operator, name, _number(constant))


def _one_of(name: str, constants: list[str]) -> dict[str, Limit]:
    is_text = [each.startswith('"') for each in constants]
    if any(is_text) != (name in SETS and name != "queue_id"):
        return {}
    return among(name, [each[1:-1] if is_text[0] else _number(each) for each in constants])


def _middles(text: str) -> Iterator[tuple[int, int]]:
    """The span of the ``and`` or ``or`` between two sides; Arrow writes exactly one."""
    depth = 0
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token in _OPENING:
            depth += 1
        elif len(token) == 1:
            depth -= 1
        elif not token.startswith('"') and not depth:
            yield found.span()


def _number(constant: str) -> int:
    """A number as it is; a timestamp in µs since 1970."""
    if constant.endswith("Z"):
        moment = datetime.fromisoformat(constant)
        return (moment - _EPOCH) // timedelta(microseconds=1)
    return int(constant)
