"""How every command ends: an error of lakelog is one line and a code, never a traceback."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any, Final

import typer
from typer.core import TyperGroup

from lakelog.errors import LakelogError
from lakelog.runtime.arguments import WrongType, WrongValue
from lakelog_cli import exitcodes

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""What a disk says that an output is written to; errors of a store are lakelog's own."""


class LakelogGroup(TyperGroup):
    """The commands, a plugin's too, with one treatment of how they end."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; a pipe that nobody reads any more, and Ctrl-C, end it quietly."""
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


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split("\n"))


def _drop_output() -> None:
    """Let what is still buffered go nowhere, so that the interpreter does not complain at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
