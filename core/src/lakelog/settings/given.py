"""A single value from a source, and all values of one source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

CORE: Final = ""
"""The section of the store's own settings, whose keys are at the top level."""


def dotted(section: str, key: str) -> str:
    """The dotted form of a key.

    >>> dotted("timed", "flush_interval_ms"), dotted(CORE, "writer")
    ('timed.flush_interval_ms', 'writer')
    """
    return ".".join(part for part in (section, key) if part)


@attrs.frozen
class Given:
    """One value from a source.

    :ivar section: the strategy whose section it belongs to, or :data:`CORE`
    :ivar key: its name there; empty if a section is named without keys
    :ivar value: the value, not yet validated
    :ivar origin: the source, for display
    :ivar text: whether the source has no types, so that ``true`` and ``4`` are strings
    """

    section: str
    key: str
    value: object
    origin: str
    text: bool = False

    @property
    def dotted(self) -> str:
        """The dotted key, for display."""
        return dotted(self.section, self.key)


@attrs.frozen
class Layer:
    """The values of one source.

    :ivar givens: its values
    :ivar unused: its keys that have no effect, with the reason
    """

    givens: tuple[Given, ...] = ()
    unused: Mapping[str, str] = attrs.field(factory=dict)
