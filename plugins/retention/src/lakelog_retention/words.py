"""Formats numbers and states as text for users."""

from __future__ import annotations

from typing import Final

from lakelog.interfaces import CleaningContext, DiskState

_STATES: Final = {
    DiskState.OK: "the disk has room",
    DiskState.CLEAN: "the disk is above its limit",
    DiskState.CLEAN_FORCIBLY: "the disk is nearly full",
    DiskState.STOP_WRITING: "the disk is so full that puts are refused",
}
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


def of_disk(situation: CleaningContext) -> str:
    """The watcher's state, with figures if known."""
    known = []
    if situation.used_ratio is not None:
        known.append(f"{percent(situation.used_ratio)} used")
    if situation.free_bytes is not None:
        known.append(f"{size(situation.free_bytes)} free")
    return _STATES[situation.disk] + (f" (the log's: {', '.join(known)})" if known else "")


def of_age(age_ms: int) -> str:
    """An age in hours, never rounded up."""
    return f"{age_ms // 360_000 / 10:g} h"


def percent(ratio: float) -> str:
    """A ratio as a percentage."""
    return f"{ratio:.1%}"


def size(count_bytes: int) -> str:
    """A size in the largest unit that is not above it.

    >>> size(1000), size(1 << 20), size(3 << 29)
    ('1000 bytes', '1.0 MiB', '1.5 GiB')
    """
    amount, at = float(count_bytes), 0
    while amount >= 1024 and at + 1 < len(_UNITS):
        amount, at = amount / 1024, at + 1
    return f"{amount:.1f} {_UNITS[at]}" if at else f"{count_bytes} {_UNITS[0]}"
