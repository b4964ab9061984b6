"""Compaction, expiry and status of all tables at one place, of any kind.

Snapshots of an Iceberg table expire with pyiceberg, without a JVM. The position is also a property
of the table, which expiry does not remove. A snapshot with a tag or branch also keeps all later
snapshots: a chain with a gap would look like a rolled-back table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import attrs

import lakelog
from lakelog_lake.engine_provider import provider
from lakelog_lake.errors import TableMaintenanceError, TooBusy
from lakelog_lake.landing.committing import table_errors
from lakelog_lake.maintenance import folders
from lakelog_lake.maintenance.terms import (
    Compacted,
    Expired,
    RetentionTerms,
    remove,
    remove_orphans,
)
from lakelog_lake.sinks.iceberg import IcebergSink
from lakelog_lake.sinks.locations import IcebergLocation, location_of
from lakelog_lake.tables.remote import IcebergFiles, is_local, pairs
from lakelog_lake.verify import landed_table

if TYPE_CHECKING:
    from pyiceberg.table import Table


def compact(
    to: str,
    table: str | None,
    target_bytes: int,
    master: str | None,
    storage: Mapping[str, str] | None = None,
) -> list[tuple[str, Compacted]]:
    """Compact the tables of ``KIND:PATH`` and their dead letters; return the results by table name.

    Raises :class:`~lakelog_lake.errors.TableMaintenanceError`,
    :class:`~lakelog_lake.errors.Unreachable`, and for Iceberg, which needs Spark,
    :class:`~lakelog.errors.SettingsError` without lakelog-spark.
    """
    done: list[tuple[str, Compacted]] = []
    iceberg: list[landed_table.IcebergRows] = []
    for each in _tables(to, table, storage):
        if isinstance(each, landed_table.ParquetRows):
            with table_errors(each.name):
                done.append((each.name, folders.compact_parquet(each.sink, target_bytes)))
        elif isinstance(each, landed_table.DeltaRows):
            with table_errors(each.name):
                done.append((each.name, folders.compact_delta(each.sink, target_bytes)))
        elif isinstance(each, landed_table.IcebergRows):
            iceberg.append(each)
    if iceberg:
        place = location_of(to, storage)
        warehouse = place.path if isinstance(place, IcebergLocation) else None
        if not isinstance(warehouse, Path):
            raise TableMaintenanceError(
                f"{to} must be compacted through its catalog, for example in Spark by CALL "
                "CATALOG.system.rewrite_data_files(table => 'NAMESPACE.TABLE')"
            )
        sinks = [each.sink for each in iceberg]
        compacted = provider("spark").compacted(warehouse, sinks, target_bytes, master)
        done += zip((each.name for each in iceberg), compacted, strict=True)
    return done


def expire(
    to: str, table: str | None, retention: RetentionTerms, storage: Mapping[str, str] | None = None
) -> list[tuple[str, Expired]]:
    """Expire the tables of ``KIND:PATH`` and their dead letters; return the results by table name.

    Raises :class:`~lakelog_lake.errors.TableMaintenanceError` and
    :class:`~lakelog_lake.errors.Unreachable`.
    """
    done = []
    for each in _tables(to, table, storage):
        with table_errors(each.name):
            if isinstance(each, landed_table.ParquetRows):
                done.append((each.name, folders.expire_parquet(each.sink, retention)))
            elif isinstance(each, landed_table.DeltaRows):
                done.append((each.name, folders.expire_delta(each.sink, retention)))
            elif isinstance(each, landed_table.IcebergRows):
                done.append((each.name, expire_iceberg(each.sink, retention)))
    return done


def _tables(
    to: str, table: str | None, storage: Mapping[str, str] | None
) -> list[landed_table.LandedTable]:
    return [
        each for found in landed_table.all_opened(to, table, storage=storage) for each in found.each
    ]


@attrs.frozen
class Status:
    """The status of one table.

    :ivar table: name of the table
    :ivar topic: the only topic of the table; ``None`` if it has all topics
    :ivar log_start: physical offset of the start of the log
    :ivar landed_to: physical offset up to which the store has landed; ``None`` if it never did
    :ivar durable_to: physical offset up to which the log is durable; ``None`` if not known
    :ivar rows: number of rows of all stores
    :ivar dead_letters: number of rows of the table of dead letters
    :ivar files: number of data files of the newest version
    :ivar bytes: total size of these files
    :ivar versions: number of versions kept
    :ivar commits: the last commits, oldest first
    """

    table: str
    topic: str | None
    log_start: int
    landed_to: int | None
    durable_to: int | None
    rows: int
    dead_letters: int
    files: int
    bytes: int
    versions: int
    commits: tuple[landed_table.TableCommit, ...] = ()

    @property
    def lag_bytes(self) -> int | None:
        """Bytes of the log that are durable and have not landed; ``None`` if not known."""
        if self.durable_to is None:
            return None
        landed_to = self.log_start if self.landed_to is None else self.landed_to
        return max(0, self.durable_to - landed_to)

    @property
    def landed_share(self) -> float | None:
        """The part of the present log that has landed, from 0 to 1; ``None`` if not known."""
        if self.lag_bytes is None or self.durable_to is None:
            return None
        there = self.durable_to - self.log_start
        return 1.0 if there <= 0 else max(0.0, 1 - self.lag_bytes / there)


def statuses(
    path: Path, store: str, to: str, table: str | None, storage: Mapping[str, str]
) -> Iterator[Status]:
    """Yield one status for each table of ``to``.

    :param store: the identity of the store in the tables

    Raises :class:`~lakelog_lake.errors.TableMaintenanceError`, and the errors of opening the store.
    """
    with lakelog.open(path, mode="read") as opened:
        start = opened.min_offset
        durable = opened.flushed_offset if opened.is_flushed_known else None
    for each in landed_table.all_opened(to, table, None, storage):
        with table_errors(each.table.name):
            position = each.table.position(landed_table.landed_name(path, store, [each.table]))
            size = each.table.size()
            commits = tuple(each.table.commits())
            dead = 0 if each.dead_letters is None else each.dead_letters.size().rows
        yield Status(
            each.table.name,
            each.topic,
            start,
            None if position is None else position.end,
            durable,
            size.rows,
            dead,
            size.files,
            size.bytes,
            size.versions,
            commits,
        )


_TRIES: Final = 20
_ORPHANS: Final = (("data", ".parquet"), ("metadata", ".avro"), ("metadata", ".metadata.json"))
"""Folder and name pattern of files that may be unreferenced, also of commits that failed."""
_CHECKSUM: Final = ".*.crc"
"""Hadoop's classes write such a file beside each of their files on a local disk."""


def expire_iceberg(sink: IcebergSink, retention: RetentionTerms) -> Expired:
    """Remove snapshots replaced before the cutoff, and files that only they reference.

    Raises :class:`~lakelog_lake.errors.TooBusy`.
    """
    from pyiceberg.exceptions import CommitFailedException

    from lakelog_lake.sinks.iceberg_expiry import expirable
    from lakelog_lake.sinks.iceberg_internals import SteadyTransaction

    for _ in range(_TRIES):
        table = sink.load()
        old = expirable(table.metadata, max(1, retention.keep), retention.cutoff)
        gone = [each.snapshot_id for each in old]
        before = _files_of(table, gone)
        if gone:
            try:
                transaction = SteadyTransaction(table)
                transaction.expire(gone)
                transaction.commit_once()
            except CommitFailedException:
                continue
            table = sink.load()
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
    statistics = (each.statistics_path for each in table.metadata.statistics)
    versions = (each.metadata_file for each in table.metadata.metadata_log)
    named |= _places({table.metadata_location, *versions, *statistics})
    if not is_local(table.location()):
        return _clean_remote(table, before, named, retention)
    files = sum(remove(path) for path in before - named if isinstance(path, Path))
    ours = {each for each in named if isinstance(each, Path)}
    for folder in _places({table.location()}):
        for part, pattern in _ORPHANS:
            orphans = Path(folder) / part
            files += remove_orphans(orphans, f"*{pattern}", ours, retention.orphans_cutoff)
        sums = {each for each in Path(folder).rglob(_CHECKSUM) if _summed(each).exists()}
        remove_orphans(Path(folder), _CHECKSUM, sums, retention.orphans_cutoff)
    return files


def _summed(path: Path) -> Path:
    """The file of a checksum."""
    return path.with_name(path.name.removeprefix(".").removesuffix(".crc"))


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
