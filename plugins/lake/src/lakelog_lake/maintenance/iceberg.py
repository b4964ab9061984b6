"""Expires the snapshots of an Iceberg table with pyiceberg, without a JVM.

The position is also a property of the table, which expiry does not remove. A snapshot with a tag or
branch also keeps all later snapshots: a chain with a gap would look like a rolled-back table.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from lakelog_lake.errors import TooBusy
from lakelog_lake.maintenance.terms import Expired, RetentionTerms, remove, remove_orphans
from lakelog_lake.sinks.iceberg import IcebergSink
from lakelog_lake.tables.remote import IcebergFiles, is_local, pairs

if TYPE_CHECKING:
    from pyiceberg.table import Table

_TRIES: Final = 20
_ORPHANS: Final = (("data", ".parquet"), ("metadata", ".avro"))
"""Folder and name pattern of files that may be unreferenced."""


def expire(sink: IcebergSink, retention: RetentionTerms) -> Expired:
    """Remove snapshots replaced before the cutoff, and files that only they reference.

    Raises :class:`~lakelog_lake.errors.TooBusy`.
    """
    from pyiceberg.exceptions import CommitFailedException

    from lakelog_lake.sinks.iceberg_expiry import expirable

    for _ in range(_TRIES):
        table = sink.catalog.load_table(sink.table)
        old = expirable(table.metadata, max(1, retention.keep), retention.cutoff)
        gone = [each.snapshot_id for each in old]
        before = _files_of(table, gone)
        if gone:
            try:
                table.maintenance.expire_snapshots().by_ids(gone).commit()
            except CommitFailedException:
                continue
            table = sink.catalog.load_table(sink.table)
        return Expired(len(gone), _clean(table, before, retention))
    raise TooBusy(f"{sink.name} could not be expired in {_TRIES} tries: others committed first")


def _files_of(table: Table, snapshots: Iterable[int]) -> set[Path | str]:
    """All files that snapshots reference: manifest lists, manifests, data and delete files."""
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
    return _places(found)


def _clean(table: Table, before: set[Path | str], retention: RetentionTerms) -> int:
    named = _files_of(table, (each.snapshot_id for each in table.metadata.snapshots))
    statistics = {each.statistics_path for each in table.metadata.statistics}
    named |= _places(statistics)
    if not is_local(table.location()):
        return _clean_remote(table, before, named, retention)
    files = sum(remove(path) for path in before - named if isinstance(path, Path))
    ours = {each for each in named if isinstance(each, Path)}
    for folder in _places({table.location()}):
        for part, pattern in _ORPHANS:
            orphans = Path(folder) / part
            files += remove_orphans(orphans, f"*{pattern}", ours, retention.orphans_cutoff)
    return files


def _clean_remote(
    table: Table, before: set[Path | str], named: set[Path | str], retention: RetentionTerms
) -> int:
    files = IcebergFiles(pairs(table.io.properties))
    gone = {str(each) for each in before - named}
    for part, pattern in _ORPHANS:
        for each in files.below(f"{table.location().rstrip('/')}/{part}"):
            is_old = each.written is not None and each.written < retention.orphans_cutoff
            if is_old and each.uri.endswith(pattern) and each.uri not in named:
                gone.add(each.uri)
    removed = 0
    for uri in sorted(gone):
        with suppress(FileNotFoundError):
            files.remove(uri)
            removed += 1
    return removed


def _places(uris: Iterable[str]) -> set[Path | str]:
    """Local paths, or URIs of an object store.

    A path with ``%`` escapes may be encoded or literal, so both readings are returned.
    """
    found: set[Path | str] = set()
    for uri in uris:
        if not is_local(uri):
            found.add(uri)
            continue
        plain = "/" + uri.removeprefix("file:").lstrip("/")
        found |= {Path(plain), Path(unquote(plain))}
    return found
