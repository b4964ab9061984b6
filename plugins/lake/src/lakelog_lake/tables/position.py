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
    bodies   [[offset, digest]]: from which physical offset on bodies landed by which parsers, see
             bodies.recorded; missing if none were parsed
    snapshot id of the Iceberg snapshot of that position, in a property of the table only

Each commit of lakelog has the positions of all stores in the table. The position of a store is
found in this order:

- the newest commit with a position of the store decides, among those that led to the present
  version: a rollback or restore of the table goes back to its position. Appends, compactions and
  deletes by others change nothing, whatever rows are missing
- if these commits are no longer known, the mark of the store outside of commits decides, provided
  that it belongs to the commit before the oldest known one, or that the row it ends at is there.
  Expiry does not remove a mark, and a rollback does not set it back. Rows behind it are refused
- otherwise an error is raised, and the user says which of both counts

A store whose table once had its position, but went back to a commit before the store's first one,
lands again from the beginning. A commit on a history that is not known to its begin says so
(:data:`OTHERS`): a store that it does not list may have landed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from secrets import randbits
from typing import Any, Final, Protocol, TypeAlias

import attrs
import pyarrow as pa

from lakelog.format.checksum import Fingerprint
from lakelog_lake.errors import PositionMissing, TableMismatch
from lakelog_lake.tables.settings import Resume

PREFIX: Final = "lakelog.position."
UNCHECKED: Final = 1 << 32
"""Stands for an unknown CRC-32, in positions that were computed from rows."""
_VERSION: Final = 2
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_COMMIT_BITS: Final = 53  # integers that every JSON reader keeps exactly
_MOST_PARSERS: Final = 64
"""Changes of parsers that a position has; rows before the oldest are not parsed again."""
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
    :ivar bodies: physical offsets, ascending, each with the digest of the parsers from there on
    :ivar stored_ms: the store time of the last record, of a position from rows; not in the text
    """

    start: int
    end: int
    last: Fingerprint | None = None
    next_offsets: QueueEnds = attrs.field(factory=dict)
    commit: int = attrs.field(factory=lambda: randbits(_COMMIT_BITS))
    chosen: str | None = None
    took_ms: tuple[int, int] | None = None
    bodies: tuple[tuple[int, str], ...] = ()
    stored_ms: int | None = None

    def up_to(self, other: Position) -> Position:
        """This position, with the end of ``other``, behind which no row is."""
        return attrs.evolve(self, start=other.end, end=other.end)

    def bodies_from(self, start: int, digest: str) -> tuple[tuple[int, str], ...]:
        """The parsers of all rows, if those of ``digest`` are in use from ``start`` on."""
        before = tuple(each for each in self.bodies if each[0] < start)
        if digest == (before[-1][1] if before else ""):
            return before
        return (*before, (start, digest))[-_MOST_PARSERS:]


def key(store: str) -> str:
    """The name of the property with the position of ``store``."""
    return PREFIX + store


def to_text(position: Position) -> str:
    """Write one line of JSON."""
    last = position.last
    bodies = {"bodies": position.bodies} if position.bodies else {}
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
            **bodies,
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
        bodies = tuple((int(start), str(digest)) for start, digest in found.get("bodies", ()))
        return Position(*at, last, ends, commit, found.get("chosen"), took, bodies)
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
    *("queue_offset", "physical_offset", "store_size", "store_timestamp"),
)
"""The columns from which positions follow."""
_BEGINNING: Final = Position(0, 0, commit=0)
OTHERS: Final = "lakelog.others"
"""The property of a commit whose positions may not be those of all stores."""
_UNKNOWN: Final = {OTHERS: "unknown"}
_SNAPSHOT: Final = "snapshot"
"""The member of a mark's text with the snapshot that has the same position."""


@attrs.frozen
class PositionedVersion:
    """One commit to a table.

    :ivar texts: texts of the commit's positions, by store
    :ivar is_whole: whether all other stores have not landed, if there are texts
    :ivar replaces: whether the commit may have replaced the rows of earlier ones
    """

    texts: Mapping[str, str]
    is_whole: bool = True
    replaces: bool = False

    @classmethod
    def of(cls, properties: Mapping[str, str], *, replaces: bool = False) -> PositionedVersion:
        """The commit with these properties, of which other writers set some."""
        return cls(texts_in(properties), OTHERS not in properties, replaces)


class TableHistory(Protocol):
    """The commits that led to one version of a table."""

    def commits(self) -> Iterator[PositionedVersion]:
        """Those that are known, newest first."""

    def begins(self) -> bool:
        """Whether the last one of :meth:`commits` is the table's first commit."""

    def is_straight(self) -> bool:
        """Whether the table keeps no other version than those of :meth:`commits`."""


def lists(history: TableHistory, store: str, commit: int, since: int | None) -> bool | None:
    """Whether a commit is in a version that the table keeps; ``None`` if that is not known.

    :param commit: the number of the commit
    :param since: the number of a commit of ``store`` before it; ``None`` if there was none
    """
    for each in history.commits():
        text = each.texts.get(store)
        found = None if text is None else _parsed(text, store).commit
        if found == commit:
            return True
        if found is not None and found == since:
            break
    else:
        if since is not None or not history.begins():
            return None
    return False if history.is_straight() else None


class MarkedHistory(TableHistory, Protocol):
    """A history with marks outside of commits, and the rows of the version."""

    def mark(self, store: str) -> str | None:
        """The mark of ``store`` outside of commits: its newest position, or the end of it.

        Marks are not rolled back with the rows. ``None`` for a store that never landed.
        """

    def is_of_parent(self, snapshot: int) -> bool:
        """Whether ``snapshot`` was replaced by the oldest one of :meth:`commits`."""

    def last_rows(self) -> Iterable[pa.RecordBatch]:
        """:data:`LAST_ROWS` of the last row of each queue; may include other rows."""

    def holds(self, store: str) -> bool:
        """Whether the table has a row of ``store``."""


class KnownPositions:
    """The positions of all stores in one version of a table."""

    def __init__(self, line: MarkedHistory, name: str) -> None:
        """Read the commits.

        :param line: the history of the version
        :param name: name of the table in messages
        """
        self.line, self._name = line, name
        self.texts: Mapping[str, str] = {}
        self._is_replaced = False
        self._is_whole = self._walk()

    def _walk(self) -> bool:
        """Go back to a commit with positions; return whether all other stores never landed."""
        for commit in self.line.commits():
            if commit.texts:
                self.texts = commit.texts
                return commit.is_whole
            if commit.replaces:
                self._is_replaced = True
                return False
        return self.line.begins()

    def position(self, store: str, resume: Resume | None = None) -> Position | None:
        """The position of ``store``, or ``None`` if it has not landed.

        :param resume: what counts if no commit shows the position

        Raises :class:`~lakelog_lake.errors.PositionMissing` and ``TableMismatch``.
        """
        text = self.texts.get(store)
        if text is not None:
            return _parsed(text, self._name)
        mark = self.line.mark(store)
        if mark is None or self._is_whole:
            if not self.line.holds(store):
                return None if mark is None else _BEGINNING
            mark = None
        return self._resumed(store, mark, resume)

    def _resumed(self, store: str, mark: str | None, resume: Resume | None) -> Position:
        """The position by the mark or by the rows, if that is shown, or the user says so."""
        marked = None if mark is None else _of_mark(mark, self._name)
        rows = self._rows.get(store)
        if mark is not None and marked is not None and (rows is None or rows.end <= marked.end):
            is_last = rows is not None and rows.end == marked.end and not self._is_replaced
            if is_last or self._is_shown(mark) or resume is Resume.POSITION:
                return marked if marked.last is not None or rows is None else rows.up_to(marked)
        if resume is Resume.ROWS and rows is not None:
            return rows
        ends = [None if each is None else each.end for each in (marked, rows)]
        raise PositionMissing(self._name, store, *ends)

    @cached_property
    def _rows(self) -> Mapping[str, Position]:
        return positions_of(self.line.last_rows(), self._name)

    def _is_shown(self, mark: str) -> bool:
        """Whether the mark is that of the commit before the oldest known one."""
        snapshot = None if self._is_replaced else _snapshot_of(mark)
        return snapshot is not None and self.line.is_of_parent(snapshot)

    def properties(self, store: str, position: Position) -> dict[str, str]:
        """The properties of the next commit: positions of all stores; that of ``store`` is new."""
        texts = {**self.texts, store: to_text(position)}
        return {key(name): text for name, text in texts.items()} | (
            {} if self._is_whole else _UNKNOWN
        )


def marks(properties: Mapping[str, str], snapshot: int) -> dict[str, str]:
    """The marks that go with a commit of these properties.

    :param snapshot: the snapshot that the commit makes
    """
    return {
        key(store): f'{text[:-1]},"{_SNAPSHOT}":{snapshot}}}'
        for store, text in texts_in(properties).items()
    }


def _snapshot_of(mark: str) -> int | None:
    found = json.loads(mark)
    return found.get(_SNAPSHOT) if isinstance(found, dict) else None


def _of_mark(mark: str, name: str) -> Position:
    """The position of a mark, which may only have its end."""
    return Position(int(mark), int(mark), commit=0) if mark.isdecimal() else _parsed(mark, name)


@attrs.frozen
class TableVersion:
    """One version of a table.

    :ivar table: the handle from which positions were read
    :ivar known: the positions of all stores
    """

    table: Any
    known: KnownPositions


def cached_version(
    cache: dict[Any, KnownPositions], version: object, table: Any, line: MarkedHistory, name: str
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
    stored: datetime | None = None
    ends: dict[str, dict[int, int]] = attrs.Factory(dict)

    def add(self, row: Mapping[str, Any]) -> None:
        queues = self.ends.setdefault(row["topic"], {})
        queues[row["queue_id"]] = max(queues.get(row["queue_id"], 0), row["queue_offset"] + 1)
        if row["physical_offset"] > self.offset:
            self.offset, self.size = row["physical_offset"], row["store_size"]
            self.stored = row["store_timestamp"]


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
        [("queue_offset", "max"), *((each, "last") for each in LAST_ROWS[4:])]
    )
    found = ("queue_offset_max", *(f"{each}_last" for each in LAST_ROWS[4:]))
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
    stored_ms = None if last.stored is None else (last.stored - _EPOCH) // timedelta(milliseconds=1)
    return Position(last.offset, end, mark, last.ends, commit=0, stored_ms=stored_ms)
