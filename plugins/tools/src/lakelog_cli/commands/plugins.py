"""``lakelog plugins``: installed strategies and plugins, and the package of a new plugin."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import attrs
import typer

from lakelog.hooks import Kind
from lakelog.registry import Registry
from lakelog.registry.loading import PluginSource, kind_text
from lakelog.registry.registry import Offered
from lakelog.settings.effective import Settings, keys_of
from lakelog.store.strategies import accelerator_names, flush_name
from lakelog_cli.app import App
from lakelog_cli.newplugin.package import TEMPLATES, PluginNames, PluginTemplate, write_package
from lakelog_cli.options import AsJson, OpenOptions
from lakelog_cli.output import print_line, print_lines, prints, write_document, write_lines

app = App(
    help="List installed strategies and plugins with their distributions and settings; "
    "create a new plugin.",
    invoke_without_command=True,
)


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
@prints(PluginsDocument, is_document=True)
def plugins(
    opening: OpenOptions,
    context: typer.Context,
    store: Annotated[
        Path | None,
        typer.Option("--store", metavar="STORE", help="Mark the strategies in use by this store."),
    ] = None,
    as_json: AsJson = False,
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
        write_document(document(registry, active))
    else:
        _print(registry, active)


@app.command()
@prints(WrittenFileRow)
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
    as_json: AsJson = False,
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
        write_lines({"path": each} for each in written)
    else:
        print_lines(written)
    print_line(f"next: pip install -e '{target}[test]', then python -m pytest {target}", err=True)


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
        print_line(f"{number} {template.word}: the template {template.summary}", err=True)
    answer: str = typer.prompt("Which kind of plugin", err=True)
    is_number = answer.strip().isdigit() and 1 <= int(answer) <= len(words)
    return words[int(answer) - 1] if is_number else answer


def _active(registry: Registry, settings: Settings) -> set[tuple[Kind, str]]:
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
        for key, field in keys_of(section).items()
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
        print_lines(_offer_lines(offered, active or set()))
    print_lines(map(_plugin_line, _plugin_rows(registry)))


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
