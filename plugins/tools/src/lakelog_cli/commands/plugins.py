"""``lakelog plugins``: what is installed, what brings it, and what a store uses of it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import attrs
import typer

from lakelog.interfaces import Kind
from lakelog.registry import Registry
from lakelog.registry.listing import Offer, PluginRow, Setting
from lakelog.registry.missing import spoken
from lakelog.settings.effective import Settings
from lakelog.store.strategies import accelerator_names, flush_name
from lakelog_cli.opening import open_for
from lakelog_cli.options import AsJson, Assignments, BrokerConf, SettingsFile
from lakelog_cli.output import write_document


def plugins(
    store: Annotated[
        Path | None, typer.Option("--store", metavar="STORE", help="Tell what this store uses.")
    ] = None,
    as_json: AsJson = False,
    broker_conf: BrokerConf = None,
    settings: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """List installed strategies and plugins with their distributions and settings."""
    registry = Registry.load(None, os.environ)
    active = None
    if store is not None:
        with open_for("read", store, broker_conf, settings, assignments) as opened:
            active = _active(registry, opened.settings)
    elif broker_conf or settings or assignments:
        raise typer.BadParameter("settings say nothing without --store STORE")
    if as_json:
        write_document(_document(registry, active))
    else:
        _print(registry, active)


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


def _document(registry: Registry, active: set[tuple[Kind, str]] | None) -> dict[str, Any]:
    strategies = []
    for offer in registry.offers():
        row = attrs.asdict(offer) | {"kind": offer.kind.name.lower()}
        if active is not None:
            row["active"] = (offer.kind, offer.name) in active
        strategies.append(row)
    return {
        "strategies": strategies,
        "plugins": [attrs.asdict(row) for row in registry.plugins()],
    }


def _print(registry: Registry, active: set[tuple[Kind, str]] | None) -> None:
    for offer in registry.offers():
        for line in _offer_lines(offer, (offer.kind, offer.name) in (active or ())):
            typer.echo(line)
    for row in registry.plugins():
        typer.echo(_plugin_line(row))


def _offer_lines(offer: Offer, active: bool) -> Iterable[str]:
    mark = " [active]" if active else ""
    yield f"{spoken(offer.kind)} {offer.name}{mark}: {offer.summary}"
    yield f"    from {offer.plugin}{_package(offer.distribution, offer.version)}"
    for setting in offer.settings:
        yield f"    {offer.name}.{_setting(setting)}"


def _plugin_line(row: PluginRow) -> str:
    state = "" if row.enabled else " [switched off]"
    hooks = f": {', '.join(row.hooks)}" if row.hooks else ""
    return f"plugin {row.name}{_package(row.distribution, row.version)}{state}{hooks}"


def _package(distribution: str | None, version: str | None) -> str:
    return f" ({distribution} {version})" if distribution else ""


def _setting(setting: Setting) -> str:
    default = "" if setting.default is None else f" = {setting.default}"
    return f"{setting.name}: {setting.type}{default}"
