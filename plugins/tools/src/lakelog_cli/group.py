"""Maps errors of all commands to one line of text and an exit code, without a traceback.

The group of all commands: imports the one that runs, or names the package it needs.
"""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, Final

import typer
from typer.core import TyperGroup

from lakelog.arguments import WrongType, WrongValue
from lakelog.errors import LakelogError
from lakelog_cli import exitcodes

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Disk errors of the output; those of a store are lakelog's own errors."""


class LakelogGroup(TyperGroup):
    """The command group, for commands of plugins too, with common error handling."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; a closed pipe or Ctrl-C ends it without a message."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except LakelogError as error:
            typer.echo(f"lakelog: {_one_line(error)}", err=True)
            raise typer.Exit(exitcodes.of(error)) from None
        except (WrongType, WrongValue) as error:
            typer.echo(f"lakelog: {_one_line(error)}", err=True)
            raise typer.Exit(exitcodes.USAGE) from None
        except BrokenPipeError:
            _drop_output()
            raise typer.Exit(exitcodes.INTERRUPTED) from None
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            _drop_output()
            typer.echo(f"lakelog: the output cannot be written: {error.strerror}", err=True)
            raise typer.Exit(exitcodes.NO_OUTPUT) from None
        except KeyboardInterrupt:
            raise typer.Exit(exitcodes.INTERRUPTED) from None
        return result


class ListByDefault(LakelogGroup):
    """A command whose subcommand ``list`` may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert ``list`` unless the first argument is a subcommand or asks for help."""
        if args and args[0] not in (*self.commands, *self.get_help_option_names(ctx)):
            args = ["list", *args]
        return super().parse_args(ctx, args)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split("\n"))


def _drop_output() -> None:
    """Redirect buffered output to ``/dev/null``, to avoid an error message at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


_FOLDER: Final = "lakelog_cli.commands"
_ELSEWHERE: Final = {
    "dispatch": ("lakelog-lake", "lakehouse"),
    "export": ("lakelog-lake", "lakehouse"),
    "lake": ("lakelog-lake", "lakehouse"),
    "broker": ("lakelog-broker", "broker"),
    "promote": ("lakelog-replication", "replication"),
    "replicate": ("lakelog-replication", "replication"),
    "replication": ("lakelog-replication", "replication"),
    "sql": ("lakelog-lake", "lakehouse"),
}
"""Commands of plugins: the distribution of each, and lakelog's extra that includes it."""
_OR_SPARK: Final = ", or 'lakelog[spark]' for --engine spark"


class NotInstalled(LakelogError):
    """A command of a plugin that is not installed, or is switched off; wrong usage."""


class RootGroup(LakelogGroup):
    """``lakelog COMMAND``."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command, and import it if it is lakelog's own; raises :class:`NotInstalled`."""
        name = args[0]
        if name in self.commands and find_spec(f"{_FOLDER}.{name}") is not None:
            self.commands[name] = _imported(name)
        elif name in _ELSEWHERE and name not in self.commands:
            raise NotInstalled(_lacking(name))
        return super().resolve_command(ctx, args)


def plugin_of(name: str) -> str | None:
    """The plugin that has a command; ``None`` if that is not known."""
    distribution, _ = _ELSEWHERE.get(name, ("", ""))
    return distribution.removeprefix("lakelog-") or None


def _imported(name: str) -> Any:
    """The command as a click object; a module with subcommands has them in ``app``."""
    module = import_module(f"{_FOLDER}.{name}")
    app = getattr(module, "app", None)
    if app is None:
        app = typer.Typer(rich_markup_mode="rich", add_completion=False)
        app.command(name, epilog=getattr(module, "EPILOG", None))(getattr(module, name))
    return typer.main.get_command(app)


def _lacking(name: str) -> str:
    distribution, extra = _ELSEWHERE[name]
    try:
        found = version(distribution)
    except PackageNotFoundError:
        return (
            f"the command '{name}' comes with {distribution}, which is not installed: "
            f"pip install 'lakelog[{extra}]'{_OR_SPARK if extra == 'lakehouse' else ''}"
        )
    return (
        f"the command '{name}' comes with {distribution} {found}, which is installed and switched "
        "off: see LAKELOG_DISABLE_PLUGINS, and 'lakelog plugins'"
    )
