"""Keeps the metadata of an Iceberg table small while messages land, as part of each commit.

A pyiceberg commit reads and writes all metadata of the table, including the list of all manifests.
So its cost would grow with the number of commits. Therefore the same commit expires the oldest
snapshots, according to the table's setting (:mod:`lakelog_lake.tables.settings`). It also
merges manifests of similar size: ten with up to nine files each become one, ten of these become one
again, and so on. Both are part of one atomic commit, so neither a kill nor another writer can leave
a partial state.

A stream that reads the table needs the snapshot at which it stopped. So snapshots are kept by age,
as Iceberg keeps them, up to a number that bounds the cost of a commit.

Metadata files of expired snapshots are removed an hour later, so that readers which loaded the
table before can continue. Files that an ended process left are removed a day after the snapshots
of their time. Data files are not touched.

The times of a table never fall, though a clock is set back: see :func:`steady`.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, Self, TypeVar

import attrs
from pydantic import BaseModel
from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import CommitTableResponse, StagedTable, Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from pyiceberg.table.update.snapshot import ExpireSnapshots, _FastAppendFiles, _ManifestMergeManager
from pyiceberg.typedef import Identifier
from pyiceberg.utils.properties import property_as_bool, property_as_int

from lakelog_lake.tables.data_files import FANOUT, Weight, mergeable
from lakelog_lake.tables.remote import FoundFile, IcebergFiles, is_local, local_folder, pairs
from lakelog_lake.tables.settings import HISTORY, MAX_AGE, MIN_KEPT, MOST_VERSIONS, kept

GRACE_SECONDS: Final = 3600.0
"""Seconds until the files of expired snapshots are removed."""
ABANDONED_SECONDS: Final = 86_400.0
"""Seconds until unreferenced files are removed; a writer may be about to reference newer ones."""
_SWEPT_EVERY: Final = 256
"""Commits between two searches for unreferenced files."""
_MOST_AT_ONCE: Final = 100
"""Most snapshots that one commit expires; each requires reading a file."""
_LARGEST_BYTES: Final = 2 << 20
"""Most files in a merged manifest; a merge of more would take seconds."""
_NEWEST_FORMAT: Final = 2
_MOST_KNOWN: Final = 256
"""Snapshots of which the names of the manifests are kept in memory."""
_MS: Final = 1000


def line_of(metadata: TableMetadata, at: int | None) -> list[Snapshot]:
    """The snapshot ``at`` and its ancestors that have not expired."""
    by_id = {each.snapshot_id: each for each in metadata.snapshots}
    found = []
    while at is not None and at in by_id:
        found.append(by_id[at])
        at = by_id[at].parent_snapshot_id
    return found


def expirable(
    metadata: TableMetadata, keep: int, cutoff: float, most: float = float("inf")
) -> list[Snapshot]:
    """The oldest snapshots of the current branch, up to the first that must stay.

    :param keep: number of newest snapshots that stay
    :param cutoff: seconds since 1970; snapshots replaced later stay
    :param most: largest number of snapshots that stay for the cutoff

    A snapshot with a tag or branch also keeps all later snapshots: a chain with a gap would look
    like a rolled-back table.
    """
    line = line_of(metadata, metadata.current_snapshot_id)
    while keep < min(len(line), most) and line[keep - 1].timestamp_ms / _MS >= cutoff:
        keep += 1  # the next snapshot replaced it at its own time
    places = {each.snapshot_id: at for at, each in enumerate(line)}
    for name, ref in metadata.refs.items():
        if name == "main" and not keep:
            continue  # the present commit moves this branch
        roots = (each.snapshot_id for each in line_of(metadata, ref.snapshot_id))
        keep = max(keep, next((places[each] + 1 for each in roots if each in places), len(line)))
    return line[keep:]


_Catalog = TypeVar("_Catalog", bound=Catalog)


def steady(catalog: _Catalog) -> _Catalog:
    """Let no commit of ``catalog`` set the times of a table back, though a clock was set back.

    Iceberg's Java library refuses metadata whose times fall, so that no engine on it could read the
    table. A snapshot gets at least the time of the last change plus 1 ms. Nor does a commit copy
    all metadata a dozen times, which would cost more with each snapshot that the table keeps.
    """
    kind = type(catalog)
    catalog.__class__ = type(kind.__name__, (_SteadyCatalog, kind), {})
    return catalog


class _SteadyCatalog(Catalog):
    """Comes before the class of a catalog, see :func:`steady`."""

    def load_table(self, identifier: str | Identifier) -> Table:
        table = super().load_table(identifier)  # type: ignore[safe-super]  # of the kind
        table.metadata = _uncopied(table.metadata)
        return table

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        after_ms = table.metadata.last_updated_ms
        later = tuple(_later(each, after_ms) for each in updates)
        return super().commit_table(table, requirements, later)  # type: ignore[safe-super]  # of the kind

    def _update_and_stage_table(self, current_table: Table | None, *others: Any) -> StagedTable:
        """A change without a snapshot has the time of the clock; catalogs of servers set it."""
        kind: Any = super()
        staged: StagedTable = kind._update_and_stage_table(current_table, *others)
        last_ms = 0 if current_table is None else current_table.metadata.last_updated_ms
        if staged.metadata.last_updated_ms < last_ms:
            time_ms = {"last_updated_ms": last_ms + 1}
            staged.metadata = staged.metadata.model_copy(update=time_ms)
        return staged


class _Uncopied(BaseModel):
    """Comes before the class of metadata, whose parts are frozen: versions may share them."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:  # noqa: ARG002  # never
        return super().model_copy(update=update)


@lru_cache
def _uncopied_kind(kind: type[BaseModel]) -> type[BaseModel]:
    return type(kind.__name__, (_Uncopied, kind), {"__module__": __name__})


def _uncopied(metadata: TableMetadata) -> TableMetadata:
    """The same metadata, whose versions with updates share what has not changed."""
    made = metadata.model_copy()
    object.__setattr__(made, "__class__", _uncopied_kind(type(metadata)))
    return made


def _later(update: TableUpdate, after_ms: int) -> TableUpdate:
    """The update; a snapshot that it adds is later than ``after_ms``."""
    if not isinstance(update, AddSnapshotUpdate) or update.snapshot.timestamp_ms > after_ms:
        return update
    snapshot = update.snapshot.model_copy(update={"timestamp_ms": after_ms + 1})
    return update.model_copy(update={"snapshot": snapshot})


class TieredAppend(_FastAppendFiles):
    """A fast append that merges older manifests.

    :ivar named: paths of the manifests of its snapshot
    """

    named: frozenset[str] = frozenset()

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
        merging = _ManifestMergeManager(most, FANOUT, True, self)
        found: dict[int, list[ManifestFile]] = defaultdict(list)
        stay: list[ManifestFile] = []
        for each in manifests:
            is_old = each.added_snapshot_id != self._snapshot_id
            is_ours = is_old and each.content == ManifestContent.DATA
            (found[each.partition_spec_id] if is_ours else stay).append(each)
        for spec, same in found.items():
            gone = set[int]()
            for places in mergeable([_weight(each) for each in same], most):
                group = [same[place] for place in places]
                stay.append(merging._create_manifest(spec, group))
                gone.update(places)
            stay += [each for place, each in enumerate(same) if place not in gone]
        return stay


def _weight(manifest: ManifestFile) -> Weight:
    files = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
    return Weight(files, manifest.manifest_length)


def _below(uri: str, io: FileIO) -> Iterable[FoundFile]:
    if not is_local(uri):
        return IcebergFiles(pairs(io.properties)).below(uri)
    return (FoundFile(str(e), e.stat().st_mtime) for e in local_folder(uri).iterdir())


@attrs.define
class SnapshotExpiry:
    """Expires snapshots and removes files of one table, from commit to commit.

    :ivar clock: returns seconds since 1970
    """

    clock: Callable[[], float] = time.time
    _named: dict[int, frozenset[str]] = attrs.Factory(dict)
    _retired: deque[tuple[float, str]] = attrs.Factory(deque)

    def append(
        self, transaction: Transaction, files: Iterable[Any], properties: dict[str, str]
    ) -> tuple[int, Callable[[], None]]:
        """Stage an append of data files and due expiry.

        Returns the id of the snapshot, and a function to call after the commit.

        :param properties: properties of the snapshot
        """
        table = transaction._table
        append = TieredAppend(
            Operation.APPEND, transaction, table.io, snapshot_properties=properties
        )
        for each in files:
            append.append_data_file(each)
        append.commit()
        gone = self._due(table.metadata)
        if gone:
            ids = [each.snapshot_id for each in gone]
            ExpireSnapshots(transaction=transaction).by_ids(ids).commit()
        unnamed = self._only_in(gone, table, append)

        def committed() -> None:
            self._named[append.snapshot_id] = append.named
            for each in gone:
                self._named.pop(each.snapshot_id, None)
            while len(self._named) > _MOST_KNOWN:
                del self._named[next(iter(self._named))]
            now = self.clock()
            self._retired.extend((now, each) for each in unnamed)
            self._remove(table.io, now - GRACE_SECONDS)
            newest = table.current_snapshot()
            number = 1 if newest is None else newest.sequence_number or 1
            if kept(table.properties.get(HISTORY)) is not None and not number % _SWEPT_EVERY:
                with suppress(Exception):  # only cleaning; a later commit tries again
                    self._sweep(table, now - ABANDONED_SECONDS)

        return append.snapshot_id, committed

    def _due(self, metadata: TableMetadata) -> list[Snapshot]:
        """The oldest snapshots, which expire with a commit on this version."""
        setting = kept(metadata.properties.get(HISTORY))
        if setting is None:
            return []
        if not setting.seconds:
            return expirable(metadata, setting.versions - 1, float("inf"))[-_MOST_AT_ONCE:]
        age_ms = property_as_int(metadata.properties, MAX_AGE, setting.seconds * _MS)
        keep = property_as_int(metadata.properties, MIN_KEPT, 1)
        # Without the snapshot of this commit; the newest one is replaced just now.
        keep, cutoff = max(1, (keep or 1) - 1), self.clock() - (age_ms or 0) / _MS
        return expirable(metadata, keep, cutoff, MOST_VERSIONS - 1)[-_MOST_AT_ONCE:]

    def _only_in(self, gone: list[Snapshot], table: Table, append: TieredAppend) -> set[str]:
        """The metadata files that only expired snapshots reference.

        A manifest missing from a snapshot is missing from all later ones as well. If there are
        snapshots outside of the branch, only manifest lists are returned.
        """
        lists = {each.manifest_list for each in gone}
        line = line_of(table.metadata, table.metadata.current_snapshot_id)
        if not gone or len(line) != len(table.metadata.snapshots):
            return lists
        at = len(line) - len(gone)
        stays = self._manifests(line[at - 1], table.io) if at else append.named
        return lists.union(*(self._manifests(each, table.io) for each in gone)) - stays

    def _manifests(self, snapshot: Snapshot, io: FileIO) -> frozenset[str]:
        if snapshot.snapshot_id not in self._named:
            found = frozenset(each.manifest_path for each in snapshot.manifests(io))
            self._named[snapshot.snapshot_id] = found
        return self._named[snapshot.snapshot_id]

    def _sweep(self, table: Table, before: float) -> None:
        """Remove old manifests and manifest lists that no snapshot references.

        A manifest that was there before the oldest snapshot, and is not in it, is in no later one.
        So of many snapshots only the oldest is read. If there are snapshots outside of the branch,
        all are read, or nothing is removed.
        """
        snapshots = table.metadata.snapshots
        line = line_of(table.metadata, table.metadata.current_snapshot_id)
        read = snapshots
        if len(snapshots) > _MOST_AT_ONCE:
            if len(line) != len(snapshots):
                return
            read = line[-1:]
            before = min(before, line[-1].timestamp_ms / _MS - ABANDONED_SECONDS)
        named = {each.manifest_list for each in snapshots}
        named = named.union(*(self._manifests(each, table.io) for each in read))
        names = {each.rpartition("/")[2] for each in named}
        for found in _below(f"{table.location().rstrip('/')}/metadata", table.io):
            name = found.uri.rpartition("/")[2]
            is_old = found.written is not None and found.written < before
            if is_old and name.endswith(".avro") and name not in names:
                table.io.delete(found.uri)

    def _remove(self, io: FileIO, before: float) -> None:
        while self._retired and self._retired[0][0] <= before:
            _, uri = self._retired.popleft()
            with suppress(Exception):  # already gone, or left to `lake expire`
                io.delete(uri)
