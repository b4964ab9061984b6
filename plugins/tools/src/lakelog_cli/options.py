"""Options shared by several commands, each defined once, and the stores and names that they mean.

Most commands take a :class:`GivenStore`: a store directory, and the options of how to open it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeAlias

import attrs
import typer

import lakelog
from lakelog import times
from lakelog.errors import LakelogError, SettingsError
from lakelog_cli.output import print_line, shown

if TYPE_CHECKING:
    from lakelog import Store

StorePath: TypeAlias = Annotated[
    Path,
    typer.Argument(metavar="STORE", help="The store directory; it overrides paths in settings."),
]
BrokerConf: TypeAlias = Annotated[
    Path | None, typer.Option("--broker-conf", metavar="FILE", help="RocketMQ's settings file.")
]
SettingsFile: TypeAlias = Annotated[
    Path | None, typer.Option("--settings", metavar="FILE", help="A TOML file of settings.")
]
Assignments: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting; may be repeated."),
]
LandTo: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--to", metavar="KIND:PATH", help="Land messages in tables, as lakelog dispatch --to."
    ),
]
LandTable: TypeAlias = Annotated[
    str | None,
    typer.Option("--table", metavar="NAMESPACE.TABLE", help="The table, for --to."),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print only JSON.")]
AlwaysJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="No effect: the output is JSON.")
]
DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Change nothing; print the plan.")
]
ReadingProcesses: TypeAlias = Annotated[
    int | None,
    typer.Option("--processes", min=1, help="Number of reading processes; default one per core."),
]


LogFormat: TypeAlias = Annotated[Literal["text", "json"], typer.Option(help="Format of log lines.")]
PutMode: TypeAlias = Annotated[
    Literal["write", "exclusive"],
    typer.Option("--mode", help="Together with other processes, or alone."),
]
Topic: TypeAlias = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")]
Group: TypeAlias = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.")]
Tags: TypeAlias = Annotated[
    str | None, typer.Option(metavar="'A || B'", help="Only messages with one of these tags.")
]

# --- times ---

_PLACES: Final = ("earliest", "latest")
Start: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="PLACE",
        help=f"Start of a new group: earliest, latest, or a store time ({times.LOCAL}).",
    ),
]

_FIRST_MS: Final = 126_230_400_000
"""1974-01-01; older than any RocketMQ store."""


def a_time(text: str) -> int:
    """Parse a time option; an invalid time is wrong usage.

    A date before 1974 means the beginning of every store. Its number of milliseconds would be
    rejected because it looks like seconds.
    """
    try:
        found = times.parse_time(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return 0 if found < _FIRST_MS and not text.strip().lstrip("+-").isdigit() else found


def start_position(text: str) -> str | datetime:
    """The argument ``start`` of ``Store.subscribe``; no place and no time is wrong usage."""
    return text if text in _PLACES else datetime.fromtimestamp(a_time(text) / 1000, UTC)


def time_option(words: str) -> Any:
    """An option whose value is a time, with its help."""
    return typer.Option(parser=a_time, metavar="TIME", help=f"{words}; {times.LOCAL}.")


Since: TypeAlias = Annotated[int | None, time_option("Only messages stored at this time or later")]
Until: TypeAlias = Annotated[int | None, time_option("Only messages stored at this time or before")]

# --- opening a store ---

_ARGUMENTS: Final = (
    *("path", "mode", "settings", "broker_conf", "plugins", "files", "clock", "arguments"),
    *("queues", "index", "keep_tombstones", "progress", "dry_run", "full"),
)
"""Arguments of ``lakelog.open``, ``recover``, ``repair`` and ``rebuild`` that are no settings."""


@attrs.frozen(slots=False)
class OpenOptions:
    """How a command opens a store: three options of the command line.

    A command of :class:`~lakelog_cli.app.App` has them all if it has a parameter of this class.
    """

    ARGUMENTS: ClassVar[dict[str, Any]] = {}
    OPTIONS: ClassVar = {
        "broker_conf": BrokerConf,
        "settings": SettingsFile,
        "assignments": Assignments,
    }

    broker_conf: Path | None = None
    settings: Path | None = None
    assignments: list[str] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether none of them was given."""
        return not (self.broker_conf or self.settings or self.assignments)

    @cached_property
    def given(self) -> dict[str, Any]:
        """The settings of ``--set`` by dotted key; raises ``SettingsError``."""
        return dict(map(assignment, self.assignments or ()))

    @property
    def arguments(self) -> dict[str, Any]:
        """All of them, as arguments of ``lakelog.open`` and ``lakelog.recover``."""
        return {"settings": self.settings, "broker_conf": self.broker_conf, **self.given}

    def open(
        self, mode: Literal["read", "write", "exclusive"], path: Path, *, notes: bool = True
    ) -> Store:
        """Open the store in ``path``; settings without effect are reported on stderr.

        :param notes: whether to report them
        """
        store = lakelog.open(path, mode=mode, **self.arguments)
        for key, why in sorted(store.settings.unused.items()) if notes else ():
            print_line(f"note: {key} is not used: {why}", err=True)
        return store

    def open_to_change(self, path: Path) -> Store:
        """Open an existing store for writing; raises ``NotAStore``, and creates none."""
        self.open("read", path).close()
        return self.open("write", path, notes=False)


@attrs.frozen(slots=False)
class GivenStore(OpenOptions):
    """The argument of a command that is a store, with the options of how to open it."""

    ARGUMENTS: ClassVar = {"path": StorePath}

    path: Path = attrs.field(kw_only=True)

    def read(self) -> Store:
        """Open it for reading; raises as :meth:`open`."""
        return self.open("read", self.path)

    def change(self) -> Store:
        """Open it for writing; raises as :meth:`open_to_change`."""
        return self.open_to_change(self.path)


def assignment(text: str) -> tuple[str, Any]:
    """Parse ``KEY=VALUE``; raises :class:`~lakelog.errors.SettingsError`.

    >>> assignment("timed.flush_interval_ms=500"), assignment("flush=inline")
    (('timed.flush_interval_ms', 500), ('flush', 'inline'))
    """
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise SettingsError(f"--set {text} is not KEY=VALUE")
    if key in _ARGUMENTS:
        raise SettingsError("this is no setting", key=key, source="--set")
    return key, _value(value)


def _value(text: str) -> Any:
    """Parse a value as TOML, or else as a plain string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


# --- names in a store ---

_NAMED: Final = 5
"""Number of existing names in a message."""


class UnknownName(LakelogError):
    """The store has no topic, queue or group of that name; wrong usage."""


def check_name(kind: str, name: str, known: Collection[str]) -> None:
    """Raise :class:`UnknownName`, with a suggestion, unless ``name`` is in ``known``.

    :param kind: kind of the name, such as ``topic``
    """
    if name in known:
        return
    near = get_close_matches(name, known, 1)
    if near:
        raise UnknownName(f"no {kind} {_quoted(name)} is here; do you mean {_quoted(near[0])}?")
    raise UnknownName(f"no {kind} {_quoted(name)} is here; {_listed(kind, known)}")


def check_queue(store: Store, topic: str, queue_id: int) -> None:
    """Raise :class:`UnknownName` unless the store has the queue."""
    if store.queue_bounds(topic, queue_id) is None:
        check_name("topic", topic, store.topics())
        ids = [str(each.queue_id) for each in store.queues(topic)]
        check_name(f"queue of topic {_quoted(topic)}", str(queue_id), ids)


def _listed(kind: str, known: Collection[str]) -> str:
    if not known:
        return f"there is no {kind} at all"
    names = ", ".join(map(_quoted, list(known)[:_NAMED]))
    return f"there is {names}{' and more' if len(known) > _NAMED else ''}"


def _quoted(name: str) -> str:
    return f"'{shown(name)}'"
