"""The commands put together, those of plugins included."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from io import TextIOWrapper
from typing import Annotated, Final, TypeAlias

import typer

from lakelog.cli import exitcodes, times
from lakelog.cli.commands.clean import clean
from lakelog.cli.commands.config import app as config
from lakelog.cli.commands.dump import dump
from lakelog.cli.commands.get import get
from lakelog.cli.commands.groups import groups
from lakelog.cli.commands.init import init
from lakelog.cli.commands.pins import app as pins
from lakelog.cli.commands.plugins import plugins
from lakelog.cli.commands.put import put
from lakelog.cli.commands.query import query
from lakelog.cli.commands.queues import queues
from lakelog.cli.commands.rebuild import rebuild
from lakelog.cli.commands.recover import recover
from lakelog.cli.commands.repair import repair
from lakelog.cli.commands.scan import scan
from lakelog.cli.commands.serve import serve
from lakelog.cli.commands.stats import stats
from lakelog.cli.commands.tail import tail
from lakelog.cli.commands.top import top
from lakelog.cli.commands.topics import topics
from lakelog.cli.commands.verify import verify
from lakelog.cli.group import LakelogGroup
from lakelog.errors import LakelogError
from lakelog.registry import Registry

Command: TypeAlias = Callable[..., None]
COMMANDS: Final[tuple[Command, ...]] = (
    *(init, put, get, query, tail, scan),
    *(topics, queues, groups, stats),
    *(dump, verify, recover, repair, rebuild, clean, plugins),
    *(serve, top),
)
TAKE_TIMES: Final[tuple[Command, ...]] = (get, query)
HELP: Final = "Put and read messages in a store whose files are those of Apache RocketMQ."


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
    for command in COMMANDS:
        app.command(epilog=times.HELP if command in TAKE_TIMES else None)(command)
    app.add_typer(config, name="config")
    app.add_typer(pins, name="pins")
    return app


def start() -> None:
    """Run the application with the commands of all installed plugins."""
    _print_anything()
    app = make_app()
    try:
        Registry.load(None, os.environ).events.cli_commands(app)
    except LakelogError as error:
        typer.echo(f"lakelog: {error}", err=True)
        sys.exit(exitcodes.of(error))
    app()


def _print_anything() -> None:
    """A terminal that lacks a letter gets its number instead, and no command ends for it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


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
