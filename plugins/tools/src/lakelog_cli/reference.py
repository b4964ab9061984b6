"""All commands with their arguments and options, read from the commands themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, Final

import attrs

from lakelog_cli.printed import Printed, printed_by

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


def commands(root: Any) -> Iterator[Command]:
    """All commands below the click group ``root`` that can be run as they are, by name.

    A command of lakelog's own is imported.
    """
    context = root.make_context("lakelog", [], resilient_parsing=True)
    yield from _below(root, context, "")


def _below(group: Any, context: Any, path: str) -> Iterator[Command]:
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
            yield from _below(command, child, where)


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
