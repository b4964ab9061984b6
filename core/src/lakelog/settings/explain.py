"""The effective settings as rows with their origins, for display."""

from __future__ import annotations

from typing import Any

import attrs

from lakelog.settings.effective import DEFAULT, Settings


@attrs.frozen
class SettingRow:
    """One setting.

    :ivar key: dotted key
    :ivar value: effective value
    :ivar origin: source of the value
    """

    key: str
    value: Any
    origin: str


def rows(settings: Settings) -> list[SettingRow]:
    """All settings: the core's first, then each section in the order of its class."""
    return [
        SettingRow(key, value, settings.origins.get(key, DEFAULT))
        for key, (_, _, value) in settings.values().items()
    ]


def unused_lines(settings: Settings) -> list[str]:
    """One line for each key of a source that has no effect."""
    return [f"{key} is not used: {why}" for key, why in sorted(settings.unused.items())]
