"""Engines and observers of other packages, found through entry points.

``lakelog_lake.engines`` has ``spark``, ``lakelog_lake.observers`` has ``tracing``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

import attrs

from lakelog.errors import SettingsError

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog_lake.maintenance.terms import Compacted
    from lakelog_lake.sinks.iceberg import IcebergSink
    from lakelog_lake.sinks.locations import TableLocation
    from lakelog_lake.tasks.engines import Engine
    from lakelog_lake.verify.verify import Verified, VerifyRequest


@attrs.frozen
class Answer:
    """The result of one SQL statement.

    :ivar rows: empty, without columns, for a statement that returns none
    :ivar is_more: whether the limit cut off rows
    """

    rows: pa.Table
    is_more: bool = False


GROUP: Final = "lakelog_lake.engines"
OBSERVERS: Final = "lakelog_lake.observers"
VIEW: Final = "messages"
"""The name of the view over the messages of the store."""


class EngineProvider(Protocol):
    """A package that runs tasks outside this process; a call starts the session that it needs.

    lakelog-spark implements it, and packages of users may; no class of this package does.
    """

    def missing(self) -> str | None:
        """Return one line on the package that is missing and how to install it, else ``None``.

        An installed package that does not work is not missing: :meth:`running` raises its error.
        Raises :class:`~lakelog.errors.LakelogError` where a missing part is mandatory.
        """

    def running(
        self,
        to: str,
        count: int | None,
        master: str | None,
        config: Mapping[str, str],
        on_done: Callable[[], None],
    ) -> AbstractContextManager[tuple[Engine, TableLocation | None]]:
        """Return the engine for tasks, and the tables of ``to`` if this engine reaches them itself.

        :param count: number of tasks at a time, if given
        :param config: configuration of the engine, by key
        :param on_done: called repeatedly while the engine works
        """

    def compacted(
        self, warehouse: Path, sinks: Sequence[IcebergSink], target_bytes: int, master: str | None
    ) -> Sequence[Compacted]:
        """Compact Iceberg tables of one warehouse; return one result per table, in their order."""

    def verified(self, asked: VerifyRequest, master: str | None) -> Verified:
        """Compare a table with its log, row by row."""

    def is_running(self) -> bool:
        """Whether a session of this engine exists in this process."""

    def answers(
        self,
        store: Path,
        statements: Iterable[str],
        limit: int,
        options: Mapping[str, str],
        master: str | None,
    ) -> Iterator[Answer]:
        """Run SQL statements over the view ``messages`` of a store, one after the other.

        Each statement reads the store as of the statement's start.

        :param limit: most rows of one answer; 0 for all
        :param options: options of the read, see
            :class:`~lakelog_lake.reading.options.ReadOptions`
        """


def provider(name: str) -> EngineProvider:
    """Import the package of an engine; raises :class:`~lakelog.errors.SettingsError` without it."""
    for found in entry_points(group=GROUP, name=name):
        return cast("EngineProvider", found.load())
    raise SettingsError(
        f"the engine {name} is not installed: pip install 'lakelog[{name}]'", key="--engine"
    )


def is_installed(name: str) -> bool:
    """Whether a package with the engine is installed."""
    return bool(entry_points(group=GROUP, name=name))


def nothing() -> None:
    """Do nothing; the default of callbacks."""


PassResult: TypeAlias = "Mapping[str, Any] | BaseException"
"""The result of a pass, the fields of ``Landed`` by name; or its error."""
Observer: TypeAlias = "Callable[[Path, Sequence[str], int, PassResult], None]"
"""Called after each pass that landed rows or failed, with the store's path, the names of the
tables, the start of the pass in ns since 1970, and its result.
"""


@cache
def observers() -> Sequence[Observer]:
    """The observers that are installed."""
    return [each.load() for each in entry_points(group=OBSERVERS)]
