"""Writes the files of a new plugin's package; nothing that exists is overwritten."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Iterator
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Final

import attrs

from lakelog.errors import LakelogError
from lakelog.registry import Registry
from lakelog.settings.model import StoreSettings
from lakelog_cli.newplugin.kinds import PluginTemplate
from lakelog_cli.output import FileNotWritten, write_file
from lakelog_cli.shown import shown

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST: Final = 40
"""Characters of a name; lines of code that contain it stay short."""
_PREFIX: Final = "lakelog-"


class BadPluginName(LakelogError):
    """The name cannot be that of a new plugin; wrong usage."""


class FolderInUse(LakelogError):
    """The folder of a new plugin has files; wrong usage."""


@attrs.frozen
class PluginNames:
    """The names of a plugin.

    :ivar distribution: the name for ``pip``
    :ivar package: the name for imports in Python
    :ivar strategy: the name in settings; also of the entry point, and of the section of settings
    """

    distribution: str
    package: str
    strategy: str

    @classmethod
    def of(cls, name: str, registry: Registry) -> PluginNames:
        """Derive them from the name of the distribution; raises :class:`BadPluginName`.

        :param registry: the installed plugins, whose names are taken
        """
        if not _NAME.fullmatch(name) or len(name) > _LONGEST:
            raise BadPluginName(
                f"{shown(name)!r} is no name for a plugin: give lower-case words of letters and "
                f"digits with single hyphens between them, such as acme-pace, at most {_LONGEST} "
                "characters"
            )
        found = cls(name, name.replace("-", "_"), name.removeprefix(_PREFIX))
        found._check_package()
        found._check_strategy(registry)
        return found

    def _check_package(self) -> None:
        if keyword.iskeyword(self.package) or self.package in sys.stdlib_module_names:
            raise BadPluginName(f"{self.package!r} is a word or a module of Python: give another")
        if self.package == "lakelog" or find_spec(self.package) is not None:
            raise BadPluginName(
                f"the package {self.package} can be imported here already: give another name"
            )

    def _check_strategy(self, registry: Registry) -> None:
        name = self.strategy
        if name.replace("-", "_") in {"auto", *attrs.fields_dict(StoreSettings)}:
            raise BadPluginName(f"{name!r} is a setting of the core: give another name")
        if not name[0].isalpha():
            raise BadPluginName(f"the strategy would be named {name!r}: give another name")
        if name in registry.offered:
            raise BadPluginName(
                f"{name!r} is a strategy already, of {registry.offered[name].source.name}: give "
                "another name"
            )


def write_package(folder: Path, names: PluginNames, template: PluginTemplate) -> list[Path]:
    """Write the package into ``folder``, which is made; returns the files.

    Raises :class:`FolderInUse` and :class:`~lakelog_cli.output.FileNotWritten`.
    """
    contents = dict(_contents(names, template))
    try:
        if folder.exists() and any(folder.iterdir()):
            raise FolderInUse(f"{shown(str(folder))} is not empty: nothing there is overwritten")
        for path in contents:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileNotWritten(f"{shown(str(folder))} cannot be made: {error.strerror}") from None
    for path, text in contents.items():
        write_file(folder / path, text)
    return [folder / path for path in contents]


def _contents(names: PluginNames, template: PluginTemplate) -> Iterator[tuple[Path, str]]:
    """The path of each file in the folder, and its text."""
    source = Path("src", names.package)
    places = {
        "package/README.md": Path("README.md"),
        "package/pyproject.toml": Path("pyproject.toml"),
        "package/init.py": source / "__init__.py",
        "package/plugin.py": source / "plugin.py",
        f"{template.folder}/settings.py": source / "settings.py",
        f"{template.folder}/strategy.py": source / "strategy.py",
        "package/conftest.py": Path("tests", "conftest.py"),
        f"{template.folder}/test_strategy.py": Path("tests", "test_strategy.py"),
    }
    known = {
        **template.values(names.strategy),
        "distribution": names.distribution,
        "package": names.package,
    }
    texts = files("lakelog_cli.newplugin") / "template"
    for origin, place in places.items():
        text = (texts / f"{origin}.in").read_text(encoding="utf-8")
        yield place, Template(text).substitute(known)
    yield source / "py.typed", ""
