"""The effective settings: frozen, validated, and each with its origin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from lakelog.settings.catalog import CORE, dotted, keys_of
from lakelog.settings.model import StoreSettings
from lakelog_interfaces.errors import SettingsError

DEFAULT: Final = "default"
INFERRED: Final = "inferred from"


@attrs.frozen
class Settings:
    """The settings from which a store is built.

    :ivar core: the store's own settings
    :ivar sections: the settings of every plugin, by section name; a section with a required key is
        absent until one of its keys is set
    :ivar origins: origin of each value, by dotted key
    :ivar unused: keys of sources that have no effect, with the reason
    """

    core: StoreSettings
    sections: Mapping[str, Any] = attrs.field(factory=dict)
    origins: Mapping[str, str] = attrs.field(factory=dict)
    unused: Mapping[str, str] = attrs.field(factory=dict)

    def section(self, name: str) -> Any:
        """The settings of the strategy ``name``, an instance of its own class.

        Raises :class:`~lakelog.errors.SettingsError` if the section is absent.
        """
        if name not in self.sections:
            what = f"section [{name}] is not set, or no installed plugin has it"
            raise SettingsError(f"{what}; set its keys that have no default")
        return self.sections[name]

    def values(self) -> dict[str, tuple[str, str, Any]]:
        """Section, key and value of each setting, by dotted key."""
        return {
            dotted(section, key): (section, key, getattr(instance, field.name))
            for section, instance in {CORE: self.core, **self.sections}.items()
            for key, field in keys_of(type(instance)).items()
        }

    def is_chosen(self, name: str) -> bool:
        """Whether the dotted key ``name`` was set explicitly, not by a default or from files."""
        origin = self.origins.get(name, DEFAULT)
        return origin != DEFAULT and not origin.startswith(INFERRED)
