"""Opens existing tables; never creates one.

A table is named as for ``lakelog dispatch``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs

from lakelog_lake.errors import NoTable, NotAMessageTable, NotLanded, Unreadable
from lakelog_lake.landing.committing import table_errors
from lakelog_lake.landing.targets import dead_letters_of
from lakelog_lake.sinks.locations import TableLocation, is_template, named, topics_beside
from lakelog_lake.tables.shape import TableShape
from lakelog_lake.verify.landed_table import KEY, LandedTable, WithDeadLetters

if TYPE_CHECKING:
    from lakelog_lake.tables.position import Position


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Convert errors of Arrow and the file system in the block to :class:`Unreadable`."""
    import pyarrow as pa

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
        return self.table if dead is None else WithDeadLetters(self.table, dead)

    @property
    def each(self) -> list[LandedTable]:
        """The table and its dead letters, one by one."""
        return [self.table, *([] if self.dead_letters is None else [self.dead_letters])]


def opened(
    to: str, table: str | None = None, storage: Mapping[str, str] | None = None
) -> LandedTable:
    """Open the table ``KIND:PATH``; raises :class:`NoTable` and :class:`NotAMessageTable`."""
    place = TableLocation.of(to, storage)
    return _one(place, to, place.table(table))


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
    place = TableLocation.of(to, storage)
    name = place.table(table)
    dead = dead_letters_of(place, name, dead_letters)
    if not is_template(name):
        return [OpenTable(_one(place, to, name), None, _if_there(place, to, dead))]
    if place.kind == "iceberg":
        _check_there(place, to, name)
    with table_errors(to):
        topics = sorted(_topics(place, name))
    if not topics:
        raise NoTable(to, f"there is no table of a topic under {name}")
    return [
        OpenTable(
            _one(place, to, named(name, topic)), topic, _if_there(place, to, named(dead, topic))
        )
        for topic in topics
    ]


def _topics(place: TableLocation, template: str) -> Iterator[str]:
    """The topics of the tables that are marked with one."""
    beside = place.beside(template)
    yield from topics_beside(template, beside, lambda name: place.sink(name, TableShape()).marked())


def _one(place: TableLocation, to: str, name: str) -> LandedTable:
    _check_there(place, to, name)
    with table_errors(to):
        found = _of_kind(place.kind, place.sink(name, TableShape()))
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


def _check_there(place: TableLocation, to: str, name: str) -> None:
    with table_errors(to):
        why = place.why_not_there(name)
    if why is not None:
        raise NoTable(to, why)


def _of_kind(kind: str, sink: Any) -> LandedTable:
    from lakelog_lake.verify.landed_table import DeltaRows, IcebergRows, ParquetRows

    if kind == "parquet":
        return ParquetRows(sink)
    return DeltaRows(sink) if kind == "delta" else IcebergRows(sink)


def position_of(table: LandedTable, store: str) -> Position:
    """The position of ``store``; raises :class:`NotLanded`."""
    position = table.position(store)
    if position is None:
        raise NotLanded(table.name, store, _stores(table))
    return position


def _stores(table: LandedTable) -> set[str]:
    found: set[str] = set()
    for batch in table.batches(None, ["store"]):
        found |= set(batch.column(0).unique().to_pylist())
    return {str(each) for each in found}
