"""``lakelog man``: the manual pages, made from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from lakelog_cli import exitcodes
from lakelog_cli.options import AsJson
from lakelog_cli.output import FileNotWritten, write_file, write_lines
from lakelog_cli.printed import prints
from lakelog_cli.reference import Command, Parameter, commands
from lakelog_cli.rows.state import ManualRow
from lakelog_cli.shown import shown


@prints(ManualRow)
def man(
    context: typer.Context,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="The folder, such as man1 of MANPATH; made if missing."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Write a manual page for each command into a folder.

    Then 'man lakelog-put' shows the page of put, if the folder is man1 below a folder of MANPATH.
    """
    root: Any = context.find_root().command
    found = list(commands(root))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileNotWritten(f"{shown(str(folder))} cannot be made: {error.strerror}") from None
    write_file(folder / "lakelog.1", "\n".join(_overview(found)) + "\n")
    for each in found:
        write_file(folder / f"{_name(each)}.1", "\n".join(_page(each)) + "\n")
    if as_json:
        write_lines([{"folder": str(folder), "pages": len(found) + 1}])
    else:
        typer.echo(f"{len(found) + 1} pages are in {folder}")


def _name(command: Command) -> str:
    return f"lakelog-{command.path.replace(' ', '-')}"


def _overview(found: list[Command]) -> Iterator[str]:
    yield from _head("lakelog", "put and read messages in the files of RocketMQ's message store")
    yield from (".SH SYNOPSIS", ".B lakelog", "COMMAND [OPTIONS] [ARGUMENTS]", ".SH COMMANDS")
    for each in found:
        yield from (".TP", f".BR {_name(each)} (1)", _text(each.help.partition("\n")[0]))
    yield from (".SH EXIT STATUS", _text(exitcodes.HELP))


def _page(command: Command) -> Iterator[str]:
    first, _, rest = command.help.partition("\n\n")
    yield from _head(_name(command), first.replace("\n", " ").rstrip("."))
    yield from (".SH SYNOPSIS", _text(command.usage))
    if rest.strip():
        yield ".SH DESCRIPTION"
        for paragraph in rest.strip().split("\n\n"):
            yield from (".PP", _text(paragraph))
    for title, is_option in (("ARGUMENTS", False), ("OPTIONS", True)):
        some = [each for each in command.parameters if each.is_option == is_option]
        yield from (f".SH {title}",) if some else ()
        for each in some:
            yield from (".TP", f".B {_text(each.names)}", _text(_help(each)))
    yield from (".SH SEE ALSO", ".BR lakelog (1)")


def _head(name: str, summary: str) -> Iterator[str]:
    yield f'.TH {name.upper()} 1 "" "lakelog {version("lakelog-core")}" "lakelog"'
    yield from (".SH NAME", f"{_text(name)} \\- {_text(summary)}")


def _help(parameter: Parameter) -> str:
    default = f" The default is {parameter.default}." if parameter.default else ""
    return (parameter.help + default).strip() or "-"


def _text(words: str) -> str:
    r"""Text in which troff's control characters are escaped.

    >>> print(_text("--json\n.a \\b"))
    \-\-json
    \&.a \\b
    """
    lines = [line.replace("\\", "\\\\").replace("-", "\\-") for line in words.splitlines()]
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in lines)
