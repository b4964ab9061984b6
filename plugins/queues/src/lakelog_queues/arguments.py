"""Checks arguments of methods that find messages; see :mod:`lakelog.arguments`."""

from __future__ import annotations

from typing import Any, Final

from lakelog.arguments import WrongValue, shown, whole, wrong_type

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
