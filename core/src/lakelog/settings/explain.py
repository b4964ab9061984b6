"""The settings that count, row by row with where each comes from, for people."""

from __future__ import annotations

from typing import Any

import attrs

from lakelog.settings.effective import DEFAULT, Settings


@attrs.frozen
class Row:
    """One setting.

    :ivar key: with its section
    :ivar value: what counts
    :ivar origin: where it comes from
    """

    key: str
    value: Any
    origin: str


def rows(settings: Settings) -> list[Row]:
    """Every setting: the core's first, each section in the order of its class."""
    return [
        Row(key, value, settings.origins.get(key, DEFAULT))
        for key, (_, _, value) in settings.values().items()
    ]


def unused_lines(settings: Settings) -> list[str]:
    """One line for each thing that a source says and that has no meaning here."""
    return [f"{key} is not used: {why}" for key, why in sorted(settings.unused.items())]
