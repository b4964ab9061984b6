"""Snapshots of an Iceberg table, expired by pyiceberg: no JVM.

The position outlives the snapshots as a property of the table, and a chain of
snapshots that is cut anywhere but at its end would look like a table that was rolled back: what a
tag or branch holds keeps all that came after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from lakelog_lake.care.terms import Expired, Retention, remove, remove_orphans
from lakelog_lake.errors import NotLakelogs, TooBusy

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakelog_lake.sinks.iceberg import IcebergSink

_TRIES: Final = 20


def expire(sink: IcebergSink, retention: Retention) -> Expired:
    """Remove snapshots that were replaced long enough ago, and the files that only they have."""
    from pyiceberg.exceptions import CommitFailedException

    for _ in range(_TRIES):
        table = sink.catalog.load_table(sink.table)
        gone = _expirable(table, retention)
        before = _files_of(table, gone)
        if gone:
            try:
                table.maintenance.expire_snapshots().by_ids(gone).commit()
            except CommitFailedException:
                continue
            table = sink.catalog.load_table(sink.table)
        return Expired(len(gone), _clean(table, before, retention))
    raise TooBusy(f"{sink.name} took no expiry in {_TRIES} tries: others were faster")


def _expirable(table: Table, retention: Retention) -> list[int]:
    """The oldest of the current snapshot's line, up to the first one that must stay."""
    line = _line(table, table.metadata.current_snapshot_id)
    kept = max(1, retention.keep)
    while kept < len(line) and line[kept - 1].timestamp_ms / 1000 >= retention.cutoff:
        kept += 1  # what took its place did so only then
    places = {each.snapshot_id: at for at, each in enumerate(line)}
    for ref in table.metadata.refs.values():
        roots = (each.snapshot_id for each in _line(table, ref.snapshot_id))
        kept = max(kept, next((places[each] + 1 for each in roots if each in places), len(line)))
    return [each.snapshot_id for each in line[kept:]]


def _line(table: Table, at: int | None) -> list[Any]:
    """A snapshot and those before it, as far as they have not expired."""
    by_id = {each.snapshot_id: each for each in table.metadata.snapshots}
    found = []
    while at is not None and at in by_id:
        found.append(by_id[at])
        at = by_id[at].parent_snapshot_id
    return found


def _files_of(table: Table, snapshots: Iterable[int]) -> set[Path]:
    """Everything that some snapshots need: lists of manifests, manifests, data and deletes."""
    wanted, seen = set(snapshots), set[str]()
    found: set[str] = set()
    for snapshot in table.metadata.snapshots:
        if snapshot.snapshot_id not in wanted:
            continue
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            found.add(manifest.manifest_path)
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                found |= {each.data_file.file_path for each in entries}
    return _local(found, table.name())


def _clean(table: Table, before: set[Path], retention: Retention) -> int:
    named = _files_of(table, (each.snapshot_id for each in table.metadata.snapshots))
    statistics = {each.statistics_path for each in table.metadata.statistics}
    named |= _local(statistics, table.name())
    files = sum(remove(path) for path in sorted(before - named))
    for folder in _local({table.location()}, table.name()):
        for part, pattern in (("data", "*.parquet"), ("metadata", "*.avro")):
            files += remove_orphans(folder / part, pattern, named, retention.orphans_cutoff)
    return files


def _local(uris: Iterable[str], names: Sequence[str]) -> set[Path]:
    """Paths; what looks encoded may be so, or be a name of that look: both stand for the file."""
    found = set()
    for uri in uris:
        scheme, colon, rest = uri.partition(":")
        if colon and scheme != "file":
            raise NotLakelogs(".".join(names), f"{uri} is no file of this machine")
        plain = "/" + (rest if colon else uri).lstrip("/")
        found |= {Path(plain), Path(unquote(plain))}
    return found
