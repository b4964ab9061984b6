"""The program's commands: how they are found, imported and run, and how errors end them.

To list commands needs no import of them; the one that runs is imported. A plugin adds its commands
by the hook ``lakelog_cli_commands``. An error becomes one line of text and an exit code, without a
traceback. A new command is a module of ``lakelog_cli.commands`` and a line in :data:`COMMANDS`.
"""

from __future__ import annotations

import errno
import inspect
import os
import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from lakelog.arguments import WrongType, WrongValue
from lakelog.errors import LakelogError
from lakelog.registry.loading import distribution
from lakelog_cli import exitcodes, output

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
    "work": "Call a function with each message of a consumer group, in processes, until SIGTERM or "
    "Ctrl-C.",
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
"""lakelog's own commands by name, each with the first sentence of its help."""
_NAME_ALL: Final = {"completion", "man"}
"""Commands that need all others."""
_FOLDER: Final = "lakelog_cli.commands"
_OF_PLUGINS: Final = {
    "dispatch": ("lakelog-lake", "lakehouse"),
    "export": ("lakelog-lake", "lakehouse"),
    "lake": ("lakelog-lake", "lakehouse"),
    "broker": ("lakelog-broker", "broker"),
    "promote": ("lakelog-replication", "replication"),
    "replicate": ("lakelog-replication", "replication"),
    "replication": ("lakelog-replication", "replication"),
    "sql": ("lakelog-lake", "lakehouse"),
}
"""Commands of our plugins: the distribution of each, and lakelog's extra that includes it."""
_OR_SPARK: Final = ", or 'lakelog[spark]' for --engine spark"
HELP: Final = "Put and read messages in a store whose files are those of Apache RocketMQ."
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Disk errors of the output; those of a store are lakelog's own errors."""


class NotInstalled(LakelogError):
    """A command of a plugin that is not installed, or is switched off; wrong usage."""


class App(typer.Typer):
    """A set of commands.

    A parameter of a class with ``OPTIONS`` and ``ARGUMENTS``, such as
    :class:`~lakelog_cli.options.GivenStore`, stands for these.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(rich_markup_mode="rich", add_completion=False, **given)

    def command(self, *given: Any, **named: Any) -> Callable[[Any], Any]:
        """Add a command, as ``typer.Typer.command``."""
        return _registering(super().command(*given, **named))

    def callback(self, *given: Any, **named: Any) -> Callable[[Any], Any]:
        """Set the function of the group itself, as ``typer.Typer.callback``."""
        return _registering(super().callback(*given, **named))


def _registering(register: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def registered(function: Any) -> Any:
        register(_with_options(function))
        return function

    return registered


def _with_options(function: Any) -> Any:
    """``function`` with arguments and options in place of one parameter of a class with both."""
    taken = list(inspect.signature(function, eval_str=True).parameters.values())
    whole = next((each for each in taken if hasattr(each.annotation, "OPTIONS")), None)
    if whole is None:
        return function
    made = whole.annotation

    @wraps(function)
    def run(**given: Any) -> Any:
        names = (*made.ARGUMENTS, *made.OPTIONS)
        options = made(**{name: given.pop(name) for name in names})
        return function(**given, **{whole.name: options})

    place = taken.index(whole)
    kept = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in taken]
    arguments = [_named(name, hint) for name, hint in made.ARGUMENTS.items()]
    options = [_named(name, hint, None) for name, hint in made.OPTIONS.items()]
    parameters = [*kept[:place], *arguments, *kept[place + 1 :], *options]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by inspect
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _named(name: str, hint: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=hint)


class LakelogGroup(TyperGroup):
    """The command group, for commands of plugins too, with common error handling."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words; a null byte is wrong usage: no path, topic or body has one here."""
        if bad := next((each for each in args if "\0" in each), None):
            ctx.fail(f"{bad!r:.200} has a null byte; leave it out")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; a closed pipe or Ctrl-C ends it without a message."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except (LakelogError, WrongType, WrongValue) as error:
            _report(error)
            raise typer.Exit(exitcodes.of(error)) from None
        except BrokenPipeError:
            _drop_output()
            raise typer.Exit(exitcodes.INTERRUPTED) from None
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            _drop_output()
            output.print_line(f"lakelog: the output cannot be written: {error.strerror}", err=True)
            raise typer.Exit(exitcodes.NO_OUTPUT) from None
        except KeyboardInterrupt:
            raise typer.Exit(exitcodes.INTERRUPTED) from None
        return result


def _report(error: Exception) -> None:
    """Print an error on stderr, as one line."""
    output.print_line(f"lakelog: {' '.join(str(error).splitlines())}", err=True)


def _drop_output() -> None:
    """Redirect buffered output to ``/dev/null``, to avoid an error message at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


class ListByDefault(LakelogGroup):
    """A command whose subcommand ``list`` may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert ``list`` unless the first argument is a subcommand or asks for help."""
        if args and args[0] not in (*self.commands, *self.get_help_option_names(ctx)):
            args = ["list", *args]
        return super().parse_args(ctx, args)


def subcommands_of(name: str, cls: type[LakelogGroup] = ListByDefault) -> App:
    """The group for the subcommands of lakelog's own command ``name``."""
    return App(cls=cls, help=COMMANDS[name], no_args_is_help=True)


class RootGroup(LakelogGroup):
    """``lakelog COMMAND``."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command, and import it if it is lakelog's own; raises :class:`NotInstalled`."""
        name = args[0]
        if name in COMMANDS:
            self.commands[name] = _imported(name)
        elif name in _OF_PLUGINS and name not in self.commands:
            raise NotInstalled(_lacking(name))
        return super().resolve_command(ctx, args)


def _imported(name: str) -> Any:
    """The command as a click object; a module with subcommands has them in ``app``."""
    module = import_module(f"{_FOLDER}.{name}")
    app = getattr(module, "app", None)
    if app is None:
        app = App()
        app.command(name, epilog=getattr(module, "EPILOG", None))(getattr(module, name))
    return typer.main.get_command(app)


def _lacking(name: str) -> str:
    package, extra = _OF_PLUGINS[name]
    found = distribution(package)
    if found is None:
        return (
            f"the command '{name}' comes with {package}, which is not installed: "
            f"pip install 'lakelog[{extra}]'{_OR_SPARK if extra == 'lakehouse' else ''}"
        )
    return (
        f"the command '{name}' comes with {found}, which is installed and switched off: see "
        "LAKELOG_DISABLE_PLUGINS, and 'lakelog plugins'"
    )


def make_app() -> App:
    """The application with lakelog's own commands."""
    app = App(
        name="lakelog",
        cls=RootGroup,
        help=f"{HELP}\n\n{exitcodes.HELP}",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
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
    if name not in COMMANDS or name in _NAME_ALL:
        _add_plugins(app, name)
    if "_LAKELOG_COMPLETE" in os.environ:  # set by the script of `lakelog completion`
        from typer._completion_classes import completion_init

        completion_init()
    app()


def _add_plugins(app: App, name: str) -> None:
    """Add the commands of the plugin that has the command ``name``; of all if it is not known."""
    from lakelog.registry import Registry  # lakelog's own commands need none

    distribution, _ = _OF_PLUGINS.get(name, ("", ""))
    plugin = distribution.removeprefix("lakelog-") or None
    try:
        Registry.load(None, os.environ).events.cli_commands(app, plugin)
    except LakelogError as error:
        _report(error)
        sys.exit(exitcodes.of(error))


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
        from importlib.metadata import version  # it takes a twentieth of a command's start

        output.print_line(version("lakelog-core"))
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """What may stand before a command."""
