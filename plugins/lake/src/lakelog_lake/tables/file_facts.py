"""What a commit has to know about a data file; taken from the writer, so that no file is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog_lake.tables.remote import Files

BOUNDED: Final = ("topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp")
"""The columns whose least and greatest values a table knows of each file."""


@attrs.frozen
class FileFacts:
    """One Parquet file, all rows of which are of one partition.

    Columns have their Parquet paths as names, such as ``keys.list.element``.

    :ivar path: absolute, or a URI
    :ivar size_bytes: its length
    :ivar partition: what its rows have in common, by the keys of its table's partitions; days and
        hours of store time count from 1970, in UTC
    :ivar column_sizes: bytes of each column as stored
    :ivar value_counts: of each column
    :ivar null_counts: of the columns in :data:`BOUNDED`
    :ivar lower: their least values; times are microseconds since 1970
    :ivar upper: their greatest
    :ivar row_groups: where each begins in the file
    :ivar files: by which it can be removed, where it is not on this machine
    """

    path: str
    size_bytes: int
    rows: int
    partition: Mapping[str, int | str]
    column_sizes: Mapping[str, int]
    value_counts: Mapping[str, int]
    null_counts: Mapping[str, int]
    lower: Mapping[str, int | str]
    upper: Mapping[str, int | str]
    row_groups: tuple[int, ...]
    files: Files | None = None

    @property
    def topic(self) -> str:
        """Of all rows, in a table that is partitioned by it."""
        return str(self.partition["topic"])

    @property
    def day(self) -> int:
        """Likewise."""
        return int(self.partition["day"])


def facts_of(
    metadata: Any, path: str, size_bytes: int, partition: Mapping[str, int | str]
) -> FileFacts:
    """Facts from a ``pyarrow.parquet.FileMetaData``."""
    columns = _Columns()
    starts = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        first = group.column(0)
        has_dictionary = first.has_dictionary_page
        starts.append(first.dictionary_page_offset if has_dictionary else first.data_page_offset)
        for at in range(group.num_columns):
            columns.add(group.column(at))
    known = attrs.asdict(columns)
    return FileFacts(
        path, size_bytes, metadata.num_rows, partition, **known, row_groups=tuple(starts)
    )


@attrs.define
class _Columns:
    """What the row groups of a file say, column by column."""

    column_sizes: dict[str, int] = attrs.Factory(dict)
    value_counts: dict[str, int] = attrs.Factory(dict)
    null_counts: dict[str, int] = attrs.Factory(dict)
    lower: dict[str, Any] = attrs.Factory(dict)
    upper: dict[str, Any] = attrs.Factory(dict)

    def add(self, chunk: Any) -> None:
        name = chunk.path_in_schema
        _plus(self.column_sizes, name, chunk.total_compressed_size)
        _plus(self.value_counts, name, chunk.num_values)
        if not chunk.is_stats_set:
            return
        known = chunk.statistics
        if known.has_null_count:
            _plus(self.null_counts, name, known.null_count)
        if known.has_min_max:
            low, high = _plain(known.min_raw), _plain(known.max_raw)
            self.lower[name] = min(self.lower.get(name, low), low)
            self.upper[name] = max(self.upper.get(name, high), high)


def _plus(counts: dict[str, int], name: str, more: int) -> None:
    counts[name] = counts.get(name, 0) + more


def _plain(value: Any) -> int | str:
    if isinstance(value, bytes):
        return value.decode()
    return value if isinstance(value, str) else int(value)


def hidden(path: Path) -> Path:
    """The name of a data file that nobody is to read.

    >>> hidden(Path("data/1.parquet")).as_posix()
    'data/.1.parquet.hidden'
    """
    return path.with_name(f".{path.name}.hidden")


def discard(files: Iterable[FileFacts]) -> None:
    """Remove them, if they are there."""
    for each in files:
        with suppress(Exception):  # it is about tidiness only, and may be about a disk that fails
            if each.files is None:
                Path(each.path).unlink(missing_ok=True)
            else:
                each.files.remove(each.path)
