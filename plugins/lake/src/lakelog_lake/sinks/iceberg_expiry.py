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
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

import attrs
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.utils.properties import property_as_int

from lakelog_lake.sinks.iceberg_internals import SteadyTransaction, TieredAppend
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
_PART_AT_ONCE: Final = 100
"""Of so many snapshots one is expired at once, if they are kept by age."""
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
        self, transaction: SteadyTransaction, files: Iterable[Any], properties: dict[str, str]
    ) -> tuple[int, Callable[[], None]]:
        """Stage an append of data files and due expiry.

        Returns the id of the snapshot, and a function to call after the commit.

        :param properties: properties of the snapshot
        """
        table = transaction.table
        append = TieredAppend(transaction, properties)
        for each in files:
            append.append_data_file(each)
        append.commit()
        gone = self._due(table.metadata)
        if gone:
            transaction.expire([each.snapshot_id for each in gone])
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
        # Looking through many snapshots costs more than the rest of a commit: some go at once.
        snapshots = metadata.snapshots
        group = min(len(snapshots) // _PART_AT_ONCE, _MOST_AT_ONCE)
        is_full = len(snapshots) >= MOST_VERSIONS
        if group and not is_full and snapshots[group].timestamp_ms / _MS >= cutoff:
            return []
        return expirable(metadata, keep, cutoff, MOST_VERSIONS - 1 - group)[-_MOST_AT_ONCE:]

    def _only_in(self, gone: list[Snapshot], table: Table, append: TieredAppend) -> set[str]:
        """The metadata files that only expired snapshots reference.

        A manifest missing from a snapshot is missing from all later ones as well. If there are
        snapshots outside of the branch, only manifest lists are returned.
        """
        if not gone:
            return set()
        lists = {each.manifest_list for each in gone}
        line = line_of(table.metadata, table.metadata.current_snapshot_id)
        if len(line) != len(table.metadata.snapshots):
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
