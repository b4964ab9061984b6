"""How far each store has landed in one version of a table, by the commits that led to it.

Each commit of lakelog's says the positions of all stores. Going back from the version, the newest
commit that says any counts, as long as what lies between has left in the table what had landed:
appends, compactions, deletes. Where it has not, or where the line has been cut by expiry:

- the table was restored, or cloned: its rows count, as the commits up to some version are in it
- the line is cut, and the table has a mark of the store: likewise; a mark that says a position
  counts where its last record is the store's last row
- the table was replaced, or nothing tells where rows of the store come from: it is refused

A store that has been in the table, and has no row in it, lands again from the beginning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum, auto
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from lakelog.files.state.pins import Fingerprint
from lakelog_lake.errors import NoPosition, TableMismatch
from lakelog_lake.tables.position import UNCHECKED, Position, from_text, says_all, to_text

if TYPE_CHECKING:
    import pyarrow as pa

LAST_ROWS: Final = (
    *("store", "topic", "queue_id"),
    *("queue_offset", "physical_offset", "store_size"),
)
"""The columns that tell how far a store has come."""
_BEGINNING: Final = Position(0, 0, commit=0)


class Left(Enum):
    """What a commit has left of the rows that were there before it."""

    ALL = auto()
    THOSE_OF_AN_OLDER_VERSION = auto()
    NONE = auto()


@attrs.frozen
class PositionedVersion:
    """:ivar texts: the positions it says, by store; :ivar left: of the rows before."""

    texts: Mapping[str, str]
    left: Left = Left.ALL


class TableHistory(Protocol):
    """One version of a table."""

    def commits(self) -> Iterator[PositionedVersion]:
        """From the newest back, as far as they are known."""

    def begins(self) -> bool:
        """Whether the last one of :meth:`commits` is the table's first."""

    def marks(self) -> Collection[str] | None:
        """The stores of which the table says elsewhere that they landed; not all can list them."""

    def mark(self, store: str) -> str | None:
        """What the table says elsewhere of ``store``: the newest position, or nothing but itself.

        It does not go back with the rows. ``None`` for a store that never landed.
        """

    def last_rows(self) -> Iterable[pa.RecordBatch]:
        """:data:`LAST_ROWS` of the last row of each queue, and of any others."""

    def holds(self, store: str) -> bool:
        """Whether the table has a row of ``store``."""


class KnownPositions:
    """What one version of a table says."""

    def __init__(self, line: TableHistory, name: str) -> None:
        """:param name: of the table, for messages."""
        self._line, self._name = line, name
        self._texts: dict[str, str] = {}
        self._before: set[str] = set()
        self._left = Left.ALL
        self._is_cut = self._walk()

    def _walk(self) -> bool:
        """Go back to a commit that says all; whether the line ends before."""
        for commit in self._line.commits():
            if self._left is Left.ALL:
                self._texts = {**commit.texts, **self._texts}
            self._before |= set(commit.texts)
            if says_all(commit.texts.values()):
                return False
            if self._left is Left.ALL:
                self._left = commit.left
        return not self._line.begins()

    def position(self, store: str) -> Position | None:
        """Of ``store``; raises :class:`~lakelog_lake.errors.NoPosition`, and ``TableMismatch``."""
        text = self._texts.get(store) or self._from_rows.get(store)
        if text is not None:
            return _parsed(text, self._name)
        if self._line.holds(store):
            raise NoPosition(self._name, store)
        has_been = store in self._before or self._line.mark(store) is not None
        return _BEGINNING if has_been else None

    def texts(self) -> dict[str, str]:
        """Of all stores, as the next commit says them."""
        if self._left is Left.ALL and (not self._is_cut or self._has_all_marks()):
            return self._texts
        return {**self._from_rows, **self._texts}

    def _has_all_marks(self) -> bool:
        marks = self._line.marks()
        return marks is not None and set(marks) <= set(self._texts)

    @cached_property
    def _from_rows(self) -> Mapping[str, str]:
        """The positions of stores whose rows are all that there were up to the last one."""
        is_older = self._left is Left.THOSE_OF_AN_OLDER_VERSION
        if not is_older and not (self._left is Left.ALL and self._is_cut):
            return {}
        return {
            store: self._confirmed(store, position) or to_text(position)
            for store, position in positions_of(self._line.last_rows(), self._name).items()
            if is_older or self._line.mark(store) is not None
        }

    def _confirmed(self, store: str, position: Position) -> str | None:
        """The mark's text, which says more than rows do, if its last record is the last row."""
        text = self._line.mark(store)
        last = _parsed(text, self._name).last if text else None
        same = last is not None and (last.offset, last.size) == _place(position)
        return text if same else None


def _place(position: Position) -> tuple[int, int] | None:
    last = position.last
    return None if last is None else (last.offset, last.size)


def _parsed(text: str, name: str) -> Position:
    try:
        return from_text(text)
    except ValueError as error:
        raise TableMismatch(f"{name}: {error}") from None


@attrs.define
class _Last:
    """Of one store: the record of its last row, and where its queues go on."""

    offset: int = -1
    size: int | None = None
    ends: dict[str, dict[int, int]] = attrs.Factory(dict)

    def add(self, row: Mapping[str, Any]) -> None:
        queues = self.ends.setdefault(row["topic"], {})
        queues[row["queue_id"]] = max(queues.get(row["queue_id"], 0), row["queue_offset"] + 1)
        if row["physical_offset"] > self.offset:
            self.offset, self.size = row["physical_offset"], row["store_size"]


def positions_of(batches: Iterable[pa.RecordBatch], name: str) -> dict[str, Position]:
    """Behind the last row of each store.

    :param batches: with :data:`LAST_ROWS`

    Raises ``TableMismatch`` for a row that does not say how long its record is.
    """
    found: dict[str, _Last] = {}
    for batch in batches:
        for row in _last_of_queues(batch):
            found.setdefault(row["store"], _Last()).add(row)
    return {store: _behind(last, name) for store, last in found.items()}


def _last_of_queues(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """One row for each queue in ``batch``; its greatest offsets are those of one record."""
    import pyarrow as pa

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
            f"{name}: its last row, at physical offset {last.offset}, has no store_size, so that "
            "where to go on is not known: land in a new table"
        )
    end = last.offset + last.size
    mark = Fingerprint(last.offset, last.size, UNCHECKED)
    return Position(last.offset, end, mark, last.ends, commit=0)
