"""The position of a store in a table: its text, and how it is found in one version of the table.

A position is a range of the log, and the fingerprint of the last record of that range.

The table is the only authority: a commit adds files and sets the position atomically. Its text is
one line of compact JSON under :func:`key`, with these members::

    v        2
    start    first byte of the log that the commit landed
    end      end (exclusive); the next range starts there
    last     [offset, size, crc] of the last record before ``end``, CRC-32 of all of its bytes, or
             UNCHECKED; null while nothing has landed
    next     {topic: {queue id: next queue offset}}, of all rows so far
    commit   random number of the commit, by which its writer recognises it
    chosen   the selection of messages, see log.selection; null if not known
    took     [commit, ms]: duration of the writer's previous commit; null for its first

Each commit of lakelog has the positions of all stores in the table. The newest commit with
positions counts, if all later commits keep the landed rows (appends, compactions, deletes).
Otherwise, or if expiry has removed the earlier commits:

- if the table was restored or cloned, positions are computed from its rows, which are those of the
  commits up to some version
- if commits are missing and the table has a mark of the store, the same; a mark with a position
  counts if its last record is the record of the store's last row
- if the table was replaced, or the origin of a store's rows is unknown, an error is raised

A store that once landed in the table, but has no row in it now, lands again from the beginning.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum, auto
from functools import cached_property
from secrets import randbits
from typing import Any, Final, Protocol, TypeAlias

import attrs
import pyarrow as pa

from lakelog.format.checksum import Fingerprint
from lakelog_lake.errors import PositionMissing, TableMismatch

PREFIX: Final = "lakelog.position."
UNCHECKED: Final = 1 << 32
"""Stands for an unknown CRC-32, in positions that were computed from rows."""
_VERSION: Final = 2
_COMMIT_BITS: Final = 53  # integers that every JSON reader keeps exactly
QueueEnds: TypeAlias = "Mapping[str, Mapping[int, int]]"
"""The offset of each queue's next message, by topic and queue id."""


@attrs.frozen
class Position:
    """The position of one store in a commit.

    :ivar start: first byte of the range that this commit landed
    :ivar end: end of the range, exclusive
    :ivar last: the last record before ``end``; ``None`` while no record has landed
    :ivar next_offsets: see :data:`QueueEnds`
    :ivar commit: random number by which a writer recognises its own commit
    :ivar chosen: the selection of messages as text; ``None`` if not known
    :ivar took_ms: number and duration of an earlier commit of the same writer
    """

    start: int
    end: int
    last: Fingerprint | None = None
    next_offsets: QueueEnds = attrs.field(factory=dict)
    commit: int = attrs.field(factory=lambda: randbits(_COMMIT_BITS))
    chosen: str | None = None
    took_ms: tuple[int, int] | None = None


def key(store: str) -> str:
    """The name of the property with the position of ``store``."""
    return PREFIX + store


def to_text(position: Position) -> str:
    """Write one line of JSON."""
    last = position.last
    return json.dumps(
        {
            "v": _VERSION,
            "start": position.start,
            "end": position.end,
            "last": None if last is None else [last.offset, last.size, last.crc],
            "next": position.next_offsets,
            "commit": position.commit,
            "chosen": position.chosen,
            "took": position.took_ms,
        },
        separators=(",", ":"),
        ensure_ascii=False,
    )


def from_text(text: str) -> Position:
    """Parse a position; raises ``ValueError`` for other text."""
    try:
        found = json.loads(text)
        if found["v"] != _VERSION:
            raise ValueError(f"it has version {found['v']}, but lakelog reads {_VERSION}")
        last = None if found["last"] is None else Fingerprint(*map(int, found["last"]))
        ends = {
            topic: {int(queue): int(end) for queue, end in queues.items()}
            for topic, queues in found["next"].items()
        }
        at, commit = (int(found["start"]), int(found["end"])), int(found["commit"])
        took = found.get("took") and tuple(map(int, found["took"]))
        return Position(*at, last, ends, commit, found.get("chosen"), took)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{text[:200]!r} is not a position: {error!r}") from None


def texts_in(properties: Mapping[str, str]) -> dict[str, str]:
    """The texts of positions among ``properties``, by store."""
    return {
        name.removeprefix(PREFIX): text
        for name, text in properties.items()
        if name.startswith(PREFIX)
    }


def merged(old: QueueEnds, new: QueueEnds) -> QueueEnds:
    """The next offset of each queue after ``new`` has landed behind ``old``."""
    return {topic: {**old.get(topic, {}), **new.get(topic, {})} for topic in sorted({*old, *new})}


LAST_ROWS: Final = (
    *("store", "topic", "queue_id"),
    *("queue_offset", "physical_offset", "store_size"),
)
"""The columns from which positions follow."""
_BEGINNING: Final = Position(0, 0, commit=0)


class Left(Enum):
    """The part of the earlier rows that a commit keeps."""

    ALL = auto()
    THOSE_OF_AN_OLDER_VERSION = auto()
    NONE = auto()


@attrs.frozen
class PositionedVersion:
    """One commit to a table.

    :ivar texts: texts of the commit's positions, by store
    :ivar left: the part of the earlier rows that the commit keeps
    """

    texts: Mapping[str, str]
    left: Left = Left.ALL


class TableHistory(Protocol):
    """The history of one version of a table."""

    def commits(self) -> Iterator[PositionedVersion]:
        """The known commits, newest first."""

    def begins(self) -> bool:
        """Whether the last one of :meth:`commits` is the table's first commit."""

    def marks(self) -> Collection[str] | None:
        """The stores with marks outside of commits; ``None`` where marks cannot be listed."""

    def mark(self, store: str) -> str | None:
        """The mark of ``store`` outside of commits: its newest position, or an empty text.

        Marks are not rolled back with the rows. ``None`` for a store that never landed.
        """

    def last_rows(self) -> Iterable[pa.RecordBatch]:
        """:data:`LAST_ROWS` of the last row of each queue; may include other rows."""

    def holds(self, store: str) -> bool:
        """Whether the table has a row of ``store``."""


class KnownPositions:
    """The positions of all stores in one version of a table."""

    def __init__(self, line: TableHistory, name: str) -> None:
        """Read the commits.

        :param line: the history of the version
        :param name: name of the table in messages
        """
        self._line, self._name = line, name
        self._texts: dict[str, str] = {}
        self._before = frozenset[str]()
        self._left = Left.ALL
        self._is_cut = self._walk()

    def _walk(self) -> bool:
        """Go back to a commit with the positions of all stores; return whether none was found."""
        for commit in self._line.commits():
            if commit.texts:
                self._before = frozenset(commit.texts)
                self._texts = dict(commit.texts) if self._left is Left.ALL else {}
                return False
            if self._left is Left.ALL:
                self._left = commit.left
        return not self._line.begins()

    def position(self, store: str) -> Position | None:
        """The position of ``store``, or ``None``.

        Raises :class:`~lakelog_lake.errors.PositionMissing` and ``TableMismatch``.
        """
        text = self._texts.get(store) or self._from_rows.get(store)
        if text is not None:
            return _parsed(text, self._name)
        if self._line.holds(store):
            raise PositionMissing(self._name, store)
        has_been = store in self._before or self._line.mark(store) is not None
        return _BEGINNING if has_been else None

    def properties(self, store: str, position: Position) -> dict[str, str]:
        """The properties of the next commit: positions of all stores; that of ``store`` is new."""
        texts = {**self._texts_now(), store: to_text(position)}
        return {key(name): text for name, text in texts.items()}

    def _texts_now(self) -> dict[str, str]:
        if self._left is Left.ALL and (not self._is_cut or self._has_all_marks()):
            return self._texts
        return {**self._from_rows, **self._texts}

    def _has_all_marks(self) -> bool:
        marks = self._line.marks()
        return marks is not None and set(marks) <= set(self._texts)

    @cached_property
    def _from_rows(self) -> Mapping[str, str]:
        """The positions of stores, where the rows are known to be complete up to the last one."""
        is_older = self._left is Left.THOSE_OF_AN_OLDER_VERSION
        if not is_older and not (self._left is Left.ALL and self._is_cut):
            return {}
        return {
            store: self._confirmed(store, position) or to_text(position)
            for store, position in positions_of(self._line.last_rows(), self._name).items()
            if is_older or self._line.mark(store) is not None
        }

    def _confirmed(self, store: str, position: Position) -> str | None:
        """The mark's text, more complete than rows, if it ends at the record of the last row."""
        text = self._line.mark(store)
        last, row = _parsed(text, self._name).last if text else None, position.last
        same = last and row and (last.offset, last.size) == (row.offset, row.size)
        return text if same else None


@attrs.frozen
class TableVersion:
    """One version of a table.

    :ivar table: the handle from which positions were read
    :ivar known: the positions of all stores
    """

    table: Any
    known: KnownPositions


def cached_version(
    cache: dict[Any, KnownPositions], version: object, table: Any, line: TableHistory, name: str
) -> TableVersion:
    """The version of ``table``; its positions are read again only if it is another version.

    :param cache: the positions of the version that was read last
    """
    if version not in cache:
        cache.clear()
        cache[version] = KnownPositions(line, name)
    return TableVersion(table, cache[version])


def _parsed(text: str, name: str) -> Position:
    try:
        return from_text(text)
    except ValueError as error:
        raise TableMismatch(f"{name}: {error}") from None


@attrs.define
class _Last:
    """The last row of a store by physical offset, and the next offset of each of its queues."""

    offset: int = -1
    size: int | None = None
    ends: dict[str, dict[int, int]] = attrs.Factory(dict)

    def add(self, row: Mapping[str, Any]) -> None:
        queues = self.ends.setdefault(row["topic"], {})
        queues[row["queue_id"]] = max(queues.get(row["queue_id"], 0), row["queue_offset"] + 1)
        if row["physical_offset"] > self.offset:
            self.offset, self.size = row["physical_offset"], row["store_size"]


def positions_of(batches: Iterable[pa.RecordBatch], name: str) -> dict[str, Position]:
    """The positions after the last row of each store.

    :param batches: with :data:`LAST_ROWS`

    Raises ``TableMismatch`` for a row without the size of its record.
    """
    found: dict[str, _Last] = {}
    for batch in batches:
        for row in _last_of_queues(batch):
            found.setdefault(row["store"], _Last()).add(row)
    return {store: _behind(last, name) for store, last in found.items()}


def _last_of_queues(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """One row for each queue in ``batch``; its largest offsets are all of one record."""
    table = pa.table(batch).sort_by("physical_offset")
    aggregated = table.group_by(["store", "topic", "queue_id"], use_threads=False).aggregate(
        [("queue_offset", "max"), ("physical_offset", "last"), ("store_size", "last")]
    )
    found = ("queue_offset_max", "physical_offset_last", "store_size_last")
    last: pa.Table = aggregated.select([*LAST_ROWS[:3], *found]).rename_columns(list(LAST_ROWS))
    rows: list[dict[str, Any]] = last.to_pylist()
    return rows


def _behind(last: _Last, name: str) -> Position:
    if last.size is None:
        raise TableMismatch(
            f"{name}: its last row, at physical offset {last.offset}, has no store_size, so "
            "the position is not known: land in a new table"
        )
    end = last.offset + last.size
    mark = Fingerprint(last.offset, last.size, UNCHECKED)
    return Position(last.offset, end, mark, last.ends, commit=0)
