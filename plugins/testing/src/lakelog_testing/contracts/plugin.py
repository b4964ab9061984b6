"""Contract tests for plugins: accepted by the registry, cheap to import, valid strategies."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import attrs
import pytest

from lakelog.interfaces import Factory
from lakelog.registry import Registry
from lakelog_testing.contexts import context_of

HEAVY = ("numpy", "pyarrow", "pyspark", "pandas", "importlib.metadata", "asyncio")
"""Modules that must not be imported at open, but only when needed."""

_IMPORT = """
import sys, lakelog.registry
before = set(sys.modules)
import {name}
print(*(set({heavy}) & set(sys.modules) - before))
"""


class PluginContract:
    """Subclass it, and set :attr:`plugin` to the module that the entry point names."""

    plugin: ModuleType

    @pytest.fixture
    def registry(self) -> Registry:
        """The built-in strategies and the plugin, without what the environment switches off."""
        return Registry.load([self.plugin], os.environ)

    def offered(self, registry: Registry) -> list[Factory]:
        """The plugin's own factories."""
        name = self.plugin.__name__
        return [each.factory for each in registry.offered.values() if each.source.name == name]

    def test_every_strategy_has_a_summary(self, registry: Registry) -> None:
        assert [factory.name for factory in self.offered(registry) if not factory.summary] == []

    def test_every_strategy_can_be_made_with_default_settings(
        self, registry: Registry, tmp_path: Path
    ) -> None:
        context = context_of(tmp_path)
        for factory in self.offered(registry):
            if _all_defaults(factory.settings):
                registry.make(factory.kind, factory.name, factory.settings(), context)

    def test_settings_cannot_be_changed_after_open(self, registry: Registry) -> None:
        for factory in self.offered(registry):
            if _all_defaults(factory.settings):
                made = factory.settings()
                for field in attrs.fields(factory.settings):
                    with pytest.raises(attrs.exceptions.FrozenInstanceError):
                        setattr(made, field.name, None)

    def test_importing_it_imports_nothing_heavy(self) -> None:
        code = _IMPORT.format(name=self.plugin.__name__, heavy=HEAVY)
        run = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=_env(), check=False
        )
        assert (run.stdout.split(), run.stderr) == ([], "")


def _all_defaults(settings: type[attrs.AttrsInstance]) -> bool:
    return all(field.default is not attrs.NOTHING for field in attrs.fields(settings))


def _env() -> dict[str, str]:
    """An environment with this process's path, so that the plugin is found."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
