"""Compaction and expiry of a Parquet table.

A compaction merges small files into one with the same rows, sorted by store, queue and offset. It
publishes a further manifest that lists the whole table, with the same positions. The manifest is
linked to its name, which fails if a dispatcher has published that version first. The compaction is
then repeated on the new version.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import attrs
import pyarrow as pa
from pyarrow import parquet

from lakelog_lake.errors import Conflict, TooBusy
from lakelog_lake.maintenance import terms
from lakelog_lake.sinks.parquet import ParquetSink
from lakelog_lake.tables.data_files import PATTERNS, found, hidden, parquet_writer
from lakelog_lake.tables.remote import sync
from lakelog_lake.tables.settings import ParquetCompression

ORDER: Final = ("store", "queue_id", "queue_offset", "physical_offset")
MOST_UNPACKED_BYTES: Final = 512 << 20
"""Most bytes merged at once; a merge needs a few times as much memory."""
_STEP_ROWS: Final = 16_384


def bins(
    table: ParquetSink, entries: Iterable[dict[str, Any]], target_bytes: int
) -> Iterator[list[dict[str, Any]]]:
    """Yield groups of at least two files to merge into one, in the given order.

    :param target_bytes: largest stored size of a group
    """
    held: list[dict[str, Any]] = []
    stored = unpacked = 0
    for each in entries:
        path = found(table.path / each["path"])
        footer, size = parquet.read_metadata(path), path.stat().st_size
        plain = sum(footer.row_group(n).total_byte_size for n in range(footer.num_row_groups))
        if held and (stored + size > target_bytes or unpacked + plain > MOST_UNPACKED_BYTES):
            if len(held) > 1:
                yield held
            held, stored, unpacked = [], 0, 0
        held.append(each)
        stored += size
        unpacked += plain
    if len(held) > 1:
        yield held


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
        with parquet_writer(file, schema, ParquetCompression.ZSTD) as writer:
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


def compact(sink: ParquetSink, target_bytes: int) -> terms.Compacted:
    """Merge files of one topic and day that are smaller than ``target_bytes``.

    Raises :class:`~lakelog_lake.errors.TooBusy`.
    """
    merged = [_merge(sink, group) for group in _groups(sink, target_bytes)]
    if not merged:
        return terms.Compacted()
    sync(sink.folder)
    try:
        _commit(sink, merged)
    except BaseException:
        _discard_unless_named(sink, merged)
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


def _commit(table: ParquetSink, merged: Sequence[_Merged]) -> None:
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


def _discard_unless_named(table: ParquetSink, merged: Sequence[_Merged]) -> None:
    """Remove the new files, unless the commit published them in spite of its error."""
    named = {each["path"] for each in table.entries(table.newest()[0])}
    for each in merged:
        if each.entry["path"] not in named:
            terms.remove(hidden(table.path / each.entry["path"]))


def expire(table: ParquetSink, retention: terms.RetentionTerms) -> terms.Expired:
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
    for pattern in PATTERNS:
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
