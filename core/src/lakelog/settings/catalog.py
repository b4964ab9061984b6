"""The known sections and keys, and the values that sources give for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from lakelog.settings.formats import Formats
from lakelog.settings.model import (
    AttachSettings,
    ServeSettings,
    StoreSettings,
)
from lakelog_interfaces.strategies.kinds import Infer

CORE: Final = ""
"""The section of the store's own settings, whose keys are at the top level."""
ATTACH: Final = "attach"
SERVE: Final = "serve"
OWN_SECTIONS: Final[Mapping[str, type[Any]]] = {
    CORE: StoreSettings,
    ATTACH: AttachSettings,
    SERVE: ServeSettings,
}
"""The settings classes of the core, by section."""
_FACTORY: Any = attrs.Factory  # a class, which the type stubs declare as a function


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
    :ivar is_text: whether the source has no types, so that ``true`` and ``4`` are strings
    :ivar unused: why the value has no effect, for a key of another system without a counterpart
    """

    section: str
    key: str
    value: object
    origin: str
    is_text: bool = False
    unused: str = ""

    @property
    def dotted(self) -> str:
        """The dotted key, for display."""
        return dotted(self.section, self.key)


def keys_of(cls: type[Any]) -> dict[str, attrs.Attribute[Any]]:
    """The fields of a settings class that can be set, by key."""
    return {field.alias or field.name: field for field in attrs.fields(cls) if field.init}


def required(cls: type[Any]) -> list[str]:
    """The keys without a default."""
    return [key for key, field in keys_of(cls).items() if field.default is attrs.NOTHING]


def default_of(field: attrs.Attribute[Any], instance: object = None) -> Any:
    """A field's default; ``attrs.NOTHING`` if there is none, or it needs an instance."""
    default: Any = field.default
    if not isinstance(default, _FACTORY):
        return default
    if default.takes_self:
        return attrs.NOTHING if instance is None else default.factory(instance)
    return default.factory()


@attrs.frozen
class Catalog:
    """All sections and keys of the core and of the plugins.

    :ivar sections: the settings class of every strategy, by name
    :ivar formats: readers of files other than TOML
    :ivar inferring: by section, the function that infers settings from the files of a store
    """

    sections: Mapping[str, type[Any]]
    formats: Formats
    inferring: Mapping[str, Infer] = attrs.field(factory=dict)

    @property
    def classes(self) -> Mapping[str, type[Any]]:
        """The settings classes of all sections by name; the core's is :data:`CORE`."""
        return {**OWN_SECTIONS, **self.sections}

    @property
    def names(self) -> list[str]:
        """The names of all sections but the core's, sorted."""
        return sorted(name for name in self.classes if name != CORE)

    def knows(self, given: Given) -> bool:
        """Whether the key of ``given`` exists."""
        cls = self.classes.get(given.section)
        return cls is not None and given.key in keys_of(cls)

    def dotted_keys(self) -> list[str]:
        """All keys, with their sections."""
        return [dotted(name, key) for name, cls in self.classes.items() for key in keys_of(cls)]

    def section_named(self, spelling: str) -> str | None:
        """The section for a spelling in any case, with ``_`` or ``-``; ``None`` if unknown."""
        wanted = spelling.lower().replace("_", "-")
        return wanted if wanted in self.names else None
