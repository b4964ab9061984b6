"""Writes the package of a new plugin from the template of its kind; overwrites nothing."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Final

import attrs

from lakelog.errors import LakelogError
from lakelog.hooks import PROTOCOLS, Kind
from lakelog.hooks.kinds import StoreSettings
from lakelog.registry import Registry
from lakelog.registry.loading import kind_text
from lakelog_cli.output import FileNotWritten, write_file


@attrs.frozen
class PluginTemplate:
    """The template of one kind.

    :ivar kind: the kind of its strategy
    :ivar strategy: the class of the strategy in the texts
    :ivar summary: the purpose of the strategy, in a few words
    :ivar setting: the setting of the core that names its strategy
    :ivar use: a line of Python or of a shell that uses it; empty if ``setting`` says it all
    :ivar replaces: the plugin of lakelog whose strategy it extends, and which must be switched off;
        empty if it needs none
    :ivar kept: hooks of that plugin for its other strategies, which the new plugin offers again
    """

    kind: Kind
    strategy: str
    summary: str
    setting: str = ""
    use: str = ""
    replaces: str = ""
    kept: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """The kind as ``--kind`` takes it, such as ``flush-strategy``."""
        return self.kind.name.lower().replace("_", "-")

    def values(self, name: str) -> Mapping[str, str]:
        """The values of the variables in the texts, for a strategy ``name``."""
        protocol, words = PROTOCOLS[self.kind].__name__, kind_text(self.kind)
        use = self.use or f'>>> store = lakelog.open("events", {self.setting}="{{name}}")'
        return {
            "name": name,
            "kind": self.kind.name,
            "spoken": words,
            "titled": f"{'An' if words[0] in 'aeiou' else 'A'} {words}",
            "hook": self.kind.value,
            "protocol": protocol,
            "contract": f"{protocol}Contract",
            "imports": ", ".join(sorted({"Context", "Factory", "Kind", protocol})),
            "strategy": self.strategy,
            "settings": f"{self.strategy}Settings",
            "summary": self.summary,
            "use": use.format(name=name),
            **self._replacing(),
        }

    def _replacing(self) -> Mapping[str, str]:
        """Variables of a template that replaces a plugin; empty texts for any other."""
        if not self.replaces:
            return dict.fromkeys(("needs", "kept", "instead"), "")
        module = f"lakelog_{self.replaces}.plugin"
        kept = [f"from {module} import {each} as {each}\n" for each in self.kept]
        note = ["\n# Other strategies of the plugin that this one replaces:\n"] if kept else []
        return {
            "needs": f', "lakelog-{self.replaces}=={version("lakelog-tools")}"',
            "kept": "".join(note + kept),
            "instead": f"    export LAKELOG_DISABLE_PLUGINS={self.replaces}  # it is replaced\n",
        }


_ALL: Final = (
    PluginTemplate(Kind.APPEND_CALLBACK, "Label", "adds a property to every message", "append"),
    PluginTemplate(Kind.WRITER, "PiecesWriter", "writes long data in pieces", "writer"),
    PluginTemplate(Kind.FLUSH_STRATEGY, "EveryN", "durable once per so many appends", "flush"),
    PluginTemplate(
        Kind.REPLICATOR,
        "Confirmed",
        "waits until another program has copied the bytes",
        "replicator",
    ),
    PluginTemplate(
        Kind.DISPATCHER,
        "TopicTable",
        "keeps a table of topics in SQLite",
        use='>>> store = lakelog.open("events", dispatchers=["consume-queue", "{name}"])',
    ),
    PluginTemplate(
        Kind.FOLLOWER,
        "Totals",
        "counts messages by topic",
        use="lakelog serve events --set 'followers=[\"{name}\"]'",
    ),
    PluginTemplate(Kind.CLEANER, "Newest", "keeps the newest segments", "cleaner"),
    PluginTemplate(
        Kind.DISK_WATCHER, "FreeSpace", "judges disks by their free bytes", "disk_watcher"
    ),
    PluginTemplate(
        Kind.SEGMENT_SOURCE, "SegmentFolder", "serves deleted segments from a folder", "archive"
    ),
    PluginTemplate(
        Kind.ACCELERATOR,
        "ShortCalls",
        "leaves long batches to Python, so that other threads run",
        "accelerator",
        replaces="native",
    ),
    PluginTemplate(
        Kind.SETTINGS_FORMAT,
        "IniFile",
        "reads settings from INI files",
        use='>>> store = lakelog.open("events", settings="events.ini")',
    ),
    PluginTemplate(
        Kind.STORE_EXTENSION,
        "Counting",
        "adds a method that counts the messages of a topic",
        use='>>> lakelog.open("events").count("orders")',
        replaces="queues",
        kept=("lakelog_dispatchers",),
    ),
)

TEMPLATES: Final = {each.word: each for each in _ALL}
"""By the word that ``--kind`` takes."""

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
                f"{name!r} is no name for a plugin: give lower-case words of letters and "
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
            raise FolderInUse(f"{folder} is not empty: nothing there is overwritten")
        for path in contents:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileNotWritten(f"{folder} cannot be made: {error.strerror}") from None
    for path, text in contents.items():
        write_file(folder / path, text)
    return [folder / path for path in contents]


def _contents(names: PluginNames, template: PluginTemplate) -> Iterator[tuple[Path, str]]:
    """The path of each file in the folder, and its text."""
    source, folder = Path("src", names.package), template.kind.name.lower()
    places = {
        "package/README.md": Path("README.md"),
        "package/pyproject.toml": Path("pyproject.toml"),
        "package/init.py": source / "__init__.py",
        "package/plugin.py": source / "plugin.py",
        f"{folder}/settings.py": source / "settings.py",
        f"{folder}/strategy.py": source / "strategy.py",
        "package/conftest.py": Path("tests", "conftest.py"),
        f"{folder}/test_strategy.py": Path("tests", "test_strategy.py"),
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
