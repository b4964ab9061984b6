"""Checks arguments of the public API whose wrong values would silently give wrong results.

:class:`WrongType` is a ``TypeError``, for a wrong type. :class:`WrongValue` is a ``ValueError``,
for an invalid value. Both name the argument, the given value, and a valid one.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any, Final

LONGEST_MS: Final = 100 * 365 * 86_400_000
"""The longest duration: 100 years. Waits of more than 292 years overflow."""


class LakelogError(Exception):
    """The base class of all lakelog errors; instances can be pickled."""

    def __reduce__(self) -> tuple[Callable[..., LakelogError], tuple[Any, ...]]:
        """Pickle the message and the attributes; constructor arguments differ by class."""
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[LakelogError], words: tuple[Any, ...], parts: dict[str, Any]) -> LakelogError:
    """Rebuild a pickled error with the message that it had when it was raised."""
    error = kind.__new__(kind, *words)
    error.__dict__.update(parts)
    return error


class WrongType(LakelogError, TypeError):
    """An argument of the public API has an invalid type."""


class WrongValue(LakelogError, ValueError):
    """An argument of the public API has an invalid value.

    The command line reports these errors as wrong usage. Any other ``ValueError`` or ``TypeError``
    is a defect of the program, and keeps its traceback.
    """


def whole(name: str, value: Any, least: int | None = 0) -> int:
    """``value`` as an integer not below ``least``.

    Raises :class:`WrongType` for anything but an integer, and :class:`WrongValue`.
    """
    if type(value) is not int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise wrong_type(name, value, "a whole number")
        value = operator.index(value)
    if least is not None and value < least:
        raise WrongValue(f"{name} is {value}; give {least} or more")
    return value  # type: ignore[no-any-return]  # the checks above leave only int


def listed(name: str, value: Any, wanted: str) -> list[Any]:
    """The items of ``value``; raises :class:`WrongType` for text, and for what has no items."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise wrong_type(name, value, wanted)
    return list(value)


def span_ms(name: str, value: Any) -> float:
    """``value`` as a duration in ms, from 0 to :data:`LONGEST_MS`.

    Raises :class:`WrongType` and :class:`WrongValue`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(name, value, "a number of milliseconds")
    if not (math.isfinite(value) and 0 <= value <= LONGEST_MS):
        most = f"0 or more, and at most {LONGEST_MS} (100 years)"
        raise WrongValue(f"{name} is {value}; give a number of milliseconds, {most}")
    return value


def wrong_type(name: str, value: Any, wanted: str) -> WrongType:
    """The error for a ``value`` that has a wrong type for argument ``name``."""
    kind = type(value).__name__
    shown = "None" if value is None else f"{value!r:.80} ({kind})"
    return WrongType(f"{name} is {shown}; give {wanted}")
