"""The commands put together, those of plugins included."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from lakelog.cli import exitcodes
from lakelog.cli.commands.config import app as config
from lakelog.cli.commands.dump import dump
from lakelog.cli.commands.init import init
from lakelog.cli.commands.plugins import plugins
from lakelog.cli.commands.put import put
from lakelog.cli.commands.scan import scan
from lakelog.cli.commands.verify import verify
from lakelog.cli.group import LakelogGroup
from lakelog.errors import LakelogError
from lakelog.registry import Registry

HELP = "Put and read messages in a store whose files are those of Apache RocketMQ."


def make_app() -> typer.Typer:
    """The application with lakelog's own commands."""
    app = typer.Typer(
        name="lakelog",
        cls=LakelogGroup,
        help=f"{HELP}\n\n{exitcodes.HELP}",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    app.callback()(_options)
    for command in (init, put, scan, dump, verify, plugins):
        app.command()(command)
    app.add_typer(config, name="config")
    return app


def start() -> None:
    """Run the application with the commands of all installed plugins."""
    app = make_app()
    try:
        Registry.load(None, os.environ).events.cli_commands(app)
    except LakelogError as error:
        typer.echo(f"lakelog: {error}", err=True)
        sys.exit(exitcodes.of(error))
    app()


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("lakelog-core"))
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """What may stand before a command."""
