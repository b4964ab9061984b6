"""The commits that led to a version of a Delta table, and its rows, read with deltalake."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from lakelog_lake.sinks.history import LAST_ROWS, Left, PositionedVersion
from lakelog_lake.tables.position import PREFIX, texts_in

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

_STEPS: Final = (1, 16, 256, None)
"""Commits to read at once; usually the newest one has all positions."""
_OLDER: Final = ("RESTORE", "CLONE")
_REPLACING: Final = ("REPLACE", "CREATE OR REPLACE", "CONVERT")


def app_of(store: str) -> str:
    """The transaction identifier that marks a store."""
    return f"lakelog/{store}"


@attrs.define
class DeltaHistory:
    """See :class:`~lakelog_lake.sinks.history.TableHistory`."""

    _table: DeltaTable
    _oldest: int = -1

    def commits(self) -> Iterator[PositionedVersion]:
        """The commits back to the oldest version that log clean-up has left."""
        read_count = 0
        for count in _STEPS:
            found = self._table.history(count)
            for each in found[read_count:]:
                self._oldest = each["version"]
                yield PositionedVersion(texts_of(each.get("userMetadata")), _left(each))
            read_count = len(found)
            if count is None or read_count < count:
                return

    def begins(self) -> bool:
        """Whether the log still has version 0."""
        return self._oldest == 0

    def marks(self) -> Collection[str] | None:
        """``None``: deltalake cannot list transaction identifiers."""
        return None

    def mark(self, store: str) -> str | None:
        """An empty text if the store has a transaction identifier, also in a restored table."""
        return None if self._table.transaction_version(app_of(store)) is None else ""

    def last_rows(self) -> Iterator[pa.RecordBatch]:
        """The columns :data:`LAST_ROWS` of all rows."""
        rows = self._table.to_pyarrow_dataset()
        yield from rows.to_batches(columns=list(LAST_ROWS), fragment_readahead=1)

    def holds(self, store: str) -> bool:
        """Filter by the column; deltalake's own filters treat one without statistics as empty."""
        import pyarrow.compute as pc

        rows = self._table.to_pyarrow_dataset()
        batches = rows.to_batches(columns=["store"], fragment_readahead=1)
        return any(pc.any(pc.equal(each.column(0), store)).as_py() for each in batches)


def texts_of(metadata: Any) -> dict[str, str]:
    """The positions in a commit; older commits have a single one, as ``NAME=TEXT``."""
    text = str(metadata or "")
    if text.startswith(PREFIX):
        name, _, rest = text.partition("={")
        return texts_in({name: "{" + rest})
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return texts_in(found) if isinstance(found, dict) else {}


def _left(commit: Mapping[str, Any]) -> Left:
    """How a commit changed earlier rows, by its operation."""
    operation = str(commit.get("operation", ""))
    given = commit.get("operationParameters") or {}
    if operation.startswith(_OLDER):
        return Left.THOSE_OF_AN_OLDER_VERSION
    is_whole = given.get("mode") == "Overwrite" and not given.get("predicate")
    return Left.NONE if is_whole or operation.startswith(_REPLACING) else Left.ALL
