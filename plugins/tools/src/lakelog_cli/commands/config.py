"""``lakelog config``: the settings in force with their origins, and the schema of all settings."""

from __future__ import annotations

import os
import sys
from typing import Any, TypedDict

from lakelog.registry import Registry
from lakelog.settings.effective import DEFAULT, Settings
from lakelog_cli import options, output
from lakelog_cli.app import LakelogGroup, subcommands_of
from lakelog_cli.schema import schema

app = subcommands_of("config", LakelogGroup)


class SettingRow(TypedDict):
    """A setting in force.

    :ivar value: the value as in TOML
    :ivar origin: source of the value
    """

    key: str
    value: Any
    origin: str


class SettingsDocument(TypedDict):
    """The settings of a store.

    :ivar unused: keys that have no effect, each with the reason
    """

    settings: list[SettingRow]
    unused: dict[str, str]


@app.command()
@output.prints(SettingsDocument, is_document=True)
def show(store: options.GivenStore, as_json: options.AsJson = False) -> None:
    """Print every setting of a store, with its value and origin."""
    with store.read() as opened:
        found, unused = rows(opened.settings), dict(opened.settings.unused)
    if as_json:
        output.write_document({"settings": found, "unused": unused})
    else:
        _print(found)


@app.command(name="schema")
@output.prints(is_document=True, is_always=True)
def print_schema(_as_json: options.AlwaysJson = True) -> None:
    """Print the JSON Schema of all settings, including those of installed plugins."""
    output.write_document(schema(Registry.load(None, os.environ).sections()))


def rows(settings: Settings) -> list[dict[str, Any]]:
    """Key, value and origin of all settings: the core's, then each section's by its class."""
    return [
        {
            "key": key,
            "value": output.plain_value(value),
            "origin": settings.origins.get(key, DEFAULT),
        }
        for key, (_, _, value) in settings.values().items()
    ]


def _print(found: list[dict[str, Any]]) -> None:
    shown = [row | {"value": "" if row["value"] is None else str(row["value"])} for row in found]
    if output.is_terminal(sys.stdout):
        output.write_rows(shown)
    else:
        output.print_lines(f"{row['key']} = {row['value']}  ({row['origin']})" for row in shown)
