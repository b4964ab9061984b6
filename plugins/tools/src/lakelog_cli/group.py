"""Maps errors of all commands to one line of text and an exit code, without a traceback."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any, Final

import typer
from typer.core import TyperGroup

from lakelog.errors import LakelogError
from lakelog_cli import exitcodes
from lakelog_format.arguments import WrongType, WrongValue

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
