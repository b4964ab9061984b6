"""The interface of all kinds of tables for maintenance: rows, files, size and position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import attrs

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog_lake.readback.commits import TableCommit
    from lakelog_lake.tables.position import Position


KEY: Final = ("store", "topic", "queue_id", "queue_offset", "physical_offset")
"""The columns that identify a row."""
BATCH_ROWS: Final = 16_384

DataFile: TypeAlias = "tuple[str, Mapping[str, Any]]"
"""A path or URI, and the columns that the file itself does not hold."""


@attrs.frozen
class TableSize:
    """The size of a table.

    :ivar rows: number of rows of the newest version, including rows removed by Iceberg delete files
    :ivar files: number of its data files
    :ivar bytes: total size of these files
    :ivar versions: number of kept Iceberg snapshots, Delta versions, or Parquet manifests
    """

    rows: int
    files: int
    bytes: int
    versions: int


class LandedTable(Protocol):
    """One table of any kind; each call reads its newest version."""

    @property
    def name(self) -> str:
        """The table's name in messages."""

    def columns(self) -> Mapping[str, str]:
        """Types by column name, as the kind of table writes them; raises ``NoTable``."""

    def position(self, store: str) -> Position | None:
        """The position of ``store``; ``None`` if it never landed here."""

    def batches(self, store: str | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Rows of ``store``, or of all stores, in any order."""

    def data_files(self) -> list[DataFile]:
        """The data files of the newest version.

        Raises :class:`~lakelog_lake.errors.NeedsEngine` if delete files change their rows.
        """

    def size(self) -> TableSize:
        """The size from the table's metadata; no data file is read."""

    def commits(self) -> list[TableCommit]:
        """The last commits, oldest first; empty if not known."""


@attrs.frozen
class WithDeadLetters:
    """A table with its dead letters, which are committed before the rows of the main table.

    :ivar main: the main table; its position is used for both
    """

    main: LandedTable
    dead: LandedTable

    @property
    def name(self) -> str:
        """The name of the main table."""
        return self.main.name

    def columns(self) -> Mapping[str, str]:
        """The columns of the main table."""
        return self.main.columns()

    def position(self, store: str) -> Position | None:
        """The position in the main table."""
        return self.main.position(store)

    def batches(self, store: str | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Rows of both; dead letters behind the position of the main table are left out."""
        import pyarrow.compute as pc

        yield from self.main.batches(store, columns)
        position = None if store is None else self.main.position(store)
        for batch in self.dead.batches(store, columns):
            if position is None or "physical_offset" not in columns:
                yield batch
            else:
                yield batch.filter(pc.less(batch.column("physical_offset"), position.end))

    def data_files(self) -> list[DataFile]:
        """The data files of both."""
        return [*self.main.data_files(), *self.dead.data_files()]

    def size(self) -> TableSize:
        """The size of the main table."""
        return self.main.size()

    def commits(self) -> list[TableCommit]:
        """The commits of the main table."""
        return self.main.commits()
