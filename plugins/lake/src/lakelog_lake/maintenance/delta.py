"""Compaction and expiry of a Delta table with deltalake's procedures, without a JVM.

The newest commit always has the positions, so no compaction, vacuum or log clean-up removes them.
Deltalake's plain compaction puts the newest files first. Therefore the sorting one (``z_order`` by
queue offset) is used, which keeps the order of each queue.
"""

from __future__ import annotations

import re
from collections import defaultdict
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from lakelog_lake.errors import TooBusy
from lakelog_lake.maintenance.terms import SAFE_SECONDS, Compacted, Expired, RetentionTerms
from lakelog_lake.sinks.delta import opened
from lakelog_lake.tables.remote import below

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from lakelog_lake.sinks.delta import DeltaSink

_SORTED_BY: Final = "queue_offset"
_HOUR: Final = 3600
_VERSION: Final = re.compile(r"/_delta_log/[0-9]+\.json$")


def compact(sink: DeltaSink, target_bytes: int) -> Compacted:
    """Rewrite partitions with two or more files that are smaller than ``target_bytes``.

    Raises :class:`~lakelog_lake.errors.TooBusy`.
    """
    from deltalake import WriterProperties
    from deltalake.exceptions import CommitFailedError

    removed = made = 0
    properties = WriterProperties(compression="ZSTD", compression_level=1)
    for partition in _with_small_files(_table(sink), target_bytes):
        table = _table(sink)
        try:
            found = table.optimize.z_order(
                [_SORTED_BY],
                partition_filters=[(name, "=", value) for name, value in partition.items()],
                target_size=target_bytes,
                writer_properties=properties,
            )
        except CommitFailedError as error:
            raise TooBusy(f"{sink.name} could not be compacted in {partition}: {error}") from error
        removed += found["numFilesRemoved"]
        made += found["numFilesAdded"]
    return Compacted(removed, made)


def _with_small_files(table: DeltaTable, target_bytes: int) -> list[dict[str, Any]]:
    import pyarrow as pa

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


def expire(sink: DeltaSink, retention: RetentionTerms) -> Expired:
    """Vacuum, then clean up the table's log according to its own settings."""
    table = _table(sink)
    before = _versions(sink)
    kept = list(range(max(0, table.version() - retention.keep + 1), table.version() + 1))
    files = _files(sink)
    _vacuum(table, retention.seconds, kept, full=False)
    _vacuum(table, max(retention.seconds, SAFE_SECONDS), kept, full=True)
    table.update_incremental()
    table.create_checkpoint()
    table.cleanup_metadata()
    return Expired(max(0, before - _versions(sink)), len(files - _files(sink)))


def _vacuum(table: DeltaTable, seconds: int, kept: list[int], *, full: bool) -> None:
    """Vacuum a table.

    :param seconds: retention of removed files
    :param full: whether to remove also files that no version lists
    """
    table.vacuum(
        ceil(seconds / _HOUR),
        dry_run=False,
        enforce_retention_duration=False,
        full=full,
        keep_versions=kept,
    )


def _files(sink: DeltaSink) -> set[str]:
    """The existing data files; a dry run of vacuum would also list files that are gone."""
    found = (each for each in below(sink.path) if each.endswith(".parquet"))
    return {each for each in found if "/_delta_log/" not in each}


def _versions(sink: DeltaSink) -> int:
    """The number of versions in the log."""
    return sum(bool(_VERSION.search(each)) for each in below(sink.path))


def _table(sink: DeltaSink) -> DeltaTable:
    return opened(sink.path)
