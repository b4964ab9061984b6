"""The commits that led to one version of an Iceberg table, read from its metadata.

A version of the metadata has the snapshots that have not expired. The older metadata files, as far
as they are kept, have those that expired since, and the parents that pyiceberg's expiry forgets.
They are read only if the newer ones do not show a position. Java's metadata are read by the same
code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import attrs
import pyarrow as pa

from lakelog_lake.tables import position as positions

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata


@attrs.frozen
class Snapshot:
    """One snapshot.

    :ivar number: its sequence number, from 1 on
    :ivar parent: the snapshot before it; ``None`` if it was the first, or if expiry removed that
    :ivar summary: the properties of its summary
    """

    number: int
    parent: int | None
    summary: Mapping[str, str]

    @property
    def is_first(self) -> bool:
        """Whether the table was empty before it."""
        return self.number == 1


SnapshotOf: TypeAlias = "Callable[[int], Snapshot | None]"
"""Returns the snapshot with this id, as one version of the metadata has it."""


class IcebergHistory:
    """The part of a :class:`~lakelog_lake.tables.position.TableHistory` without the rows.

    A base of classes that read metadata.
    """

    _is_cut: bool = False
    _behind: int | None = None

    def properties(self) -> Mapping[str, str]:
        """The properties of the table."""
        raise NotImplementedError

    def newest(self) -> int | None:
        """The id of the current snapshot."""
        raise NotImplementedError

    def versions(self) -> Iterator[SnapshotOf]:
        """The versions of the metadata that can still be read, newest first."""
        raise NotImplementedError

    def ancestors(self) -> Iterator[Snapshot]:
        """The snapshots that led to the current one, newest first, as far as they are known."""
        unread, read = self.versions(), list[SnapshotOf]()
        at = self.newest()
        while at is not None:
            found, self._behind = None, at
            for of_version in chain(tuple(read), _noted(unread, read)):
                found = of_version(at) or found
                if found is not None and (found.parent is not None or found.is_first):
                    break
            if found is None:
                return
            yield found
            at = self._behind = found.parent

    def commits(self) -> Iterator[positions.PositionedVersion]:
        """The commits of :meth:`ancestors`, newest first."""
        for each in self.ancestors():
            self._is_cut = not each.is_first
            yield positions.PositionedVersion.of(each.summary)

    def is_straight(self) -> bool:
        """Whether the table has no snapshot on another branch, and none that was rolled back."""
        of_version, found, at = next(self.versions()), 0, self.newest()
        while at is not None and (each := of_version(at)) is not None:
            found, at = found + 1, each.parent
        return found == self.count()

    def count(self) -> int:
        """The number of snapshots that have not expired."""
        raise NotImplementedError

    def begins(self) -> bool:
        """Whether the oldest known snapshot was the first of the table."""
        return not self._is_cut

    def mark(self, store: str) -> str | None:
        """The newest position of ``store``, from the table's properties."""
        return self.properties().get(positions.key(store))

    def is_of_parent(self, snapshot: int) -> bool:
        """Whether ``snapshot`` is the parent of the oldest known ancestor."""
        return snapshot == self._behind


def _noted(unread: Iterator[SnapshotOf], read: list[SnapshotOf]) -> Iterator[SnapshotOf]:
    """Read on, and keep what was read."""
    for each in unread:
        read.append(each)
        yield each


@attrs.define(slots=False)
class TableSnapshots(IcebergHistory):
    """A version's snapshots and rows, from pyiceberg."""

    table: Table

    def properties(self) -> Mapping[str, str]:
        """The properties of the table."""
        return self.table.properties

    def newest(self) -> int | None:
        """The id of the current snapshot."""
        return self.table.metadata.current_snapshot_id

    def count(self) -> int:
        """The number of snapshots that have not expired."""
        return len(self.table.metadata.snapshots)

    def versions(self) -> Iterator[SnapshotOf]:
        """The versions of the metadata whose files are still there, newest first."""
        from pyiceberg.serializers import FromInputFile

        yield _snapshots_of(self.table.metadata)
        for each in reversed(self.table.metadata.metadata_log):
            try:
                file = self.table.io.new_input(each.metadata_file)
                yield _snapshots_of(FromInputFile.table_metadata(file))
            except FileNotFoundError:
                return

    def last_rows(self) -> Iterator[pa.RecordBatch]:
        """The columns :data:`~lakelog_lake.tables.position.LAST_ROWS` of all rows."""
        yield from self.table.scan(selected_fields=positions.LAST_ROWS).to_arrow_batch_reader()

    def holds(self, store: str) -> bool:
        """Whether the table has a row of ``store``."""
        from pyiceberg.expressions import EqualTo

        scan = self.table.scan(EqualTo("store", store), selected_fields=("store",), limit=1)  # type: ignore[call-arg,arg-type]  # pyiceberg's __init__ takes them
        return bool(scan.to_arrow().num_rows)


def _snapshots_of(metadata: TableMetadata) -> SnapshotOf:
    """Those of one version of the metadata."""

    def snapshot_of(number: int) -> Snapshot | None:
        found = metadata.snapshot_by_id(number)
        if found is None:
            return None
        more = {} if found.summary is None else found.summary.additional_properties
        return Snapshot(found.sequence_number or 0, found.parent_snapshot_id, more)

    return snapshot_of
