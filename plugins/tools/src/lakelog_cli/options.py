"""Arguments shared by several commands, each defined once."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from lakelog_cli import times

StorePath: TypeAlias = Annotated[
    Path,
    typer.Argument(metavar="STORE", help="The store directory; it overrides paths in settings."),
]
BrokerConf: TypeAlias = Annotated[
    Path | None, typer.Option("--broker-conf", metavar="FILE", help="RocketMQ's settings file.")
]
SettingsFile: TypeAlias = Annotated[
    Path | None, typer.Option("--settings", metavar="FILE", help="A TOML file of settings.")
]
Assignments: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting; may be repeated."),
]
LandTo: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--to", metavar="KIND:PATH", help="Land messages in tables, as lakelog dispatch --to."
    ),
]
LandTable: TypeAlias = Annotated[
    str | None,
    typer.Option("--table", metavar="NAMESPACE.TABLE", help="The table, for --to."),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print only JSON.")]

AlwaysJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="No effect: the output is JSON.")
]


class LogFormat(StrEnum):
    """The format of log lines."""

    TEXT = "text"
    JSON = "json"


LogFormatOption: TypeAlias = Annotated[LogFormat, typer.Option(help="Format of log lines.")]


def _put_mode(text: str) -> str:
    if text not in ("write", "exclusive"):
        raise typer.BadParameter(f"{text!r} is none; give write or exclusive")
    return text


PutMode: TypeAlias = Annotated[
    str,
    typer.Option(
        "--mode",
        metavar="[write|exclusive]",
        callback=_put_mode,
        help="Together with other processes, or alone.",
    ),
]
Topic: TypeAlias = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")]
Group: TypeAlias = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.")]
Tags: TypeAlias = Annotated[
    str | None, typer.Option(metavar="'A || B'", help="Only messages with one of these tags.")
]

_FIRST_MS: Final = 126_230_400_000
"""1974-01-01; older than any RocketMQ store."""


def a_time(text: str) -> int:
    """Parse a time option; an invalid time is wrong usage.

    A date before 1974 means the beginning of every store. Its number of milliseconds would be
    rejected because it looks like seconds.
    """
    try:
        found = times.parse_time(text, datetime.now(UTC))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return 0 if found < _FIRST_MS and not text.strip().lstrip("+-").isdigit() else found
