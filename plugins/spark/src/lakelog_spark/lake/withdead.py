"""A table and its dead letters as one: together they have a row for each message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from lakelog_spark.lake.anytable import DataFile, LandedTable

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog_spark.landing.position import Position


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
