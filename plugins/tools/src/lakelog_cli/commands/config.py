"""``lakelog config``: the settings in force with their origins, and the schema of all settings."""

from __future__ import annotations

import os
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from lakelog.registry import Registry
from lakelog.settings.effective import DEFAULT, Settings
from lakelog_cli.opening import open_for
from lakelog_cli.options import AlwaysJson, AsJson, Assignments, BrokerConf, SettingsFile, StorePath
from lakelog_cli.output import write_document
from lakelog_cli.rows.state import SettingsDocument
from lakelog_cli.schema import plain_value, prints, schema

app = typer.Typer(
    help="Show settings: values, origins, and the schema.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command()
@prints(SettingsDocument, is_document=True)
def show(
    store: StorePath,
    as_json: AsJson = False,
    broker_conf: BrokerConf = None,
    settings: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Print every setting of a store, with its value and origin."""
    with open_for("read", store, broker_conf, settings, assignments) as opened:
        found, unused = rows(opened.settings), dict(opened.settings.unused)
    if as_json:
        write_document({"settings": found, "unused": unused})
    else:
        _print(found)


@app.command(name="schema")
@prints(is_document=True, is_always=True)
def print_schema(_as_json: AlwaysJson = True) -> None:
    """Print the JSON Schema of all settings, including those of installed plugins."""
    write_document(schema(Registry.load(None, os.environ).sections()))


def rows(settings: Settings) -> list[dict[str, Any]]:
    """Key, value and origin of all settings: the core's, then each section's by its class."""
    return [
        {"key": key, "value": plain_value(value), "origin": settings.origins.get(key, DEFAULT)}
        for key, (_, _, value) in settings.values().items()
    ]


def _print(found: list[dict[str, Any]]) -> None:
    table = Table("setting", "value", "origin", box=None, pad_edge=False)
    for row in found:
        table.add_row(row["key"], _value_text(row["value"]), row["origin"])
    console = Console(markup=False, highlight=False)
    console.print(table) if console.is_terminal else _print_plain(found)


def _print_plain(found: list[dict[str, Any]]) -> None:
    """Whole lines for other programs: nothing is folded to a width."""
    for row in found:
        typer.echo(f"{row['key']} = {_value_text(row['value'])}  ({row['origin']})")


def _value_text(value: object) -> str:
    return "" if value is None else str(value)
