"""What a commit does beside adding its files, so that the next one costs no more than this one.

A commit of pyiceberg's reads and writes all of a table's metadata, and names each manifest. So in
the same commit the oldest snapshots expire, as the table's setting says
(:mod:`lakelog_lake.tables.kept`), and manifests of one size become one: ten with up to nine files,
ten of those, and so on. A snapshot that expires here is one that an atomic commit replaced, so no
kill and no other writer comes between.

Metadata files that only expired snapshots name are removed an hour later: who has loaded the table
meanwhile reads on. What a process that ended before has left goes when it is a day old. Data files
are not touched.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

import attrs
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import (
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
)
from pyiceberg.table.update.snapshot import (
    ExpireSnapshots,
    _FastAppendFiles,
    _ManifestMergeManager,
)
from pyiceberg.utils.properties import property_as_bool, property_as_int

from lakelog_lake.sinks.iceberg_state import is_local, local_folder
from lakelog_lake.tables.kept import HISTORY, kept
from lakelog_lake.tables.remote import FoundFile, IcebergFiles, pairs
from lakelog_lake.tables.tiers import FANOUT, Weight, mergeable

GRACE_SECONDS: Final = 3600.0
"""How long files stay that only expired snapshots name."""
ABANDONED_SECONDS: Final = 86_400.0
"""How long files stay that nobody names: who made them may be about to."""
_SWEPT_EVERY: Final = 256
"""After so many commits what was abandoned is looked for, by whoever makes that commit."""
_MOST_AT_ONCE: Final = 100
"""Snapshots that expire in one commit: each takes the reading of a file."""
_LARGEST_BYTES: Final = 2 << 20
"""A merge that makes more takes seconds."""
_NEWEST_FORMAT: Final = 2


def line_of(metadata: TableMetadata, at: int | None) -> list[Snapshot]:
    """A snapshot and those before it, as far as they have not expired."""
    by_id = {each.snapshot_id: each for each in metadata.snapshots}
    found = []
    while at is not None and at in by_id:
        found.append(by_id[at])
        at = by_id[at].parent_snapshot_id
    return found


def expirable(metadata: TableMetadata, keep: int, cutoff: float) -> list[Snapshot]:
    """The oldest of the current snapshot's line, up to the first one that must stay.

    :param keep: so many of the newest stay
    :param cutoff: in seconds since 1970; what was replaced later stays

    What a tag or branch holds keeps all that came after it: a line that is cut anywhere but at its
    end would look like a table that was rolled back.
    """
    line = line_of(metadata, metadata.current_snapshot_id)
    while keep < len(line) and line[keep - 1].timestamp_ms / 1000 >= cutoff:
        keep += 1  # what took its place did so only then
    places = {each.snapshot_id: at for at, each in enumerate(line)}
    for name, ref in metadata.refs.items():
        if name == "main" and not keep:
            continue  # it moves on with the commit that is being made
        roots = (each.snapshot_id for each in line_of(metadata, ref.snapshot_id))
        keep = max(keep, next((places[each] + 1 for each in roots if each in places), len(line)))
    return line[keep:]


class SteadyTransaction(Transaction):
    """Pyiceberg's own copies all metadata, deeply, whenever it looks: a dozen times a commit."""

    _known: tuple[tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """With what was staged; nobody changes it in place."""
        if not self._updates:
            return self._table.metadata
        if self._known is None or self._known[0] is not self._updates:
            made, context = self._table.metadata, _TableMetadataUpdateContext()
            for each in self._updates:
                made = _apply_table_update(each, made, context)
            self._known = self._updates, made
        return self._known[1]


class TieredAppend(_FastAppendFiles):
    """A fast append that merges older manifests; :ivar named: the manifests of its snapshot."""

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
class Upkeep:
    """Of one table, from commit to commit.

    :ivar clock: seconds since 1970
    """

    clock: Callable[[], float] = time.time
    _named: dict[int, frozenset[str]] = attrs.Factory(dict)
    _retired: deque[tuple[float, str]] = attrs.Factory(deque)

    def append(
        self, transaction: Transaction, files: Iterable[Any], said: dict[str, str]
    ) -> Callable[[], None]:
        """Stage an append of data files, and what is due; what to call once it is committed.

        :param said: properties of the snapshot
        """
        table = transaction._table
        append = TieredAppend(Operation.APPEND, transaction, table.io, snapshot_properties=said)
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
            now = self.clock()
            self._retired.extend((now, each) for each in unnamed)
            self._remove(table.io, now - GRACE_SECONDS)
            newest = table.current_snapshot()
            number = 1 if newest is None else newest.sequence_number or 1
            if kept(table.properties.get(HISTORY)) is not None and not number % _SWEPT_EVERY:
                with suppress(Exception):  # it is about tidiness, and is tried again
                    self._sweep(table, now - ABANDONED_SECONDS)

        return committed

    def _due(self, metadata: TableMetadata) -> list[Snapshot]:
        """Those that expire with a commit on this version, the oldest ones."""
        setting = kept(metadata.properties.get(HISTORY))
        if setting is None:
            return []
        if setting.seconds:  # the newest one is only just being replaced
            return expirable(metadata, 1, self.clock() - setting.seconds)[-_MOST_AT_ONCE:]
        return expirable(metadata, setting.versions - 1, float("inf"))[-_MOST_AT_ONCE:]

    def _only_in(self, gone: list[Snapshot], table: Table, append: TieredAppend) -> set[str]:
        """What no snapshot names that stays.

        A manifest that a snapshot does not have, none of those after it has. With others beside
        the line nothing is known of the manifests.
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
        """Remove manifests, and lists of them, that no snapshot names and that are old."""
        named = {each.manifest_list for each in table.metadata.snapshots}
        for each in table.metadata.snapshots:
            named |= self._manifests(each, table.io)
        names = {each.rpartition("/")[2] for each in named}
        for found in _below(f"{table.location().rstrip('/')}/metadata", table.io):
            name = found.uri.rpartition("/")[2]
            is_old = found.written is not None and found.written < before
            if is_old and name.endswith(".avro") and name not in names:
                table.io.delete(found.uri)

    def _remove(self, io: FileIO, before: float) -> None:
        while self._retired and self._retired[0][0] <= before:
            _, uri = self._retired.popleft()
            with suppress(Exception):  # it may be gone; what stays, `lake expire` removes
                io.delete(uri)
