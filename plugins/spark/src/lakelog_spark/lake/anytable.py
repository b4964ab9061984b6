"""What every kind of table gives to those who care for it: rows, files, and how far it has come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog_spark.landing.position import Position

KEY: Final = ("store", "topic", "queue_id", "queue_offset", "physical_offset")
"""Without these columns rows cannot be told apart."""
BATCH_ROWS: Final = 16_384

DataFile: TypeAlias = "tuple[str, Mapping[str, Any]]"
"""A path or URI, and columns that the file itself does not hold."""


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

        Raises :class:`~lakelog_spark.lake.errors.NeedsEngine` where they alone are not the rows.
        """
