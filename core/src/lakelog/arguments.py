"""Checks arguments of the public API whose wrong values would silently give wrong results.

:class:`WrongType` is a ``TypeError``, for a wrong type. :class:`WrongValue` is a ``ValueError``,
for an invalid value. Both name the argument, the given value, and a valid one.
"""

from __future__ import annotations

import errno
import operator
import os
from collections.abc import Callable, Iterable
from pathlib import Path
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
        try:
            number = None if isinstance(value, bool) else operator.index(value)
        except TypeError:  # an array of NumPy has the method too
            number = None
        if number is None:
            raise wrong_type(name, value, "a whole number")
        value = number
    if least is not None and value < least:
        raise WrongValue(f"{name} is {shown(value)}; give {least} or more")
    return value  # type: ignore[no-any-return]  # the checks above leave only int


def listed(name: str, value: Any, wanted: str) -> list[Any]:
    """The items of ``value``; raises :class:`WrongType` for text, and for what has no items."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise wrong_type(name, value, wanted)
    return list(value)


def encodable(name: str, value: str | os.PathLike[str]) -> None:
    """Raise :class:`WrongValue` if no file can have this name: UTF-8 cannot encode it, or NUL."""
    try:
        fits = b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise WrongValue(f"{name} is {shown(value)}; give text without NUL that UTF-8 can encode")


def folder(name: str, value: str | os.PathLike[str]) -> Path:
    """The absolute path of a folder; raises as :func:`file_path`."""
    return file_path(name, value, "the folder of a store, '.' for this one")


def span_ms(name: str, value: Any) -> float:
    """``value`` as a duration in ms, from 0 to :data:`LONGEST_MS`.

    Raises :class:`WrongType` and :class:`WrongValue`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(name, value, "a number of milliseconds")
    if not 0 <= value <= LONGEST_MS:  # NaN is in no range
        most = f"0 or more, and at most {LONGEST_MS} (100 years)"
        raise WrongValue(f"{name} is {shown(value)}; give a number of milliseconds, {most}")
    return value


def file_path(name: str, value: Any, wanted: str) -> Path:
    """``value`` as the absolute path of a file or folder, which need not exist.

    Raises :class:`WrongType`, and :class:`WrongValue` for a path that the system cannot look up: as
    :func:`encodable`, an empty one, one that is too long, or by links that lead in a circle.
    """
    if not isinstance(value, str | os.PathLike) or isinstance(os.fspath(value), bytes):
        raise wrong_type(name, value, f"{wanted}, as a str or a Path")
    if not os.fspath(value):
        raise WrongValue(f"{name} is empty; give {wanted}")
    encodable(name, value)
    path = Path(value).absolute()
    try:
        os.stat(path / _LONGEST_NAME)
    except OSError as error:
        if error.errno in _NO_PATH:
            why = os.strerror(error.errno)
            given = repr(os.fspath(value))[:200]
            raise WrongValue(f"{name} is {given}: {why}; give {wanted}") from None
    return path


_LONGEST_NAME: Final = "0" * 64
"""No shorter than the names that lakelog adds to the path of a store, but for those of topics."""
_NO_PATH: Final = (errno.ENAMETOOLONG, errno.ELOOP)


def wrong_type(name: str, value: Any, wanted: str) -> WrongType:
    """The error for a ``value`` that has a wrong type for argument ``name``."""
    kind = "" if value is None else f" ({type(value).__name__})"
    return WrongType(f"{name} is {shown(value)}{kind}; give {wanted}")


def shown(value: Any) -> str:
    """``value`` in an error, in at most 80 characters."""
    try:
        return f"{value!r:.80}"
    except Exception:  # noqa: BLE001  # such as an int of more digits than Python prints
        return f"a value of {type(value).__name__} that has no repr"


# --- arguments of methods that find messages ---

FOREVER_MS: Final = (1 << 63) - 1
"""Java's ``Long.MAX_VALUE``; stands for no upper time limit."""
_SECONDS: Final = range(10**8, 10**11)
"""Times from 1973 to 5138 if in seconds; in milliseconds, 1970-01-02 to 1973-03."""
_MICROSECONDS_FROM: Final = 10**14
"""1973 in microseconds; as milliseconds, the year 5138."""


def time_ms(name: str, value: Any) -> int:
    """``value`` as a time in ms since 1970, from 0 to :data:`FOREVER_MS`.

    Raises ``TypeError`` for another type, and ``ValueError`` for a value that can only be seconds,
    microseconds or nanoseconds.
    """
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise wrong_type(name, value, "milliseconds since 1970, as int(time.time() * 1000)")
    ms = whole(name, value)
    unit = "seconds" if ms in _SECONDS else ""
    if _MICROSECONDS_FROM <= ms != FOREVER_MS:
        unit = "microseconds or nanoseconds"
    if unit:
        raise WrongValue(
            f"{name} is {shown(ms)}, which looks like {unit}; give milliseconds since 1970, as "
            "int(time.time() * 1000)"
        )
    return ms


def text(name: str, value: Any, example: str) -> str:
    """``value``, if it is a non-empty ``str``; else raises ``TypeError`` or ``ValueError``."""
    if not isinstance(value, str):
        raise wrong_type(name, value, f"a str such as {example!r}")
    if not value:
        raise WrongValue(f"{name} is empty; give a str such as {example!r}")
    return value


def topic_name(topic: Any) -> str:
    """``topic``, if it is a valid topic name."""
    return text("topic", topic, "orders")


def queue_name(topic: Any, queue_id: Any) -> tuple[str, int]:
    """Topic and queue id, if they are valid."""
    return topic_name(topic), whole("queue_id", queue_id)
