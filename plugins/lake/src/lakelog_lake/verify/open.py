"""Opens existing tables; never creates one.

A table is named as for ``lakelog dispatch``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import attrs
import pyarrow as pa

from lakelog_lake.errors import NoTable, NotAMessageTable, NotLanded, Unreadable
from lakelog_lake.landing.committing import table_errors
from lakelog_lake.sinks.base import KEY
from lakelog_lake.sinks.delta import DeltaSink
from lakelog_lake.sinks.iceberg import IcebergSink
from lakelog_lake.sinks.locations import TableLocation, is_template, location_of, named
from lakelog_lake.sinks.parquet import ParquetSink
from lakelog_lake.tables.position import Position
from lakelog_lake.tables.shape import STORE, TableShape
from lakelog_lake.verify import landed_table
from lakelog_lake.verify.landed_table import LandedTable


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Convert errors of Arrow and the file system in the block to :class:`Unreadable`."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        first = str(error).strip().splitlines()[0]
        raise Unreadable(f"{name}: a data file of it cannot be read: {first}") from error


@attrs.frozen
class OpenTable:
    """One of the tables that a target names.

    :ivar topic: the only topic of the table; ``None`` for all
    :ivar dead_letters: the table of bodies that did not parse
    """

    table: LandedTable
    topic: str | None = None
    dead_letters: LandedTable | None = None

    @property
    def whole(self) -> LandedTable:
        """The table together with its dead letters."""
        dead = self.dead_letters
        return self.table if dead is None else landed_table.WithDeadLetters(self.table, dead)

    @property
    def each(self) -> list[LandedTable]:
        """The table and its dead letters, one by one."""
        return [self.table, *([] if self.dead_letters is None else [self.dead_letters])]


def all_opened(
    to: str,
    table: str | None = None,
    dead_letters: str | None = None,
    storage: Mapping[str, str] | None = None,
) -> list[OpenTable]:
    """Open the table, or for a name with ``{topic}`` those of all topics.

    :param dead_letters: the name of the table of dead letters, if it is not the default
    :param storage: options of the object store, or properties of the catalog

    Raises :class:`NoTable` if there is none, and :class:`NotAMessageTable`.
    """
    place = location_of(to, storage)
    name = place.table(table)
    dead = place.dead_letters(name, dead_letters)
    if not is_template(name):
        return [OpenTable(_one(place, to, name), None, _if_there(place, to, dead))]
    with table_errors(to):
        why = None if place.names_are_paths else place.why_not_there(name)
        topics = sorted(place.topics(name)) if why is None else []
    if not topics:
        raise NoTable(to, why or f"there is no table of a topic under {name}")
    return [
        OpenTable(
            _one(place, to, named(name, topic)), topic, _if_there(place, to, named(dead, topic))
        )
        for topic in topics
    ]


def _one(place: TableLocation, to: str, name: str) -> LandedTable:
    with table_errors(to):
        why = place.why_not_there(name)
        if why is not None:
            raise NoTable(to, why)
        sink = place.sink(name, TableShape())
    found: LandedTable
    if isinstance(sink, ParquetSink):
        found = landed_table.ParquetRows(sink)
    elif isinstance(sink, DeltaSink):
        found = landed_table.DeltaRows(sink)
    else:
        found = (
            landed_table.IcebergRows(sink) if isinstance(sink, IcebergSink) else place.rows(name)
        )
    with table_errors(found.name), readable(found.name):
        missing = set(KEY) - set(found.columns())
    if missing:
        raise NotAMessageTable(found.name, f"it has no column {', '.join(sorted(missing))}")
    return found


def _if_there(place: TableLocation, to: str, name: str) -> LandedTable | None:
    try:
        return _one(place, to, name)
    except NoTable:
        return None


def position_of(table: LandedTable, store: str) -> Position:
    """The position of ``store``; raises :class:`NotLanded`."""
    position = table.position(store)
    if position is None:
        raise NotLanded(table.name, store, stores_in(table))
    return position


def stores_in(table: LandedTable) -> set[str]:
    """The stores that have rows in a table."""
    return {
        str(each)
        for batch in table.batches(None, [STORE])
        for each in batch.column(0).unique().to_pylist()
    }
