"""The settings that count: frozen, checked, and each with its origin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from lakelog.errors import SettingsError
from lakelog.settings.catalog import keys_of
from lakelog.settings.given import CORE, dotted
from lakelog.settings.model import StoreSettings

DEFAULT: Final = "default"
INFERRED: Final = "inferred from"


@attrs.frozen
class Settings:
    """What every part of a store is built from.

    :ivar core: the store's own settings
    :ivar sections: the settings of every plugin, by the name of its section; one that has a key
        without a default is missing until something in it is set
    :ivar origins: where each value comes from, by dotted key
    :ivar unused: what sources say that has no meaning here, and why
    """

    core: StoreSettings
    sections: Mapping[str, Any] = attrs.field(factory=dict)
    origins: Mapping[str, str] = attrs.field(factory=dict)
    unused: Mapping[str, str] = attrs.field(factory=dict)

    def section(self, name: str) -> Any:
        """The settings of the strategy ``name``, an instance of its own class."""
        if name not in self.sections:
            what = f"section [{name}] is not set, or no installed plugin has it"
            raise SettingsError(f"{what}; set its keys that have no default")
        return self.sections[name]

    def values(self) -> dict[str, tuple[str, str, Any]]:
        """Section, key and value of everything, by dotted key."""
        return {
            dotted(section, key): (section, key, getattr(instance, field.name))
            for section, instance in {CORE: self.core, **self.sections}.items()
            for key, field in keys_of(type(instance)).items()
        }

    def is_chosen(self, name: str) -> bool:
        """Whether somebody set the dotted key ``name``, so that it is no default or inference."""
        origin = self.origins.get(name, DEFAULT)
        return origin != DEFAULT and not origin.startswith(INFERRED)
