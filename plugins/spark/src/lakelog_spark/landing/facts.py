"""What a commit has to know about a data file; taken from the writer, so that no file is read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any, Final

import attrs

BOUNDED: Final = ("topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp")
"""The columns whose least and greatest values a table knows of each file."""

_EPOCH: Final = date(1970, 1, 1).toordinal()
_LAST: Final = date.max.toordinal()


@attrs.frozen
class FileFacts:
    """One Parquet file, all rows of which are of one topic and one day of store time.

    Columns have their Parquet paths as names, such as ``keys.list.element``.

    :ivar path: absolute
    :ivar size_bytes: its length
    :ivar day: days since 1970 of its rows' store times, in UTC
    :ivar column_sizes: bytes of each column as stored
    :ivar value_counts: of each column
    :ivar null_counts: of the columns in :data:`BOUNDED`
    :ivar lower: their least values; times are microseconds since 1970
    :ivar upper: their greatest
    :ivar row_groups: where each begins in the file
    """

    path: str
    size_bytes: int
    rows: int
    topic: str
    day: int
    column_sizes: Mapping[str, int]
    value_counts: Mapping[str, int]
    null_counts: Mapping[str, int]
    lower: Mapping[str, int | str]
    upper: Mapping[str, int | str]
    row_groups: tuple[int, ...]


def facts_of(metadata: Any, path: str, size_bytes: int, topic: str, day: int) -> FileFacts:
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
        path, size_bytes, metadata.num_rows, topic, day, **known, row_groups=tuple(starts)
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


def day_text(day: int) -> str:
    """A day as ISO 8601 has it; what no calendar has becomes its first or last day.

    >>> day_text(0), day_text(20_000), day_text(10**8)
    ('1970-01-01', '2024-10-04', '9999-12-31')
    """
    return date.fromordinal(min(max(_EPOCH + day, 1), _LAST)).isoformat()
