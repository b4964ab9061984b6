"""What a process that dispatches is told at its start: settings and plugins as its owner has them.

Only what dispatchers need goes over: the store's own settings and the sections of the dispatchers,
as JSON. Plugins that are installed are found again there, and modules by their names; objects exist
in the owner alone, so that a store that was given some is refused.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import attrs

from lakelog.errors import SettingsError
from lakelog.registry import Registry
from lakelog.registry.sources import BUILTIN
from lakelog.settings.catalog import keys_of
from lakelog.settings.effective import Settings
from lakelog.settings.given import CORE, Given
from lakelog.settings.model import StoreSettings
from lakelog.settings.structure import build
from lakelog.store.strategies import dispatcher_names

_KEY: Final = "services.dispatch"
_ORIGIN: Final = "the owner"


@attrs.frozen
class Order:
    """One order; every field is as JSON has it.

    :ivar path: the store directory
    :ivar owner: process id of who starts it
    :ivar core: the store's settings, by key
    :ivar sections: those of each dispatcher, by name and key
    :ivar modules: plugins by the names of their modules; ``None`` is what is installed
    :ivar in_order: whether queues and index were closed in order
    """

    path: str
    owner: int
    core: Mapping[str, Any]
    sections: Mapping[str, Mapping[str, Any]]
    modules: Sequence[str] | None
    in_order: bool = True

    def settings(self, registry: Registry) -> Settings:
        """The settings again; raises :class:`~lakelog.errors.SettingsError`."""
        classes = registry.sections()
        return Settings(
            core=_built(CORE, StoreSettings, self.core),
            sections={
                name: _built(name, classes[name], values) for name, values in self.sections.items()
            },
        )

    def plugins(self) -> list[object] | None:
        """The plugins again; raises ``ImportError``."""
        if self.modules is None:
            return None
        return [importlib.import_module(name) for name in self.modules]


def order_for(path: Path, owner: int, registry: Registry, settings: Settings) -> Order:
    """Put an order together; raises :class:`~lakelog.errors.SettingsError` where none can be."""
    names = dispatcher_names(registry, settings)
    core = attrs.evolve(settings.core, dispatchers=names)
    order = Order(
        str(path),
        owner,
        _plain(core),
        {name: _plain(settings.section(name)) for name in names},
        _modules(registry),
    )
    try:
        json.dumps(attrs.asdict(order))
    except (TypeError, ValueError) as error:
        raise SettingsError(
            f"a setting of a dispatcher cannot be handed to another process: {error}; use "
            "services.dispatch = 'thread'",
            key=_KEY,
        ) from error
    return order


def _modules(registry: Registry) -> list[str] | None:
    """What to import, where plugins were given to ``open``; ``None`` where installed ones count."""
    plugged = registry.plugged
    sources = [each for each in plugged.sources.values() if each.name != BUILTIN]
    if any(each.distribution is not None for each in sources):
        return None
    given = [plugged.manager.get_plugin(each.name) for each in sources]
    for each in given:
        if not isinstance(each, ModuleType):
            raise SettingsError(
                f"plugin {each!r} is an object of this process, which the process that dispatches "
                "cannot have; give a module, install the plugin, or use services.dispatch = "
                "'thread'",
                key=_KEY,
            )
    return [each.__name__ for each in given if isinstance(each, ModuleType)]


def _built(section: str, cls: type[Any], values: Mapping[str, Any]) -> Any:
    givens = {key: Given(section, key, value, _ORIGIN) for key, value in values.items()}
    return build(section, cls, givens)


def _plain(instance: object) -> dict[str, Any]:
    return {
        key: _as_json(getattr(instance, field.name))
        for key, field in keys_of(type(instance)).items()
    }


def _as_json(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list | set | frozenset):
        return [_as_json(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): _as_json(each) for key, each in value.items()}
    return value
