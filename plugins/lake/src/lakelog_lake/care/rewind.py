"""Takes out of a table the rows of a store whose log was cut, so that landing goes on behind them.

Every row is compared with the log. From the first one on that the log does not hold as it is in
the table, all rows of the store go, in the commit that moves the position back behind the last
row that stays: what the log holds instead lands next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

import lakelog
from lakelog_lake.care.taking_out import Behind, take_out
from lakelog_lake.errors import Conflict, TooBusy, TooDifferent
from lakelog_lake.log.selection import Chosen
from lakelog_lake.readback.landed_table import LandedTable
from lakelog_lake.readback.open import OpenTable, all_opened, readable
from lakelog_lake.sinks.history import LAST_ROWS, positions_of
from lakelog_lake.tables.position import Position
from lakelog_lake.verify.differences import BODY, COLUMNS, EXTRA, PLACE
from lakelog_lake.verify.verify import VerifyRequest, bounds_of, verify_here

if TYPE_CHECKING:
    import pyarrow as pa

_NOT_IN_LOG: Final = (EXTRA, PLACE, BODY, COLUMNS)


@attrs.frozen
class RewoundRows:
    """What goes of one queue; :ivar first: queue offset; :ivar start: physical offset."""

    topic: str
    queue: int
    first: int
    last: int
    start: int
    rows: int


@attrs.frozen
class Rewind:
    """What is to be done to one table.

    :ivar before: the position that it has; :ivar after: the one that it gets
    :ivar start: of what goes, in bytes of the log
    """

    table: LandedTable
    store: str
    before: Position
    after: Position
    start: int
    queues: tuple[RewoundRows, ...]

    @property
    def rows(self) -> int:
        """How many go."""
        return sum(each.rows for each in self.queues)

    def do(self) -> None:
        """One commit; raises :class:`~lakelog_lake.errors.TooBusy`."""
        try:
            take_out(self.table, self.store, Behind(self.start), self.before, self.after)
        except Conflict as error:
            raise TooBusy(f"{error}; nothing was changed: stop dispatchers, and repeat") from error


def planned(
    path: Path, store: str, to: str, table: str | None, dead_letters: str | None
) -> Iterator[Rewind]:
    """For each table that has what the log does not have; those of dead letters come first.

    Raises :class:`~lakelog_lake.errors.CareError`.
    """
    for each in all_opened(to, table, dead_letters):
        start = _first_unknown(path, store, each)
        for one in reversed(each.each) if start is not None else ():
            before = one.position(store)
            if before is not None:
                yield _rewind(path, store, one, before, start or 0)


def _first_unknown(path: Path, store: str, opened: OpenTable) -> int | None:
    """Where the rows begin that the log does not have; ``None`` if it has what has landed."""
    found = verify_here(VerifyRequest(path, store, opened.whole, Chosen()))
    if found.differences.not_listed:
        raise TooDifferent(opened.table.name, path)
    places = [each.start for each in found.differences.each() if each.kind in _NOT_IN_LOG]
    positions = (each.position(store) for each in opened.each)
    with lakelog.open(path, mode="read") as log:
        ends = [
            each.end
            for each in positions
            if each is not None and bounds_of(log, each, opened.table.name).problem is not None
        ]
    return min((*places, *ends), default=None)


def _rewind(path: Path, store: str, table: LandedTable, before: Position, start: int) -> Rewind:
    import pyarrow as pa
    import pyarrow.compute as pc

    gone: list[pa.RecordBatch] = []

    def kept() -> Iterator[pa.RecordBatch]:
        for batch in table.batches(store, LAST_ROWS):
            is_gone = pc.greater_equal(batch.column("physical_offset"), start)
            gone.append(batch.filter(is_gone).select(LAST_ROWS[1:5]))
            yield batch.filter(pc.invert(is_gone))

    with readable(table.name):
        last = positions_of(kept(), table.name).get(store)
    if last is None:
        with lakelog.open(path, mode="read") as log:
            last = Position(log.min_offset, log.min_offset)
    after = Position(last.end, last.end, last.last, last.next_offsets, chosen=before.chosen)
    queues = tuple(_by_queue(pa.Table.from_batches(gone))) if gone else ()
    return Rewind(table, store, before, after, start, queues)


def _by_queue(rows: Any) -> Iterable[RewoundRows]:
    grouped = rows.group_by(["topic", "queue_id"]).aggregate(
        [
            ("queue_offset", "min"),
            ("queue_offset", "max"),
            ("physical_offset", "min"),
            ("physical_offset", "count"),
        ]
    )
    names = ("queue_offset_min", "queue_offset_max", "physical_offset_min", "physical_offset_count")
    found = grouped.select(["topic", "queue_id", *names]).to_pylist()
    return sorted((RewoundRows(*each.values()) for each in found), key=lambda each: each.start)
