"""Assembles all commands, also those of plugins; a command is imported when it runs."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Annotated, Final

import typer

from lakelog.errors import LakelogError
from lakelog.registry import Registry
from lakelog_cli import exitcodes
from lakelog_cli.group import RootGroup, plugin_of

COMMANDS: Final = {
    "init": "Make an empty store; an existing store stays as it is.",
    "put": "Append messages, and print the place of each; a missing store is made.",
    "get": "Print messages of a queue in its order.",
    "query": "Print the messages with a key, the newest first.",
    "tail": "Print the last messages of a topic in the log's order; with -f, also new ones.",
    "scan": "Print the messages from one offset up to another; damage is reported on stderr.",
    "grep": "Print the messages whose bodies contain a text, in the log's order.",
    "topics": "List topics, with the numbers of their queues and messages.",
    "topic": "List topics with their queues: 'lakelog topic STORE'; create or delete one.",
    "queues": "List queues: the first offset, the next offset, and the end of the last record.",
    "groups": "List consumer groups: 'lakelog groups STORE'; set or remove their offsets.",
    "consume": "Print messages as a member of a consumer group, and acknowledge each once it is "
    "printed.",
    "dlq": "List the dead letters of a consumer group, or put them into their topics again.",
    "stats": "Print positions, times of the first and last message, queues, files and their sizes.",
    "report": "Write a page about a store: traffic, topics, segments, damage, lags, disks.",
    "dump": "Print the store, its queues, their messages, the log, and all keys, as lines of JSON.",
    "doctor": "Report the state of a directory, and the effects of an open, here and by RocketMQ.",
    "verify": "Check every record, and the names and lengths of segments; exit 1 if any is "
    "damaged.",
    "recover": "Recover a store after any stop, complete its queues and index, and leave a clean "
    "stop.",
    "repair": "Repair the log so that RocketMQ keeps all of it, too; then wrong queues and index.",
    "rebuild": "Build queues, index, or both again from the log; no process may own the store.",
    "clean": "Delete now the segments that the store's cleaner selects, outside of its hours too.",
    "plugins": "List installed strategies and plugins with their distributions and settings; "
    "create a new plugin.",
    "serve": "Own a store until SIGTERM or Ctrl-C; a missing store is made.",
    "top": "Show a store in use: rates, lags of groups and copies, flush latency, disks.",
    "config": "Show settings: values, origins, and the schema.",
    "completion": "Print a script that completes commands and options in bash, zsh or fish.",
    "man": "Write a manual page for each command into a folder.",
    "pins": "List the pins of followers: 'lakelog pins STORE'. Segments that a pin needs are kept.",
}
"""By name, the first sentence of its help: to list commands needs no import of them."""
_NAME_ALL: Final = {"completion", "man"}
"""Commands that need all others."""
HELP: Final = "Put and read messages in a store whose files are those of Apache RocketMQ."


def make_app() -> typer.Typer:
    """The application with lakelog's own commands."""
    app = typer.Typer(
        name="lakelog",
        cls=RootGroup,
        help=f"{HELP}\n\n{exitcodes.HELP}",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    app.callback()(_options)
    for name, summary in COMMANDS.items():
        app.command(name, help=summary)(_not_imported)
    return app


def start() -> None:
    """Run the application, with the commands of installed plugins if one of them may be meant."""
    _print_anything()
    app = make_app()
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    try:
        if name not in COMMANDS or name in _NAME_ALL:
            Registry.load(None, os.environ).events.cli_commands(app, plugin_of(name))
    except LakelogError as error:
        typer.echo(f"lakelog: {error}", err=True)
        sys.exit(exitcodes.of(error))
    if "_LAKELOG_COMPLETE" in os.environ:  # set by the script of `lakelog completion`
        from typer._completion_classes import completion_init

        completion_init()
    app()


def _not_imported() -> None:
    """The placeholder of a command, which :class:`RootGroup` imports before it runs."""
    raise AssertionError("the command was not imported")


def _print_anything() -> None:
    """Print a character that the encoding of the output lacks as an escape, and not fail."""
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
