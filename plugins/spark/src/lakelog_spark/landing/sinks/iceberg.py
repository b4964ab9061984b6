"""An Iceberg table, by pyiceberg: no JVM.

The position is a property of the snapshot that its commit makes (``lakelog.position.STORE``, see
:mod:`lakelog_spark.landing.position`), and in the same commit a property of the table. What the
snapshots say counts: they know of a table that was rolled back. Where they have expired, the
table's property counts.

A commit requires that the branch still is at the snapshot that the position was read from. After a
refusal pyiceberg would rebase the append and try again by itself, which lands a range twice; it is
kept from that by taking its list of producers away (checked with the one version asked for).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import attrs

from lakelog_spark.landing.errors import Conflict, TableMismatch
from lakelog_spark.landing.facts import FileFacts
from lakelog_spark.landing.icebergfields import data_file, field_ids, is_ours, make
from lakelog_spark.landing.position import Position, from_text, key, to_text
from lakelog_spark.landing.sinks.base import Head
from lakelog_spark.landing.tablefields import Layout

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

CATALOG: Final = "lake"
"""Spark's catalog must have the same name to see the tables."""
CATALOG_FILE: Final = "catalog.db"


def sqlite_catalog(warehouse: Path) -> Catalog:
    """A catalog in a file of the warehouse, which Spark's JDBC catalog opens too."""
    from pyiceberg.catalog.sql import SqlCatalog

    warehouse.mkdir(parents=True, exist_ok=True)
    place = warehouse.absolute()
    return SqlCatalog(CATALOG, uri=f"sqlite:///{place / CATALOG_FILE}", warehouse=f"file://{place}")


@attrs.define
class IcebergSink:
    """:ivar catalog: any of pyiceberg's; :ivar table: ``NAMESPACE.TABLE``."""

    catalog: Catalog
    table: str
    _location: str = ""
    _layout: Layout = attrs.field(factory=Layout)

    @property
    def name(self) -> str:
        """The table."""
        return f"the Iceberg table {self.catalog.name}.{self.table}"

    @property
    def folder(self) -> Path:
        """Of the data files."""
        return _local(self._location) / "data"

    @property
    def layout(self) -> Layout:
        """With the ids that the table gives to its fields."""
        return self._layout

    def prepare(self) -> None:
        """Make the table, partitioned by topic and day of store time."""
        table = make(self.catalog, self.table)
        if not is_ours(table):
            raise TableMismatch(
                f"{self.name} has other columns or partitions than lakelog's: land in a new table"
            )
        self._location = table.location()
        self._layout = Layout(field_ids=field_ids(table))
        self.folder.mkdir(parents=True, exist_ok=True)

    def head(self, store: str) -> Head:
        """Load the table from the catalog."""
        table = self.catalog.load_table(self.table)
        return Head(_position(table, store, self.name), table)

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
        within = Path(path).relative_to(_local(self._location))
        return f"{self._location.rstrip('/')}/{within}"


def _local(location: str) -> Path:
    parts = urlsplit(location)
    if parts.scheme not in ("", "file"):
        raise TableMismatch(
            f"{location} is no folder of this machine: tasks write data files to folders that are "
            "mounted; give the catalog a warehouse of file://"
        )
    return Path(unquote(parts.path))


def _position(table: Table, store: str, name: str) -> Position | None:
    """What the table says of ``store``."""
    kept = table.properties.get(key(store))
    snapshots = list(_ancestors(table))
    summaries = (each.summary.additional_properties for each in snapshots if each.summary)
    found = next((each[key(store)] for each in summaries if key(store) in each), None)
    if found is not None:
        return _parsed(found, name)
    if kept is not None and _was_undone(table, snapshots, store):
        raise TableMismatch(
            f"{name} says that the store {store} has landed in it, and none of its snapshots has "
            "done so: it was rolled back or replaced. Look whether its rows are there; if they "
            f"are not, remove the table's property {key(store)!r} to land from the beginning"
        )
    return None if kept is None else _parsed(kept, name)


def _was_undone(table: Table, ancestors: Sequence[Any], store: str) -> bool:
    """Whether what ``store`` landed is not in the table, rather than in snapshots that expired.

    Expiry takes the parents away from what it leaves; the first of all commits has number 1.
    """
    if not ancestors or ancestors[-1].sequence_number == 1:
        return True
    summaries = (each.summary for each in table.metadata.snapshots if each.summary)
    return any(key(store) in each.additional_properties for each in summaries)


def _parsed(text: str, name: str) -> Position:
    try:
        return from_text(text)
    except ValueError as error:
        raise TableMismatch(f"{name}: {error}") from None


def _ancestors(table: Table) -> Iterator[Any]:
    """The snapshots from the newest back, as far as they have not expired."""
    by_id = {each.snapshot_id: each for each in table.metadata.snapshots}
    at = table.metadata.current_snapshot_id
    while at is not None and at in by_id:
        yield by_id[at]
        at = by_id[at].parent_snapshot_id
