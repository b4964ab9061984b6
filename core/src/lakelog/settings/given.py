"""One value as a source gives it, and a source's values together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

CORE: Final = ""
"""The section of the store's own settings, whose keys stand at the top level."""


def dotted(section: str, key: str) -> str:
    """How a key is written for people.

    >>> dotted("timed", "flush_interval_ms"), dotted(CORE, "writer")
    ('timed.flush_interval_ms', 'writer')
    """
    return ".".join(part for part in (section, key) if part)


@attrs.frozen
class Given:
    """One value that a source gives.

    :ivar section: the strategy whose section it belongs to, or :data:`CORE`
    :ivar key: its name there; empty if a section is named and nothing in it
    :ivar value: what the source says, not yet checked
    :ivar origin: the source, for people
    :ivar text: whether the source knows no types, so that ``true`` and ``4`` come as strings
    """

    section: str
    key: str
    value: object
    origin: str
    text: bool = False

    @property
    def dotted(self) -> str:
        """The key with its section, for people."""
        return dotted(self.section, self.key)


@attrs.frozen
class Layer:
    """What one source gives.

    :ivar givens: its values
    :ivar unused: what it says beside them that has no meaning here, and why
    """

    givens: tuple[Given, ...] = ()
    unused: Mapping[str, str] = attrs.field(factory=dict)
