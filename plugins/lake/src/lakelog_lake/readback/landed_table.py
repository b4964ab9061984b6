"""What every kind of table gives to those who care for it: rows, files, and how far it has come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import attrs

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog_lake.readback.commits import TableCommit
    from lakelog_lake.tables.position import Position


KEY: Final = ("store", "topic", "queue_id", "queue_offset", "physical_offset")
"""Without these columns rows cannot be told apart."""
BATCH_ROWS: Final = 16_384

DataFile: TypeAlias = "tuple[str, Mapping[str, Any]]"
"""A path or URI, and columns that the file itself does not hold."""


@attrs.frozen
class TableSize:
    """What a table consists of.

    :ivar rows: of the newest version, deleted ones of Iceberg's delete files too
    :ivar files: data files of it; :ivar bytes: how long they are
    :ivar versions: that are kept: snapshots of Iceberg, versions of Delta, manifests of Parquet
    """

    rows: int
    files: int
    bytes: int
    versions: int


class LandedTable(Protocol):
    """One table, of any kind; each call sees its newest version."""

    @property
    def name(self) -> str:
        """What messages call it."""

    def columns(self) -> Mapping[str, str]:
        """Their names and types, as the kind of table writes those; raises :class:`NoTable`."""

    def position(self, store: str) -> Position | None:
        """How far ``store`` has landed."""

    def batches(self, store: str | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Rows of ``store``, or of all, in any order."""

    def data_files(self) -> list[DataFile]:
        """Those that the newest version consists of.

        Raises :class:`~lakelog_lake.errors.NeedsEngine` where they alone are not the rows.
        """

    def size(self) -> TableSize:
        """How large it is, by what it says of itself: no data file is read."""

    def commits(self) -> list[TableCommit]:
        """What the last commits added, the oldest first; nothing where that is not known."""


@attrs.frozen
class WithDeadLetters:
    """:ivar main: which says how far both have come; dead letters are committed before its rows."""

    main: LandedTable
    dead: LandedTable

    @property
    def name(self) -> str:
        """That of the table."""
        return self.main.name

    def columns(self) -> Mapping[str, str]:
        """Those of the table."""
        return self.main.columns()

    def position(self, store: str) -> Position | None:
        """That of the table."""
        return self.main.position(store)

    def batches(self, store: str | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Of both; without dead letters of what is to land next."""
        import pyarrow.compute as pc

        yield from self.main.batches(store, columns)
        position = None if store is None else self.main.position(store)
        for batch in self.dead.batches(store, columns):
            if position is None or "physical_offset" not in columns:
                yield batch
            else:
                yield batch.filter(pc.less(batch.column("physical_offset"), position.end))

    def data_files(self) -> list[DataFile]:
        """Of both."""
        return [*self.main.data_files(), *self.dead.data_files()]

    def size(self) -> TableSize:
        """Of the table."""
        return self.main.size()

    def commits(self) -> list[TableCommit]:
        """Of the table."""
        return self.main.commits()
