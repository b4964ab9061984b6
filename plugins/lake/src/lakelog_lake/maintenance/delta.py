"""Compaction and expiry of a Delta table, without a JVM; and compaction while messages land.

The newest commit always has the positions, so no compaction, vacuum or log clean-up removes them.
``lake compact`` and ``expire`` use deltalake's procedures. Deltalake's plain compaction puts the
newest files first. Therefore the sorting one (``z_order`` by queue offset) is used, which keeps the
order of each queue.

``dispatch --compact`` merges the small files of recent passes between two passes, in the
dispatcher's process, so only a second dispatcher can conflict with it. Its commit changes no
position. A kill leaves a file that no version lists.
"""

from __future__ import annotations

import logging
import re
import time
from collections import defaultdict
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

import attrs
import pyarrow as pa

from lakelog.errors import SettingsError
from lakelog_lake.errors import Conflict, TooBusy
from lakelog_lake.landing.targets import Targets
from lakelog_lake.maintenance import parquet, terms
from lakelog_lake.sinks.base import Sink
from lakelog_lake.sinks.delta import DeltaSink, added, opened
from lakelog_lake.sinks.parquet import ParquetSink
from lakelog_lake.tables import data_files, remote
from lakelog_lake.verify.landed_table import Added, DeltaRows

if TYPE_CHECKING:
    from deltalake import DeltaTable


_VERSION: Final = re.compile(r"/_delta_log/[0-9]+\.json$")


def compact(sink: DeltaSink, target_bytes: int) -> terms.Compacted:
    """Rewrite partitions with two or more files that are smaller than ``target_bytes``.

    Raises :class:`~lakelog_lake.errors.TooBusy`.
    """
    from deltalake import WriterProperties
    from deltalake.exceptions import CommitFailedError

    removed = made = 0
    properties = WriterProperties(compression="ZSTD", compression_level=1)
    for partition in _with_small_files(opened(sink.path), target_bytes):
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


def expire(sink: DeltaSink, retention: terms.RetentionTerms) -> terms.Expired:
    """Vacuum, then clean up the table's log according to its own settings."""
    table = opened(sink.path)
    before = _versions(sink)
    kept = list(range(max(0, table.version() - retention.keep + 1), table.version() + 1))
    files = _files(sink)
    _vacuum(table, retention.seconds, kept, full=False)
    _vacuum(table, max(retention.seconds, terms.SAFE_SECONDS), kept, full=True)
    table.update_incremental()
    table.create_checkpoint()
    table.cleanup_metadata()
    return terms.Expired(max(0, before - _versions(sink)), len(files - _files(sink)))


def _vacuum(table: DeltaTable, seconds: int, kept: list[int], *, full: bool) -> None:
    """Vacuum a table.

    :param seconds: retention of removed files
    :param full: whether to remove also files that no version lists
    """
    table.vacuum(
        ceil(seconds / 3600),
        dry_run=False,
        enforce_retention_duration=False,
        full=full,
        keep_versions=kept,
    )


def _files(sink: DeltaSink) -> set[str]:
    """The existing data files; a dry run of vacuum would also list files that are gone."""
    found = (each for each in remote.below(sink.path) if each.endswith(".parquet"))
    return {each for each in found if "/_delta_log/" not in each}


def _versions(sink: DeltaSink) -> int:
    """The number of versions in the log."""
    return sum(bool(_VERSION.search(each)) for each in remote.below(sink.path))


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
                    done = parquet.compact(each, self.target_bytes)
                else:
                    done = compact_new(cast("DeltaSink", each), self.target_bytes)
            except Exception as error:  # noqa: BLE001  # only cleaning; the next try is soon
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
    made = [_merged(sink, group) for group in groups]
    try:
        _commit(sink, version, list(zip(groups, made, strict=True)))
    except BaseException:
        _discard_unless_named(sink, made)
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


def _merged(sink: DeltaSink, group: Sequence[Added]) -> data_files.FileFacts:
    path = Path(str(sink.folder)) / f"compacted-{uuid4().hex}.parquet"
    metadata = parquet.merge([Path(str(each.path)) for each in group], path)
    return data_files.facts_of(metadata, str(path), path.stat().st_size, {})


def _commit(
    sink: DeltaSink, version: int, merged: Sequence[tuple[Sequence[Added], data_files.FileFacts]]
) -> None:
    from deltalake.transaction import AddAction, RemoveAction

    remote.sync(Path(str(sink.folder)))
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


def _discard_unless_named(sink: DeltaSink, made: Sequence[data_files.FileFacts]) -> None:
    """Remove the new files, unless the commit was done in spite of its error."""
    named = {str(each.path) for each in DeltaRows(sink).actions()}
    for each in made:
        if each.path not in named:
            Path(each.path).unlink(missing_ok=True)
