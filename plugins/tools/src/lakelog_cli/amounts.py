"""Formats numbers for display: few digits and a unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP: Final = 1024
_BARS: Final = " ▁▂▃▄▅▆▇█"


def size(count: float | None) -> str:
    """A size in bytes.

    >>> size(0), size(1023), size(1536), size(5 << 40), size(None)
    ('0 B', '1023 B', '1.5 KiB', '5.0 TiB', '-')
    """
    if count is None:
        return "-"
    unit = 0
    while count >= _STEP and unit < len(_UNITS) - 1:
        count, unit = count / _STEP, unit + 1
    return f"{count:.0f} {_UNITS[0]}" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"


def blocks(values: Sequence[float]) -> str:
    """A line of bars, as high as each value is beside the largest.

    >>> blocks([0, 1, 4, 8]), blocks([0, 0])
    (' ▁▄█', '  ')
    """
    most = max(values, default=0)
    last = len(_BARS) - 1
    return "".join(
        _BARS[max(value > 0, round(value / most * last)) if most else 0] for value in values
    )


def milliseconds(count: float | None) -> str:
    """A duration.

    >>> milliseconds(0.25), milliseconds(1500), milliseconds(None)
    ('0.25 ms', '1.50 s', '-')
    """
    if count is None:
        return "-"
    return f"{count:.2f} ms" if count < 1000 else f"{count / 1000:.2f} s"


def span(seconds: float) -> str:
    """A longer duration in its two largest units.

    >>> span(59), span(3600), span(90061)
    ('59 s', '1 h 0 min', '1 d 1 h')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
