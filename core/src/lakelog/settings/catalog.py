"""The known sections and keys: the attrs classes of the core and of the plugins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from lakelog.settings.given import CORE, Given, dotted
from lakelog.settings.model import (
    AttachSettings,
    MaintenanceSettings,
    ServeSettings,
    StoreSettings,
)

MAINTENANCE: Final = "maintenance"
ATTACH: Final = "attach"
SERVE: Final = "serve"
_SECTIONS: Final[Mapping[str, type[Any]]] = {
    MAINTENANCE: MaintenanceSettings,
    ATTACH: AttachSettings,
    SERVE: ServeSettings,
}
_FACTORY: Any = attrs.Factory  # a class, which the type stubs declare as a function


def keys_of(cls: type[Any]) -> dict[str, attrs.Attribute[Any]]:
    """The fields of a settings class that can be set, by key."""
    return {field.alias or field.name: field for field in attrs.fields(cls) if field.init}


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
    """All sections by name; the core's is :data:`CORE`."""

    classes: Mapping[str, type[Any]]

    @classmethod
    def of(cls, sections: Mapping[str, type[Any]]) -> Catalog:
        """The core and ``sections``."""
        return cls({CORE: StoreSettings, **_SECTIONS, **sections})

    @property
    def sections(self) -> list[str]:
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
        """The section for a spelling with ``_`` for ``-``, in any case."""
        wanted = _folded(spelling)
        return next((name for name in self.sections if _folded(name) == wanted), None)

    def section_of(self, cls: type[Any]) -> str | None:
        """The section whose class is ``cls``."""
        return next((name for name, known in self.classes.items() if known is cls), None)


def _folded(name: str) -> str:
    return name.lower().replace("-", "_")
