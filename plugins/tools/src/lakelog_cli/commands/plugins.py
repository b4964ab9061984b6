"""``lakelog plugins``: installed strategies and plugins, and the package of a new plugin.

A package is written from the template of its kind; nothing is overwritten.
"""

from __future__ import annotations

import keyword
import os
import re
import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Annotated, Any, Final, NotRequired, TypedDict

import attrs
import typer

from lakelog.errors import LakelogError
from lakelog.hooks import PROTOCOLS, Kind
from lakelog.hooks.kinds import StoreSettings
from lakelog.registry import Registry
from lakelog.registry.loading import PluginSource, kind_text
from lakelog.registry.registry import Offered
from lakelog.settings import effective
from lakelog.store.strategies import accelerator_names, flush_name
from lakelog_cli import options, output
from lakelog_cli.app import COMMANDS, App


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
        raise output.FileNotWritten(f"{folder} cannot be made: {error.strerror}") from None
    for path, text in contents.items():
        output.write_file(folder / path, text)
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


app = App(help=COMMANDS["plugins"], invoke_without_command=True)


class PluginSetting(TypedDict):
    """A setting of a strategy.

    :ivar default: null for a required setting
    """

    name: str
    type: str
    default: str | None


class StrategyRow(TypedDict):
    """A strategy.

    :ivar plugin: name of its plugin
    :ivar active: with ``--store``, whether that store uses it
    """

    kind: str
    name: str
    plugin: str
    distribution: str | None
    version: str | None
    summary: str
    settings: list[PluginSetting]
    active: NotRequired[bool]


class PluginRow(TypedDict):
    """A plugin.

    :ivar hooks: names of the implemented hooks
    :ivar enabled: false if it is switched off
    """

    name: str
    distribution: str | None
    version: str | None
    hooks: list[str]
    enabled: bool


class PluginsDocument(TypedDict):
    """The installed strategies and plugins."""

    strategies: list[StrategyRow]
    plugins: list[PluginRow]


class WrittenFileRow(TypedDict):
    """A file of a new plugin's package."""

    path: str


@app.callback()
@output.prints(PluginsDocument, is_document=True)
def plugins(
    opening: options.OpenOptions,
    context: typer.Context,
    store: Annotated[
        Path | None,
        typer.Option("--store", metavar="STORE", help="Mark the strategies in use by this store."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """List installed strategies and plugins with their distributions and settings."""
    if context.invoked_subcommand is not None:
        return
    registry = Registry.load(None, os.environ)
    active = None
    if store is not None:
        with opening.open("read", store) as opened:
            active = _active(registry, opened.settings)
    elif not opening.is_empty:
        raise typer.BadParameter("settings say nothing without --store STORE")
    if as_json:
        output.write_document(document(registry, active))
    else:
        _print(registry, active)


@app.command()
@output.prints(WrittenFileRow)
def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the distribution, such as acme-pace.")
    ],
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[FOLDER]", help="A new or empty folder; NAME by default."),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--kind", metavar="KIND", help=f"One of {', '.join(TEMPLATES)}."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Write the package of a new plugin: strategy, settings, entry point, and its contract kit.

    On a terminal, a missing kind is asked for. The new package works as it is, and its tests
    pass. Existing files are not overwritten.
    """
    names = PluginNames.of(name, Registry.load(None, os.environ))
    template = _template(kind or _asked())
    target = Path(name) if folder is None else folder
    written = [str(path) for path in write_package(target, names, template)]
    if as_json:
        output.write_lines({"path": each} for each in written)
    else:
        output.print_lines(written)
    output.print_line(
        f"next: pip install -e '{target}[test]', then python -m pytest {target}", err=True
    )


def _template(kind: str) -> PluginTemplate:
    word = kind.strip().lower().replace("_", "-")
    if word in TEMPLATES:
        return TEMPLATES[word]
    near = get_close_matches(word, TEMPLATES, 1)
    hint = f"; do you mean {near[0]!r}?" if near else f"; give one of {', '.join(TEMPLATES)}"
    raise typer.BadParameter(f"{kind!r} is no kind of plugin{hint}")


def _asked() -> str:
    """The kind that the user chooses from a list, by its word or its number."""
    words = list(TEMPLATES)
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"give --kind KIND; one of {', '.join(words)}")
    for number, template in enumerate(TEMPLATES.values(), 1):
        output.print_line(f"{number} {template.word}: the template {template.summary}", err=True)
    answer: str = typer.prompt("Which kind of plugin", err=True)
    is_number = answer.strip().isdigit() and 1 <= int(answer) <= len(words)
    return words[int(answer) - 1] if is_number else answer


def _active(registry: Registry, settings: effective.Settings) -> set[tuple[Kind, str]]:
    """Kind and name of every strategy that a store with these settings uses."""
    core = settings.core
    chosen: list[tuple[Kind, str | None]] = [
        (Kind.APPEND_CALLBACK, core.append),
        (Kind.WRITER, core.writer),
        (Kind.FLUSH_STRATEGY, flush_name(registry, settings)),
        (Kind.REPLICATOR, core.replicator),
        (Kind.CLEANER, core.cleaner),
        (Kind.DISK_WATCHER, core.disk_watcher),
        (Kind.SEGMENT_SOURCE, core.archive),
        *((Kind.ACCELERATOR, name) for name in accelerator_names(registry, settings)),
        *((Kind.DISPATCHER, name) for name in core.dispatchers),
        *((Kind.FOLLOWER, name) for name in core.followers),
    ]
    return {(kind, name) for kind, name in chosen if name}


def document(registry: Registry, active: set[tuple[Kind, str]] | None) -> dict[str, Any]:
    """The document that ``--json`` prints."""
    strategies = []
    for offered in _offers(registry):
        factory = offered.factory
        row: dict[str, Any] = {
            "kind": factory.kind.name.lower(),
            "name": factory.name,
            "plugin": offered.source.name,
            **_package(offered.source),
            "summary": factory.summary,
            "settings": _settings_of(offered.settings_class()),
        }
        if active is not None:
            row["active"] = (factory.kind, factory.name) in active
        strategies.append(row)
    return {"strategies": strategies, "plugins": _plugin_rows(registry)}


def _offers(registry: Registry) -> list[Offered]:
    """Every strategy, by kind and name."""
    order = list(Kind)
    return sorted(
        registry.offered.values(), key=lambda it: (order.index(it.factory.kind), it.factory.name)
    )


def _plugin_rows(registry: Registry) -> list[dict[str, Any]]:
    """One row per plugin, including those that are switched off, by name."""
    plugged = registry.plugged
    rows = []
    for name, source in sorted({**plugged.sources, **plugged.off}.items()):
        callers = plugged.manager.get_hookcallers(plugged.manager.get_plugin(name)) or ()
        hooks = sorted(caller.name for caller in callers)
        enabled = name in plugged.sources
        rows.append({"name": name, **_package(source), "hooks": hooks, "enabled": enabled})
    return rows


def _settings_of(section: type[Any]) -> list[dict[str, str | None]]:
    """Name, type and default of each key of a section; a default of ``None`` must be given."""
    return [
        {"name": key, "type": _type(field.type), "default": _default(field.default)}
        for key, field in effective.keys_of(section).items()
    ]


def _type(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation or "")


def _default(default: object) -> str | None:
    if default is attrs.NOTHING:
        return None
    factory = getattr(default, "factory", None)
    return f"{factory.__name__}()" if callable(factory) else repr(default)


def _package(source: PluginSource) -> dict[str, str | None]:
    package = source.package
    return {
        "distribution": package.name if package else None,
        "version": package.version if package else None,
    }


def _print(registry: Registry, active: set[tuple[Kind, str]] | None) -> None:
    for offered in _offers(registry):
        output.print_lines(_offer_lines(offered, active or set()))
    output.print_lines(map(_plugin_line, _plugin_rows(registry)))


def _offer_lines(offered: Offered, active: set[tuple[Kind, str]]) -> Iterator[str]:
    factory, package = offered.factory, offered.source.package
    mark = " [active]" if (factory.kind, factory.name) in active else ""
    yield f"{kind_text(factory.kind)} {factory.name}{mark}: {factory.summary}"
    yield f"    from {offered.source.name}{f' ({package})' if package else ''}"
    for setting in _settings_of(offered.settings_class()):
        default = "" if setting["default"] is None else f" = {setting['default']}"
        yield f"    {factory.name}.{setting['name']}: {setting['type']}{default}"


def _plugin_line(row: dict[str, Any]) -> str:
    package = f" ({row['distribution']} {row['version']})" if row["distribution"] else ""
    state = "" if row["enabled"] else " [switched off]"
    hooks = f": {', '.join(row['hooks'])}" if row["hooks"] else ""
    return f"plugin {row['name']}{package}{state}{hooks}"
