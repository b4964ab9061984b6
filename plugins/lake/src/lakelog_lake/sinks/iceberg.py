"""An Iceberg table, by pyiceberg: no JVM.

The position is a property of the snapshot that its commit makes (``lakelog.position.STORE``, see
:mod:`lakelog_lake.tables.position`), and in the same commit a property of the table.

A commit requires that the branch still is at the snapshot that the position was read from. After a
refusal pyiceberg would rebase the append and try again by itself, which lands a range twice; it is
kept from that by taking its list of producers away (checked with the one version asked for).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from lakelog_lake.errors import Conflict
from lakelog_lake.sinks.base import Head
from lakelog_lake.sinks.iceberg_fields import TOPIC, data_file, fitted, make
from lakelog_lake.sinks.iceberg_state import Snapshot, local_folder, position_of
from lakelog_lake.sinks.iceberg_types import ids
from lakelog_lake.tables.fields import Layout, Shape
from lakelog_lake.tables.file_facts import FileFacts
from lakelog_lake.tables.position import Position, key, to_text
from lakelog_lake.tables.sync import sync

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

CATALOG: Final = "lake"
"""Spark's catalog must have the same name to see the tables."""
CATALOG_FILE: Final = "catalog.db"


def sqlite_catalog(warehouse: Path) -> Catalog:
    """A catalog in a file of the warehouse, which Spark's JDBC catalog opens too.

    What it points to is durable before it does: SQLite sees to itself, ``syncedio`` to the rest.
    """
    from pyiceberg.catalog.sql import SqlCatalog

    warehouse.mkdir(parents=True, exist_ok=True)
    place = warehouse.absolute()
    return SqlCatalog(
        CATALOG,
        uri=f"sqlite:///{place / CATALOG_FILE}",
        warehouse=f"file://{place}",
        **{"py-io-impl": "lakelog_lake.sinks.synced_io.SyncedFileIO"},
    )


@attrs.define
class IcebergSink:
    """:ivar catalog: any of pyiceberg's; :ivar table: ``NAMESPACE.TABLE``."""

    catalog: Catalog
    table: str
    shape: Shape = attrs.field(factory=Shape)
    _location: str = ""
    _layout: Layout = attrs.field(factory=Layout)

    @property
    def name(self) -> str:
        """The table."""
        return f"the Iceberg table {self.catalog.name}.{self.table}"

    @property
    def folder(self) -> Path:
        """Of the data files."""
        return local_folder(self._location) / "data"

    @property
    def layout(self) -> Layout:
        """With the ids that the table gives to its fields."""
        return self._layout

    def prepare(self) -> None:
        """Make the table, or add to it the columns that it lacks."""
        table = fitted(make(self.catalog, self.table, self.shape), self.name, self.shape)
        self._location = table.location()
        self._layout = Layout(self.shape.columns, self.shape.partition, ids(table.schema()))
        self.folder.mkdir(parents=True, exist_ok=True)
        for folder in (self.folder.parent, *list(self.folder.parents)[1:3]):
            sync(folder)

    def marked(self) -> str | None:
        """The topic that the table says it is for; ``None`` also where there is no table."""
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self.catalog.load_table(self.table).properties.get(TOPIC)
        except NoSuchTableError:
            return None

    def head(self, store: str) -> Head:
        """Load the table from the catalog."""
        table = self.catalog.load_table(self.table)
        return Head(position_of(_History(table), store, self.name), table)

    def commit(
        self, head: Head, store: str, files: Sequence[FileFacts], position: Position
    ) -> None:
        """One transaction, tried once."""
        from pyiceberg.exceptions import CommitFailedException

        table: Table = head.version
        entry = {key(store): to_text(position)}
        transaction = table.transaction()
        transaction.set_properties(entry)
        with transaction.update_snapshot(snapshot_properties=entry).fast_append() as append:
            for each in files:
                append.append_data_file(data_file(table, each, self._uri(each.path)))
        transaction._snapshot_producers = []  # or it would rebase, and land the range twice
        try:
            transaction.commit_transaction()
        except CommitFailedException as error:
            raise Conflict(f"{self.name} was changed by somebody else: {error}") from error

    def _uri(self, path: str) -> str:
        """A data file as the table names it: below its location."""
        within = Path(path).relative_to(local_folder(self._location))
        return f"{self._location.rstrip('/')}/{within}"


@attrs.frozen
class _History:
    """What pyiceberg knows of a version."""

    table: Table

    def property(self, name: str) -> str | None:
        return self.table.properties.get(name)

    def ancestors(self) -> Iterator[Snapshot]:
        by_id = {each.snapshot_id: each for each in self.table.metadata.snapshots}
        at = self.table.metadata.current_snapshot_id
        while at is not None and at in by_id:
            yield _snapshot(by_id[at])
            at = by_id[at].parent_snapshot_id

    def snapshots(self) -> Iterator[Snapshot]:
        return map(_snapshot, self.table.metadata.snapshots)


def _snapshot(found: Any) -> Snapshot:
    summary = {} if found.summary is None else found.summary.additional_properties
    return Snapshot(found.sequence_number or 0, summary)
