"""One of the tables that passes land in: its state and its position.

The position in the table is authoritative. A pass without rows for a table does not commit to it:
the end of the pass is kept in memory instead, so that the next pass can start there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import attrs

import lakelog
from lakelog.format.checksum import Fingerprint
from lakelog_lake.bodies.base import BodyParser
from lakelog_lake.errors import SelectionChanged
from lakelog_lake.landing.committing import CommitLock, commit
from lakelog_lake.landing.table_errors import table_errors
from lakelog_lake.log.selection import EVERYTHING, Chosen
from lakelog_lake.sinks.base import Head, Sink
from lakelog_lake.tables.parquet_writer import ParquetCompression
from lakelog_lake.tables.position import Position, QueueEnds, merged
from lakelog_lake.tasks.ranges import first_offset
from lakelog_lake.tasks.task import Outlet, TablePart


@attrs.frozen
class CommitResult:
    """The result of landing a range in one table.

    :ivar start: start of the range, a physical offset in bytes
    :ivar end: its end, exclusive
    :ivar won: whether this dispatcher landed the range, and not another one
    :ivar dead_letters: whether it is a table of dead letters
    """

    start: int
    end: int
    rows: int
    files: int
    won: bool
    dead_letters: bool


@attrs.define(eq=False)
class Target:
    """A table, and the rows that go to it.

    :ivar sink: the prepared sink of the table
    :ivar topics: the topics of the table; ``None`` for all
    :ivar parsers: body parsers by topic; bodies that do not parse go to ``dead_letters``
    :ivar idle_bytes: a position is committed without rows only after this many bytes of the log
    :ivar compression: compression of its data files
    :ivar start: all rows of the table before this physical offset have landed
    """

    sink: Sink
    topics: frozenset[str] | None = None
    parsers: Mapping[str, BodyParser] = attrs.field(factory=dict)
    dead_letters: Target | None = None
    is_dead_letters: bool = False
    idle_bytes: int = 0
    compression: ParquetCompression = ParquetCompression.AUTO
    start: int = 0
    _head: Head | None = None
    _empty_to: Position | None = None
    _chosen: str | None = None
    _took_ms: tuple[int, int] | None = None

    def look(
        self,
        store: lakelog.Store,
        identity: str,
        first: Callable[[], int],
        chosen: Chosen = EVERYTHING,
        *,
        accept_gaps: bool,
    ) -> None:
        """Read the position, and set ``start``.

        :param first: returns the start for a table without a position

        Raises the errors of :func:`~lakelog_lake.tasks.ranges.first_offset`, and
        :class:`~lakelog_lake.errors.SelectionChanged`.
        """
        if self._head is None or not self.idle_bytes:
            self._head = self.newest(identity)
        self._chosen = chosen.description(of_one_topic=self.topics is not None)
        before = None if self._head.position is None else self._head.position.chosen
        if before not in (None, self._chosen):
            raise SelectionChanged(self.sink.name, identity, str(before), self._chosen)
        if self._head.position is None:
            at = first()
            self._empty_to = Position(at, at)
        self.start = first_offset(store, self._reached, self.sink.name, accept_gaps=accept_gaps)

    def newest(self, identity: str) -> Head:
        """Read the newest version of the table."""
        with table_errors(self.sink.name):
            return self.sink.head(identity)

    def has_landed(self, identity: str) -> bool:
        """Whether the table has a position of the store."""
        self._head = self._head or self.newest(identity)
        return self._head.position is not None

    @property
    def landed(self) -> Position:
        """The position at the last :meth:`look`; no record behind its end has landed."""
        position = None if self._head is None else self._head.position
        return Position(self.start, self.start) if position is None else position

    @property
    def _reached(self) -> Position | None:
        """The position in the table, or a later one kept in memory."""
        position = None if self._head is None else self._head.position
        known = self._empty_to
        if position is None or (known is not None and known.end > position.end):
            return known
        return position

    def outlet(self, number: int, numbers: Mapping[Target, int]) -> Outlet:
        """The description of this table for tasks."""
        dead = None if self.dead_letters is None else numbers[self.dead_letters]
        return Outlet(
            number,
            self.sink.folder,
            self.sink.layout,
            self.start,
            self.topics,
            self.parsers,
            dead,
            self.compression,
        )

    def settle(
        self,
        identity: str,
        end: int,
        last: Fingerprint | None,
        parts: Sequence[TablePart],
        commit_lock: CommitLock | None = None,
    ) -> CommitResult | None:
        """Commit the files written up to ``end``; return ``None`` if the table was not changed.

        Raises as :func:`.committing.commit`.
        """
        if self._head is None or end <= self.start:
            return None
        position = self._next(end, last, parts)
        files = [file for part in parts for file in part.files]
        if not files and self._may_wait(position):
            self._empty_to = position
            return None
        begun = time.monotonic()
        won = commit(self.sink, self._head, identity, files, position, commit_lock)
        self._took_ms = (position.commit, round((time.monotonic() - begun) * 1000))
        self._head = self._empty_to = None
        rows = sum(each.rows for each in files)
        return CommitResult(position.start, end, rows, len(files), won, self.is_dead_letters)

    def _next(self, end: int, last: Fingerprint | None, parts: Sequence[TablePart]) -> Position:
        before = None if self._head is None else self._head.position
        ends: QueueEnds = {} if before is None else before.next_offsets
        ends = reduce(merged, (each.next_offsets for each in parts), ends)
        if last is None and self._reached is not None:
            last = self._reached.last
        begins, took_ms = self._begins(before), self._took_ms
        return Position(begins, end, last, ends, chosen=self._chosen, took_ms=took_ms)

    def _begins(self, before: Position | None) -> int:
        """The end of the last position, or ``start`` if messages between them were deleted."""
        reached = self._reached
        if before is None or reached is None or reached.end < self.start:
            return self.start
        return before.end

    def _may_wait(self, position: Position) -> bool:
        """Whether to keep a position in memory; not the first one, which is slow to find again."""
        has_one = self._head is not None and self._head.position is not None
        return has_one and position.end - position.start < self.idle_bytes

    def finish(self, identity: str) -> None:
        """Commit a position that is only in memory."""
        known, head = self._empty_to, self._head
        if known is not None and head is not None and head.position is not None:
            commit(self.sink, head, identity, [], known)
            self._head = self._empty_to = None
