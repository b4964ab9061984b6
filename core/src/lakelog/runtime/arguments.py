"""Arguments of the public verbs, checked where a wrong one would give a wrong answer in silence.

:class:`WrongType` is a ``TypeError``, for a wrong type; :class:`WrongValue` is a ``ValueError``,
for a value that cannot be meant. Both name the argument, what was given, and what it should be.
"""

from __future__ import annotations

import math
import operator
from typing import Any, Final

FOREVER_MS: Final = (1 << 63) - 1
"""Java's ``Long.MAX_VALUE``, which stands for the end of all times."""
_SECONDS: Final = range(10**8, 10**11)
"""Times from 1973 to 5138, if they are seconds; as milliseconds, 1970-01-02 to 1973-03."""
_MICROSECONDS_FROM: Final = 10**14
"""1973 in microseconds; as milliseconds, the year 5138."""


class WrongType(TypeError):
    """An argument of a public verb has a type that it cannot have."""


class WrongValue(ValueError):
    """An argument of a public verb has a value that cannot be meant.

    Classes of their own, since the command line takes these for wrong usage. Any other
    ``ValueError`` or ``TypeError`` is a fault of the program, which needs its traceback.
    """


def whole(name: str, value: Any, least: int | None = 0) -> int:
    """``value`` as an integer, ``least`` or more."""
    if type(value) is not int:
        value = _index(name, value)
    if least is not None and value < least:
        raise WrongValue(f"{name} is {value}; give {least} or more")
    return value  # type: ignore[no-any-return]  # an int by now


def _index(name: str, value: Any) -> int:
    if isinstance(value, bool):
        raise wrong_type(name, value, "a whole number")
    try:
        return operator.index(value)
    except TypeError:
        raise wrong_type(name, value, "a whole number") from None


def time_ms(name: str, value: Any) -> int:
    """``value`` as a time in ms since 1970; 0 is the first one, :data:`FOREVER_MS` the last.

    What can only be seconds, microseconds or nanoseconds is refused.
    """
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise wrong_type(name, value, "milliseconds since 1970, as int(time.time() * 1000)")
    ms = whole(name, value)
    unit = "seconds" if ms in _SECONDS else ""
    if _MICROSECONDS_FROM <= ms != FOREVER_MS:
        unit = "microseconds or nanoseconds"
    if unit:
        raise WrongValue(
            f"{name} is {ms}, which looks like {unit}; give milliseconds since 1970, as "
            "int(time.time() * 1000)"
        )
    return ms


def span_ms(name: str, value: Any) -> float:
    """``value`` as a length of time in ms, 0 or more."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(name, value, "a number of milliseconds")
    if not (math.isfinite(value) and value >= 0):
        raise WrongValue(f"{name} is {value}; give a number of milliseconds, 0 or more")
    return value


def text(name: str, value: Any, example: str) -> str:
    """``value``, if it is a ``str`` in which something stands."""
    if not isinstance(value, str):
        raise wrong_type(name, value, f"a str such as {example!r}")
    if not value:
        raise WrongValue(f"{name} is empty; give a str such as {example!r}")
    return value


def topic_name(topic: Any) -> str:
    """``topic``, if it can be the name of one."""
    return text("topic", topic, "orders")


def queue_name(topic: Any, queue_id: Any) -> tuple[str, int]:
    """Topic and queue id, if they can name a queue."""
    return topic_name(topic), whole("queue_id", queue_id)


def wrong_type(name: str, value: Any, wanted: str) -> WrongType:
    """The error for a ``value`` of a type that the argument ``name`` cannot have."""
    kind = type(value).__name__
    shown = "None" if value is None else f"{value!r:.80} ({kind})"
    return WrongType(f"{name} is {shown}; give {wanted}")
