"""Compaction and expiry of Parquet and Delta tables, without a JVM; also while messages land.

The newest commit always has the positions, so no compaction, expiry or log clean-up removes them.

The compaction of a Parquet table merges small files into one with the same rows, sorted by store,
queue and offset. It publishes a further manifest that lists the whole table, with the same
positions. The manifest is linked to its name, which fails if a dispatcher has published that
version first. The compaction is then repeated on the new version.

For a Delta table ``lake compact`` and ``expire`` use deltalake's procedures. Deltalake's plain
compaction puts the newest files first. Therefore the sorting one (``z_order`` by queue offset) is
used, which keeps the order of each queue.

``dispatch --compact`` merges the small files of recent passes between two passes, in the
dispatcher's process, so only a second dispatcher can conflict with it. Its commit changes no
position. A kill leaves a file that no version lists.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote
from uuid import uuid4

import attrs
import pyarrow as pa
from pyarrow import parquet

from lakelog.errors import SettingsError, raised_by_handler
from lakelog_lake.errors import Conflict, TableMaintenanceError, TooBusy
from lakelog_lake.landing.targets import Targets
from lakelog_lake.maintenance import terms
from lakelog_lake.sinks.base import DELTA_LOG, OF_TABLES, Sink
from lakelog_lake.sinks.delta import DeltaSink, added, opened
from lakelog_lake.sinks.parquet import ParquetSink
from lakelog_lake.tables import data_files, settings
from lakelog_lake.tables.data_files import found, hidden
from lakelog_lake.tables.remote import below, sync
from lakelog_lake.verify.landed_table import Added, DeltaRows

if TYPE_CHECKING:
    from deltalake import DeltaTable

ORDER: Final = ("store", "queue_id", "queue_offset", "physical_offset")
MOST_UNPACKED_BYTES: Final = 512 << 20
"""Most bytes merged at once; a merge needs a few times as much memory."""
_STEP_ROWS: Final = 16_384


def bins(
    table: ParquetSink, entries: Iterable[dict[str, Any]], target_bytes: int
) -> list[list[dict[str, Any]]]:
    """Return groups of at least two files to merge into one, in the given order.

    :param target_bytes: largest stored size of a group
    """
    groups: list[list[dict[str, Any]]] = [[]]
    stored = unpacked = 0
    for each in entries:
        path = found(table.path / each["path"])
        footer, size = parquet.read_metadata(path), path.stat().st_size
        plain = sum(footer.row_group(n).total_byte_size for n in range(footer.num_row_groups))
        is_full = stored + size > target_bytes or unpacked + plain > MOST_UNPACKED_BYTES
        if groups[-1] and is_full:
            groups.append([])
            stored = unpacked = 0
        groups[-1].append(each)
        stored += size
        unpacked += plain
    return [group for group in groups if len(group) > 1]


def merge(paths: Sequence[Path], made: Path) -> Any:
    """Merge the rows of ``paths`` into the new file ``made``, durably.

    :returns: the Parquet metadata of ``made``
    """
    parts = [parquet.read_table(path, partitioning=None) for path in paths]
    table = pa.concat_tables(parts, promote_options="permissive").combine_chunks()
    order = [(name, "ascending") for name in ORDER if name in table.column_names]
    indices = table.select([name for name, _ in order])
    places = pa.compute.sort_indices(indices, sort_keys=order)
    steps = (places.slice(at, _STEP_ROWS) for at in range(0, len(places), _STEP_ROWS))
    return write(table.schema, map(table.take, steps), made)


def write(schema: pa.Schema, parts: Iterable[pa.Table], made: Path) -> Any:
    """Write ``parts`` to the new file ``made``, durably; return its Parquet metadata."""
    with made.open("xb") as file:
        with data_files.parquet_writer(file, schema, settings.ParquetCompression.ZSTD) as writer:
            for part in parts:
                writer.write_table(part)
        file.flush()
        os.fsync(file.fileno())
    return writer.writer.metadata


_TRIES: Final = 20
_OF_ONE_FILE: Final = ("path", "size_bytes", "rows")


@attrs.frozen
class _Merged:
    """A merge of files.

    :ivar old: paths of the merged files, as in manifests
    :ivar entry: the manifest entry of the new file
    """

    old: frozenset[str]
    entry: dict[str, Any]


def compact_parquet(sink: ParquetSink, target_bytes: int) -> terms.Compacted:
    """Merge files of one topic and day that are smaller than ``target_bytes``.

    Raises :class:`~lakelog_lake.errors.TooBusy`.
    """
    merged = [_merge(sink, group) for group in _groups(sink, target_bytes)]
    if not merged:
        return terms.Compacted()
    sync(sink.folder)
    try:
        _commit_parquet(sink, merged)
    except BaseException:
        _discard_unless_listed(sink, merged)
        raise
    old = sum(len(each.old) for each in merged)
    return terms.Compacted(old, len(merged), sum(each.entry["rows"] for each in merged))


def _groups(table: ParquetSink, target_bytes: int) -> Iterator[list[dict[str, Any]]]:
    alike: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for each in table.entries(table.newest()[0]):
        if each["size_bytes"] < target_bytes:
            others = {name: each[name] for name in sorted(each) if name not in _OF_ONE_FILE}
            alike[repr(others)].append(each)
    for entries in alike.values():
        if len(entries) > 1:
            yield from bins(table, entries, target_bytes)


def _merge(table: ParquetSink, entries: Sequence[dict[str, Any]]) -> _Merged:
    named = table.folder / f"compacted-{uuid4().hex}.parquet"
    made = hidden(named)
    try:
        rows = merge([found(table.path / each["path"]) for each in entries], made).num_rows
    except FileNotFoundError as error:  # renamed meanwhile
        raise _outrun(table) from error
    path = os.path.relpath(named, table.path)
    entry = {**entries[0], "path": path, "size_bytes": made.stat().st_size, "rows": rows}
    return _Merged(frozenset(each["path"] for each in entries), entry)


def _commit_parquet(table: ParquetSink, merged: Sequence[_Merged]) -> None:
    gone = frozenset[str]().union(*(each.old for each in merged))
    for _ in range(_TRIES):
        version = table.newest()
        entries = table.entries(version[0])
        if not gone <= {each["path"] for each in entries}:
            raise _outrun(table)
        kept = [each for each in entries if each["path"] not in gone]
        try:
            table.replace(version, [*(each.entry for each in merged), *kept], {})
        except Conflict:
            continue
        return
    raise TooBusy(f"{table.name} could not be compacted in {_TRIES} tries: others committed first")


def _outrun(table: ParquetSink) -> TooBusy:
    return TooBusy(f"{table.name}: another compaction committed first; nothing was changed")


def _discard_unless_listed(table: ParquetSink, merged: Sequence[_Merged]) -> None:
    """Remove the new files, unless the commit was done in spite of its error.

    A later compaction may have replaced them already: older versions list them all the same.
    """
    listed = {path for number in table.versions() for path in table.named_by(number)}
    for each in merged:
        if table.path / each.entry["path"] not in listed:
            terms.remove(hidden(table.path / each.entry["path"]))


def expire_parquet(table: ParquetSink, retention: terms.RetentionTerms) -> terms.Expired:
    """Remove versions replaced before the cutoff, and files that only they list."""
    numbers = table.versions()
    if not numbers:
        return terms.Expired()
    first = table.whole_before(_oldest_kept(table, numbers, retention))
    gone = [number for number in numbers if number < first]
    before = {path for number in gone for path in table.named_by(number)}
    for number in gone:
        terms.remove(table.manifest(number))
    named = {path for number in table.versions() for path in table.named_by(number)}
    files = sum(terms.remove(path) for path in sorted(before - named))
    for pattern in data_files.PATTERNS:
        files += terms.remove_orphans(table.folder, pattern, named, retention.orphans_cutoff)
    terms.remove_orphans(table.manifests, "*.tmp", set(), retention.orphans_cutoff)
    return terms.Expired(len(gone), files)


def _oldest_kept(
    table: ParquetSink, numbers: Sequence[int], retention: terms.RetentionTerms
) -> int:
    kept = numbers[-max(1, retention.keep) :][0]
    for number, following in zip(numbers[-2::-1], numbers[:0:-1], strict=False):
        if table.manifest(following).stat().st_mtime < retention.cutoff:
            break
        kept = min(kept, number)
    return kept


_UNFINISHED: Final = "*#[0-9]"
"""The temporary names that deltalake gives to files in folders: ``NAME#1``."""
_VERSION: Final = re.compile(r"/_delta_log/[0-9]+\.json$")


def compact_delta(sink: DeltaSink, target_bytes: int) -> terms.Compacted:
    """Rewrite partitions with two or more files that are smaller than ``target_bytes``.

    Raises :class:`~lakelog_lake.errors.TooBusy`.
    """
    from deltalake import WriterProperties
    from deltalake.exceptions import CommitFailedError

    removed = made = 0
    properties = WriterProperties(compression="ZSTD", compression_level=1)
    for partition in _with_small_files(opened(sink.path), target_bytes):
        if isinstance(sink.path, Path) and not _has_folder(partition):
            _log.warning("%s: a folder's name is too long for %s", sink.name, partition)
            continue
        table = opened(sink.path)
        try:
            found = table.optimize.z_order(
                ["queue_offset"],
                partition_filters=[(name, "=", value) for name, value in partition.items()],
                target_size=target_bytes,
                writer_properties=properties,
            )
        except CommitFailedError as error:
            raise TooBusy(f"{sink.name} could not be compacted in {partition}: {error}") from error
        removed += found["numFilesRemoved"]
        made += found["numFilesAdded"]
    return terms.Compacted(removed, made)


def _has_folder(partition: Mapping[str, str]) -> bool:
    """Whether the folder that deltalake makes for each value has a name that a disk takes."""
    names = (f"{name}={quote(value, safe='')}" for name, value in partition.items())
    return all(len(each) <= data_files.LONGEST_NAME for each in names)


def _with_small_files(table: DeltaTable, target_bytes: int) -> list[dict[str, Any]]:

    actions = pa.table(table.get_add_actions(flatten=True))
    own = [name for name in actions.column_names if name.startswith("partition.")]
    small: dict[tuple[Any, ...], int] = defaultdict(int)
    for row in actions.select(["size_bytes", *own]).to_pylist():
        small[tuple(row[name] for name in own)] += row["size_bytes"] < target_bytes
    names = [name.removeprefix("partition.") for name in own]
    return [
        {name: str(value) for name, value in zip(names, values, strict=True)}
        for values, count in small.items()
        if count > 1
    ]


def expire_delta(sink: DeltaSink, retention: terms.RetentionTerms) -> terms.Expired:
    """Vacuum, then clean up the table's log according to its own settings.

    Raises :class:`~lakelog_lake.errors.TableMaintenanceError`.
    """
    table = opened(sink.path)
    before = set(below(sink.path))
    _check_alone(sink, before)
    kept = list(range(max(0, table.version() - retention.keep + 1), table.version() + 1))
    vacuum = partial(
        table.vacuum, dry_run=False, enforce_retention_duration=False, keep_versions=kept
    )
    vacuum(ceil(retention.seconds / 3600))
    # also files that no version lists
    vacuum(ceil(max(retention.seconds, terms.SAFE_SECONDS) / 3600), full=True)
    if isinstance(sink.path, Path):  # vacuum does not see what a kill left under a temporary name
        terms.remove_orphans(sink.path, _UNFINISHED, set(), retention.orphans_cutoff)
    table.update_incremental()
    table.create_checkpoint()
    table.cleanup_metadata()
    after = set(below(sink.path))  # a dry run of vacuum would also list files that are gone
    files = sum(e.endswith(".parquet") and "/_delta_log/" not in e for e in before - after)
    return terms.Expired(max(0, _versions(before) - _versions(after)), files)


def _check_alone(sink: DeltaSink, paths: Iterable[str]) -> None:
    """Raise ``TableMaintenanceError`` if another table is in the folder of this one, or below it.

    :param paths: all files there
    """
    patterns = [f"*/{each}" for each in OF_TABLES.values()]
    for each in paths:
        within = "/" + each.removeprefix(f"{sink.path}/")
        is_own = within.startswith(f"/{DELTA_LOG}/")
        if not is_own and any(fnmatchcase(within, one) for one in patterns):
            raise TableMaintenanceError(
                f"{sink.name} has another table in its folder, as {each} shows: a vacuum would "
                "remove the files of that one. Nothing was changed: move one of both"
            )


def _versions(paths: Iterable[str]) -> int:
    """The number of versions in the log."""
    return sum(bool(_VERSION.search(each)) for each in paths)


_log = logging.getLogger("lakelog_lake")

_FORGET: Final = "delta.deletedFileRetentionDuration"


@attrs.define
class PeriodicCompaction:
    """Merges small files; called after each pass that landed something.

    Raises :class:`~lakelog.errors.SettingsError` if a table cannot be compacted this way.

    :ivar targets: the tables
    :ivar passes: number of passes between two compactions
    :ivar target_bytes: largest size of a merged file
    """

    targets: Targets
    passes: int
    target_bytes: int
    _left: int = attrs.field(default=attrs.Factory(lambda self: self.passes, True))

    def __attrs_post_init__(self) -> None:
        for each in self._sinks():
            is_folder = isinstance(each, DeltaSink | ParquetSink) and isinstance(each.path, Path)
            if not is_folder:
                raise SettingsError(
                    f"{each.name} cannot be compacted while messages land, only Delta and Parquet "
                    "tables in folders can; use its engine, or 'lakelog lake compact'",
                    key="--compact",
                )

    def _sinks(self) -> list[Sink]:
        return [each.sink for each in self.targets.served]

    def __call__(self) -> None:
        """Count a pass, and compact if due; an error is logged and does not stop landing."""
        self._left -= 1
        if self._left > 0:
            return
        self._left = self.passes
        for each in self._sinks():
            try:
                if isinstance(each, ParquetSink):
                    done = compact_parquet(each, self.target_bytes)
                else:
                    done = compact_new(cast("DeltaSink", each), self.target_bytes)
            except Exception as error:  # it only cleans up; the next pass tries again
                if raised_by_handler(error):
                    raise
                _log.warning("%s: cannot merge small files: %s", each.name, error)
            else:
                _log.info("%s: %d files became %d", each.name, done.removed, done.made)


def compact_new(sink: DeltaSink, target_bytes: int) -> terms.Compacted:
    """Merge files of one partition and of similar size, where there are ten or more.

    The rows keep the order of each queue. Raises :class:`~lakelog_lake.errors.TooBusy`, and
    :class:`~lakelog_lake.errors.NeedsEngine` for a table with deletion vectors.
    """
    version = _forgetting(sink).version()
    alike: dict[tuple[tuple[str, object], ...], list[Added]] = defaultdict(list)
    for each in sorted(DeltaRows(sink).actions(), key=lambda each: each.begins or 0):
        if each.size_bytes < target_bytes:
            alike[tuple(each.partition.items())].append(each)
    groups = [
        [files[place] for place in places]
        for files in alike.values()
        for places in data_files.mergeable(_weights(files), target_bytes)
    ]
    if not groups:
        return terms.Compacted()
    made = [_merged(group) for group in groups]
    try:
        _commit_delta(sink, version, list(zip(groups, made, strict=True)))
    except BaseException:
        _discard_unless_added(sink, made)
        raise
    return terms.Compacted(sum(map(len, groups)), len(groups), sum(each.rows for each in made))


def _forgetting(sink: DeltaSink) -> DeltaTable:
    """Open the table with a short retention of removed files, for small checkpoints."""
    table = opened(sink.path)
    if _FORGET not in table.metadata().configuration:
        table.alter.set_table_properties({_FORGET: "interval 3600 seconds"})
        table = opened(sink.path)
    return table


def _weights(files: Sequence[Added]) -> list[data_files.Weight]:
    """Weights in log order, raised to be non-increasing, so that merged files are adjacent."""
    least, found = 0, []
    for each in reversed(files):
        least = max(least, each.size_bytes // 1024)
        found.append(data_files.Weight(least, each.size_bytes))
    return found[::-1]


def _merged(group: Sequence[Added]) -> data_files.FileFacts:
    path = Path(str(group[-1].path)).parent / f"compacted-{uuid4().hex}.parquet"
    metadata = merge([Path(str(each.path)) for each in group], path)
    return data_files.facts_of(metadata, str(path), path.stat().st_size, {})


def _commit_delta(
    sink: DeltaSink, version: int, merged: Sequence[tuple[Sequence[Added], data_files.FileFacts]]
) -> None:
    from deltalake.transaction import AddAction, RemoveAction

    for folder in {Path(facts.path).parent for _, facts in merged}:
        sync(folder)
    now_ms = time.time_ns() // 1_000_000
    actions: list[AddAction | RemoveAction] = []
    for group, facts in merged:
        known = group[0].partition.items()
        values = {name: None if it is None else str(it) for name, it in known}
        actions += [RemoveAction(e.named, False, now_ms, e.size_bytes, values) for e in group]
        actions.append(added(sink.within(facts.path), facts, values, data_change=False))
    table = opened(sink.path)
    if table.version() != version:
        raise TooBusy(f"{sink.name} was changed by another writer")
    try:
        sink.write(table, actions)
    except Conflict as error:
        raise TooBusy(str(error)) from error


def _discard_unless_added(sink: DeltaSink, made: Sequence[data_files.FileFacts]) -> None:
    """Remove the new files, unless the newest version or a commit in the log lists them."""
    listed = {str(each.path) for each in DeltaRows(sink).actions()}
    log = sorted(Path(str(sink.path)).glob("_delta_log/*.json"))
    commits = "".join(each.read_text() for each in log)
    for each in made:
        if each.path not in listed and Path(each.path).name not in commits:
            Path(each.path).unlink(missing_ok=True)
