"""Contract tests for plugins and for settings formats.

A plugin is accepted by the registry, cheap to import, and its strategies can be made. A settings
format translates a file, or reports its invalid value.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import attrs
import pytest

from lakelog.errors import SettingsError
from lakelog.hooks import Factory, SettingsFormat, Translation
from lakelog.registry import Registry, check_object
from lakelog_testing.samples import context_of

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

    def with_defaults(self, registry: Registry) -> Iterator[tuple[Factory, attrs.AttrsInstance]]:
        """The factories that need no setting, each with its default settings."""
        for factory in self.offered(registry):
            settings = registry.sections()[factory.name]
            if all(field.default is not attrs.NOTHING for field in attrs.fields(settings)):
                yield factory, settings()

    def test_every_strategy_has_a_summary(self, registry: Registry) -> None:
        assert [factory.name for factory in self.offered(registry) if not factory.summary] == []

    def test_every_strategy_can_be_made_with_default_settings(
        self, registry: Registry, tmp_path: Path
    ) -> None:
        context = context_of(tmp_path)
        for factory, settings in self.with_defaults(registry):
            registry.make(factory.kind, factory.name, settings, context)

    def test_settings_cannot_be_changed_after_open(self, registry: Registry) -> None:
        for _, settings in self.with_defaults(registry):
            for field in attrs.fields(type(settings)):
                with pytest.raises(attrs.exceptions.FrozenInstanceError):
                    setattr(settings, field.name, None)

    def test_importing_it_imports_nothing_heavy(self) -> None:
        code = _IMPORT.format(name=self.plugin.__name__, heavy=HEAVY)
        # with this process's path, so that the plugin is found
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        run = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False
        )
        assert (run.stdout.split(), run.stderr) == ([], "")


ORIGIN = "/etc/sample"
_TARGET = re.compile(r"([a-z][a-z0-9-]*\.)?[a-z][a-z0-9_]*")
_ODD_FILES = (b"", b"\n", b"\x00", b"\xff\xfe", b"=", b"key", b"[section]\nkey = 1\n", b"\\")


class SettingsFormatContract:
    """Subclass it, define :meth:`make`, and provide two files to read."""

    sample: bytes
    """A file that sets something."""

    wrong: bytes
    """A file with an invalid value."""

    def make(self) -> SettingsFormat:
        """Create a format."""
        raise NotImplementedError

    def test_it_has_the_methods_of_its_kind(self) -> None:
        assert check_object(self.make(), SettingsFormat) is None

    def test_it_names_its_files_and_leaves_toml_alone(self) -> None:
        suffixes = self.make().suffixes
        assert isinstance(suffixes, tuple)
        assert suffixes
        assert [each for each in suffixes if not re.fullmatch(r"\.[a-z0-9_-]+", each)] == []
        assert ".toml" not in suffixes

    def test_an_empty_file_says_nothing(self) -> None:
        assert self.make().read(b"", ORIGIN) == Translation()

    def test_a_file_sets_dotted_keys_and_each_says_where_it_comes_from(self) -> None:
        values = self.make().read(self.sample, ORIGIN).values
        assert values
        assert [each for each in values if not _TARGET.fullmatch(each.target)] == []
        assert [each for each in values if not each.keys] == []

    def test_a_file_says_the_same_each_time(self) -> None:
        made = self.make()
        assert made.read(self.sample, ORIGIN) == made.read(self.sample, "elsewhere")
        assert made.read(self.sample, ORIGIN) == self.make().read(self.sample, ORIGIN)

    def test_a_value_that_cannot_be_understood_is_blamed_on_key_and_file(self) -> None:
        with pytest.raises(SettingsError) as caught:
            self.make().read(self.wrong, ORIGIN)
        assert caught.value.source == ORIGIN
        assert caught.value.key

    @pytest.mark.parametrize("data", _ODD_FILES)
    def test_a_file_of_any_bytes_is_read_or_refused(self, data: bytes) -> None:
        try:
            assert isinstance(self.make().read(data, ORIGIN), Translation)
        except SettingsError as error:
            assert error.source == ORIGIN  # noqa: PT017  # the file may also be readable

    def test_it_knows_keys_of_its_own_alone(self) -> None:
        made = self.make()
        for each in made.read(self.sample, ORIGIN).values:
            assert made.translate_key(each.keys[0]) in (each.target, None)
        assert made.translate_key("an.unknown.key") is None
