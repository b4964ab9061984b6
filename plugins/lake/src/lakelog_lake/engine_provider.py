"""Engines that other packages bring, by the entry points ``lakelog_lake.engines``: ``spark``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

import attrs

from lakelog.errors import SettingsError

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog_lake.care.terms import Compacted
    from lakelog_lake.landing.places import Destination
    from lakelog_lake.sinks.iceberg import IcebergSink
    from lakelog_lake.tasks.engines import Engine
    from lakelog_lake.verify.verify import Verified, VerifyRequest


@attrs.frozen
class Answer:
    """What a statement gave.

    :ivar rows: none where the statement has no columns
    :ivar is_more: whether there are more of them
    """

    rows: pa.Table
    is_more: bool = False


GROUP: Final = "lakelog_lake.engines"
VIEW: Final = "messages"
"""What statements call the messages of the store."""


class EngineProvider(Protocol):
    """A package that runs tasks elsewhere; each call may start what it needs, and ends it."""

    def missing(self) -> str | None:
        """What else has to be installed, and how, in one line; ``None`` if it is to be used.

        What is installed and does not work is not missing: :meth:`running` says so. Raises where
        what is missing has to be there.
        """

    def running(
        self,
        to: str,
        count: int | None,
        master: str | None,
        config: Mapping[str, str],
        on_done: Callable[[], None],
    ) -> AbstractContextManager[tuple[Engine, Destination | None]]:
        """Who runs tasks, and where the tables are, if it knows a place that ``to`` names.

        :param count: how many tasks at once, if that was said
        :param config: of the engine, by key
        :param on_done: called now and then while it works
        """

    def compacted(
        self, warehouse: Path, sinks: Sequence[IcebergSink], target_bytes: int, master: str | None
    ) -> Sequence[Compacted]:
        """Compact Iceberg tables of one warehouse; what was done, in their order."""

    def verified(self, asked: VerifyRequest, master: str | None) -> Verified:
        """Compare a table with its log."""

    def is_running(self) -> bool:
        """Whether a session runs in this process."""

    def answers(
        self,
        store: Path,
        statements: Iterable[str],
        limit: int,
        options: Mapping[str, str],
        master: str | None,
    ) -> Iterator[Answer]:
        """Run SQL over the view ``messages`` of a store, one statement after the other.

        Each sees the store as it is when the statement begins.

        :param limit: of the rows of an answer; 0 is none
        :param options: of the read, see :class:`~lakelog_lake.reading.options.ReadOptions`
        """


def provider(name: str) -> EngineProvider:
    """Import what offers the engine; raises :class:`~lakelog.errors.SettingsError` without it."""
    found = _entry(name)
    if found is None:
        raise SettingsError(
            f"the engine {name} is not installed: pip install 'lakelog[{name}]'", key="--engine"
        )
    return cast("EngineProvider", found.load())


def is_installed(name: str) -> bool:
    """Whether a package offers the engine."""
    return _entry(name) is not None


def _entry(name: str) -> EntryPoint | None:
    return next(iter(entry_points(group=GROUP, name=name)), None)


def nothing() -> None:
    """Told of what was done."""
