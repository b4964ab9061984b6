"""``lakelog man``: the manual pages, made from the commands with their arguments and options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

import attrs
import typer

from lakelog_cli import exitcodes
from lakelog_cli.options import AsJson
from lakelog_cli.output import FileNotWritten, Printed, printed_by, prints, write_file, write_result

_MARKUP: Final = re.compile(r"(?<!\\)\[/?(?:bold|dim|italic|b|i|code|cyan|green|red|yellow)\]")
"""Rich's tags in help texts."""


@attrs.frozen
class Parameter:
    """An argument or an option of a command.

    :ivar names: an argument's name in capitals, or an option's spellings, separated by commas
    :ivar is_option: whether it is an option
    :ivar is_required: whether the command needs it
    :ivar default: the default as text; empty if there is none
    :ivar help: one or more sentences
    """

    names: str
    is_option: bool
    is_required: bool
    default: str
    help: str


@attrs.frozen
class Command:
    """A command.

    :ivar path: its words behind ``lakelog``, such as ``groups reset``
    :ivar usage: one line
    :ivar help: its text, paragraphs separated by an empty line
    :ivar parameters: arguments first
    :ivar printed: the output with ``--json``; ``None`` if it has no such option
    """

    path: str
    usage: str
    help: str
    parameters: tuple[Parameter, ...]
    printed: Printed | None


def commands(group: Any, context: Any = None, path: str = "") -> Iterator[Command]:
    """All commands below the click group ``group`` that can be run as they are, by name.

    A command of lakelog's own is imported.

    :param path: the words of the group behind ``lakelog``
    """
    context = context or group.make_context("lakelog", [], resilient_parsing=True)
    for name in sorted(group.list_commands(context)):
        _, command, _ = group.resolve_command(context, [name])
        if command.hidden:
            continue
        where = f"{path} {name}".strip()
        child = type(context)(command, info_name=name, parent=context, resilient_parsing=True)
        is_group = hasattr(command, "list_commands")
        if not is_group or command.invoke_without_command:
            yield _described(command, where)
        if is_group:
            yield from commands(command, child, where)


def _described(command: Any, path: str) -> Command:
    parameters = [each for each in command.params if not getattr(each, "hidden", False)]
    shown = [_parameter(each) for each in parameters if each.name != "help"]
    arguments = [
        each.names if each.is_required else f"[{each.names}]"
        for each in shown
        if not each.is_option
    ]
    usage = " ".join(
        ["lakelog", path, *(["[OPTIONS]"] if len(arguments) < len(shown) else []), *arguments]
    )
    text = inspect.cleandoc(command.help or "") + "\n\n" + inspect.cleandoc(command.epilog or "")
    return Command(
        path,
        usage,
        _plain(text).strip(),
        tuple(sorted(shown, key=lambda each: each.is_option)),
        printed_by(command.callback),
    )


def _parameter(parameter: Any) -> Parameter:
    is_option = parameter.param_type_name == "option"
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    value = parameter.default
    is_shown = not callable(value) and not parameter.required and value not in (None, False, (), [])
    return Parameter(
        names if is_option else (parameter.metavar or parameter.name).upper(),
        is_option,
        parameter.required,
        str(getattr(value, "value", value)) if is_shown and "UNSET" not in str(value) else "",
        _plain(getattr(parameter, "help", None) or ""),
    )


def _plain(text: str) -> str:
    return _MARKUP.sub("", text).replace("\\[", "[").replace("\f", "").replace("\b", "")


class ManualRow(TypedDict):
    """A folder of manual pages."""

    folder: str
    pages: int


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
        raise FileNotWritten(f"{folder} cannot be made: {error.strerror}") from None
    write_file(folder / "lakelog.1", "\n".join(_overview(found)) + "\n")
    for each in found:
        write_file(folder / f"{_name(each)}.1", "\n".join(_page(each)) + "\n")
    row = {"folder": str(folder), "pages": len(found) + 1}
    write_result(row, f"{len(found) + 1} pages are in {folder}", as_json=as_json)


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
