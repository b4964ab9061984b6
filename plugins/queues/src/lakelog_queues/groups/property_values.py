"""Compares values as RocketMQ's filter does: strings and numbers of Java's types.

Source: RocketMQ 5.3.3, ``ComparisonExpression.__compare``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import copysign, inf, isnan
from typing import Any, Final, TypeAlias

_DECIMAL: Final = re.compile(
    r"([+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))[fFdD]?"
)
_HEXADECIMAL: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)


class Long(int):
    """A number of Java's type ``Long``; an ``int`` is one of ``Integer``."""


Value: TypeAlias = str | int | float | bool | None


class NoResult(Exception):
    """Values that cannot be compared; RocketMQ's evaluation fails, too."""


def integer(text: str, bits: int) -> int:
    """As ``Integer.valueOf`` and ``Long.valueOf``; raises :class:`NoResult`."""
    if not re.fullmatch(r"[+-]?\d+", text) or max(text) > "\uffff":
        raise NoResult
    try:
        found = int(text)
    except ValueError:  # more digits than Python converts
        raise NoResult from None
    if not -(1 << bits - 1) <= found < 1 << bits - 1:
        raise NoResult
    return found


def double(text: str) -> float:
    """As ``Double.valueOf``; raises :class:`NoResult`."""
    bare = text.strip("".join(map(chr, range(0x21))))
    decimal = _DECIMAL.fullmatch(bare)
    if decimal:
        return float(decimal[1])
    hexadecimal = _HEXADECIMAL.fullmatch(bare)
    if hexadecimal is None:
        raise NoResult
    try:
        return float.fromhex(hexadecimal[1])
    except OverflowError:
        return -inf if bare.startswith("-") else inf


_CONVERSIONS: Final[dict[type, Callable[[str], Value]]] = {
    bool: lambda text: text.lower() == "true",
    int: lambda text: integer(text, 32),
    Long: lambda text: integer(text, 64),
    float: double,
}


def order(left: Value, right: Value) -> int:
    """As Java's ``compareTo`` of two values; -1 for types that RocketMQ does not compare.

    Raises :class:`NoResult` if a string cannot be converted to the type of the other value.
    """
    one, other = type(left), type(right)
    if one is not other:
        if one is bool and other is str:
            raise NoResult  # RocketMQ's ClassCastException
        if isinstance(left, str):
            left = _CONVERSIONS[other](left)
        elif isinstance(right, str):
            right = _CONVERSIONS[one](right)
        elif bool in (one, other):
            return -1
    is_double = float in (one, other)
    first, second = _key(left, is_double=is_double), _key(right, is_double=is_double)
    return int(first > second) - int(first < second)


def _key(value: Value, *, is_double: bool) -> Any:
    """A key that sorts as Java does: -0.0 before 0.0; NaN is equal to itself, and the last."""
    if not is_double:
        return value
    assert isinstance(value, int | float)  # a string was converted
    number = float(value)
    return (1, 0.0, 1.0) if isnan(number) else (0, number, copysign(1.0, number))
