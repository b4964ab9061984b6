"""What pyiceberg has only under private names: a commit without retries, merged manifests, times.

Also a commit whose cost hardly depends on the number of snapshots: pyiceberg reads all metadata
twice for a commit, and makes JSON of all snapshots, each of which is Python code.

No other module uses such names; ``PRIVATE`` of ``test_iceberg_internals.py`` lists them, and
they are tried with the oldest and the newest version that ``pyproject.toml`` allows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Self, TypeVar

from pydantic import PrivateAttr
from pyiceberg.catalog import METADATA_LOCATION, Catalog
from pyiceberg.io import load_file_io
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import CommitTableResponse, StagedTable, Table, TableProperties, Transaction
from pyiceberg.table.metadata import (
    TableMetadata,
    TableMetadataCommonFields,
    TableMetadataV1,
)
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertTableUUID,
    RemoveSnapshotsUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Identifier
from pyiceberg.utils.properties import property_as_bool, property_as_int

from lakelog_lake.tables.data_files import Weight, mergeable

_LARGEST_BYTES: Final = 2 << 20
"""Most bytes in a merged manifest; a merge of more would take seconds."""
_NEWEST_FORMAT: Final = 2


_Catalog = TypeVar("_Catalog", bound=Catalog)


def steady(catalog: _Catalog) -> _Catalog:
    """Let no commit of ``catalog`` set the times of a table back, though a clock was set back.

    Iceberg's Java library refuses metadata whose times fall, so that no engine on it could read the
    table. A snapshot gets at least the time of the last change plus 1 ms. Nor does a commit copy
    all metadata a dozen times, or read what this catalog has read or written last.
    """
    kind = type(catalog)
    catalog.__class__ = type(kind.__name__, (_SteadyCatalog, kind), {"_newest": {}})
    return catalog


class _SteadyCatalog(Catalog):
    """Comes before the class of a catalog, see :func:`steady`.

    :ivar _newest: the last metadata of each table, by the table's name, with their file's location
    """

    _newest: dict[Identifier, tuple[str, TableMetadata]]

    def load_table(self, identifier: str | Identifier) -> Table:
        table = super().load_table(identifier)  # type: ignore[safe-super]  # steady() puts a real catalog behind this class
        table.metadata = _uncopied(table.metadata)
        self._newest[table.name()] = (table.metadata_location, table.metadata)
        return table

    def _convert_orm_to_iceberg(self, orm_table: Any) -> Table:
        name = (*self.identifier_to_tuple(orm_table.table_namespace), orm_table.table_name)
        kind: Any = super()
        found = self._known(name, orm_table.metadata_location)
        return found or kind._convert_orm_to_iceberg(orm_table)

    def _convert_glue_to_iceberg(self, glue_table: Any) -> Table:
        name = (glue_table.get("DatabaseName"), glue_table.get("Name"))
        kind: Any = super()
        found = self._known(name, (glue_table.get("Parameters") or {}).get(METADATA_LOCATION))
        return found or kind._convert_glue_to_iceberg(glue_table)

    def _known(self, name: Identifier, location: str | None) -> Table | None:
        """The table, if ``location`` is that of the known metadata, and is still there.

        No file of metadata is ever changed.
        """
        known, metadata = self._newest.get(name, (None, None))
        if metadata is None or known is None or known != location:
            return None
        io = load_file_io({**self.properties, **metadata.properties}, location)
        return Table(name, metadata, known, io, self) if io.new_input(known).exists() else None

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        after_ms = table.metadata.last_updated_ms
        later = tuple(_later(each, after_ms) for each in updates)
        done = super().commit_table(table, requirements, later)  # type: ignore[safe-super]  # the real catalog of steady() has it
        self._newest[table.name()] = (done.metadata_location, done.metadata)
        return done

    def _update_and_stage_table(self, current_table: Table | None, *others: Any) -> StagedTable:
        """A change without a snapshot has the time of the clock; catalogs of servers set it."""
        kind: Any = super()
        staged: StagedTable = kind._update_and_stage_table(current_table, *others)
        last_ms = 0 if current_table is None else current_table.metadata.last_updated_ms
        if staged.metadata.last_updated_ms < last_ms:
            time_ms = {"last_updated_ms": last_ms + 1}
            staged.metadata = staged.metadata.model_copy(update=time_ms)
        return staged


class _Uncopied(TableMetadataCommonFields):
    """Comes before the class of metadata, whose parts are frozen: versions may share them.

    So may they share what was computed from lists of parts, which mostly grow at their ends. To
    look at each snapshot would cost more than the rest of a commit, if there are thousands.

    :ivar _texts: lists of parts by field, and the JSON of each part
    :ivar _places: a list of snapshots, and the place of each by its id; also of other versions
    """

    _texts: dict[str, tuple[list[Any], list[str]]] = PrivateAttr(default_factory=dict)
    _places: tuple[list[Snapshot], dict[int, int]] = PrivateAttr(default=([], {}))

    def snapshot_by_id(self, snapshot_id: int) -> Snapshot | None:
        """As pyiceberg's, which looks at each."""
        (known, places), found = self._places, self.snapshots
        if known is not found:
            begun = len(known)
            if found[:begun] != known:
                begun, places = 0, {}
            places.update((each.snapshot_id, at) for at, each in enumerate(found[begun:], begun))
            self._places = (found, places)
        place = places.get(snapshot_id, len(found))
        of_place = found[place] if place < len(found) else None
        return of_place if of_place and of_place.snapshot_id == snapshot_id else None

    def model_dump_json(self, *given: Any, **named: Any) -> str:
        """As pyiceberg's; JSON of a snapshot is made once, and comes last."""
        if given or named not in ({}, {"exclude_none": True}):
            return super().model_dump_json(*given, **named)
        texts = [super().model_dump_json(exclude={"snapshots", "snapshot_log"})[:-1]]
        known, self._texts = self._texts, {}
        for name, found in (("snapshots", self.snapshots), ("snapshot-log", self.snapshot_log)):
            made = _texts_of(found, *known.get(name, ([], [])))
            self._texts[name] = (found, made)
            texts += [f',"{name}":[', ",".join(made), "]"]
        return "".join([*texts, "}"])

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:  # noqa: ARG002  # pyiceberg asks for deep copies, which frozen parts need not
        return super().model_copy(update=update)


def _texts_of(parts: list[Any], known: list[Any], texts: list[str]) -> list[str]:
    """The JSON of each part; that of ``known`` is in ``texts``."""
    if parts[: len(known)] != known:
        by_part = dict(zip(map(id, known), texts, strict=True))
        return [by_part.get(id(each)) or each.model_dump_json() for each in parts]
    return [*texts, *(each.model_dump_json() for each in parts[len(known) :])]


@lru_cache
def _uncopied_kind(kind: type[TableMetadata]) -> type[TableMetadata]:
    return type(kind.__name__, (_Uncopied, kind), {"__module__": __name__})


def _uncopied(metadata: TableMetadata) -> TableMetadata:
    """The same metadata, whose versions with updates share what has not changed."""
    if isinstance(metadata, (_Uncopied, TableMetadataV1)):  # version 1 has other JSON
        return metadata
    return _uncopied_kind(type(metadata)).model_construct(**dict(metadata))


def _later(update: TableUpdate, after_ms: int) -> TableUpdate:
    """The update; a snapshot that it adds is later than ``after_ms``."""
    if not isinstance(update, AddSnapshotUpdate) or update.snapshot.timestamp_ms > after_ms:
        return update
    snapshot = update.snapshot.model_copy(update={"timestamp_ms": after_ms + 1})
    return update.model_copy(update={"snapshot": snapshot})


class SteadyTransaction(Transaction):
    """A transaction that is tried once."""

    @property
    def table(self) -> Table:
        """The version of the table on which it is built."""
        return self._table

    def expire(self, snapshot_ids: Sequence[int]) -> None:
        """Stage the removal of snapshots, none of which a branch or tag names.

        ``ExpireSnapshots`` of pyiceberg 0.10 removes those of earlier transactions once more.
        """
        ids = list(snapshot_ids)
        self._apply((RemoveSnapshotsUpdate.model_validate({"snapshot-ids": ids}),))

    def commit_once(self, *requirements: TableRequirement) -> None:
        """Commit, if ``requirements`` hold as well, without retries.

        pyiceberg 0.12 would otherwise rebase an append after a conflict, and land a range twice.
        Raises pyiceberg's ``CommitFailedException``.
        """
        same = AssertTableUUID(uuid=self._table.metadata.table_uuid)
        required = (*self._requirements, *requirements, same)
        self._table._do_commit(updates=self._updates, requirements=required)


class TieredAppend(_FastAppendFiles):
    """A fast append that merges older manifests.

    :ivar named: paths of the manifests of its snapshot
    """

    named: frozenset[str] = frozenset()

    def __init__(self, transaction: SteadyTransaction, properties: dict[str, str]) -> None:
        io = transaction.table.io
        super().__init__(Operation.APPEND, transaction, io, snapshot_properties=properties)

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        made = self._merged(manifests) if self._may_merge() else manifests
        self.named = frozenset(each.manifest_path for each in made)
        return made

    def _may_merge(self) -> bool:
        metadata = self._transaction.table_metadata
        enabled = property_as_bool(
            metadata.properties, TableProperties.MANIFEST_MERGE_ENABLED, True
        )
        return enabled and metadata.format_version <= _NEWEST_FORMAT

    def _merged(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        properties = self._transaction.table_metadata.properties
        size = TableProperties.MANIFEST_TARGET_SIZE_BYTES
        most = min(property_as_int(properties, size, _LARGEST_BYTES) or 0, _LARGEST_BYTES)
        found: dict[int, list[ManifestFile]] = defaultdict(list)
        stay: list[ManifestFile] = []
        for each in manifests:
            is_old = each.added_snapshot_id != self.snapshot_id
            is_ours = is_old and each.content == ManifestContent.DATA
            (found[each.partition_spec_id] if is_ours else stay).append(each)
        for spec_id, same in found.items():
            gone = set[int]()
            for places in mergeable([_weight(each) for each in same], most):
                stay.append(self._one(spec_id, [same[place] for place in places]))
                gone.update(places)
            stay += [each for place, each in enumerate(same) if place not in gone]
        return stay

    def _one(self, spec_id: int, manifests: Sequence[ManifestFile]) -> ManifestFile:
        """One manifest with the files of older ones, except those that were removed."""
        with self.new_manifest_writer(self.spec(spec_id)) as writer:
            for manifest in manifests:
                for entry in self.fetch_manifest_entry(manifest):
                    writer.existing(entry)
        return writer.to_manifest_file()


def _weight(manifest: ManifestFile) -> Weight:
    files = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
    return Weight(files, manifest.manifest_length)
