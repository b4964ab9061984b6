"""The arguments that several commands share, each spelt and explained in one place."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

StorePath: TypeAlias = Annotated[
    Path, typer.Argument(metavar="STORE", help="The store directory; it beats paths in settings.")
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
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")]
