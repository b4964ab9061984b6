"""Metadata of a data file for a commit; it comes from the writer, so that no file is read again.

Keeps exactly the data files of a Parquet table's newest version visible to other readers.

A file is written under a hidden name. Readers of folders ignore it, as it begins with ``.`` and
does not end with ``.parquet``. The manifest is the commit. After the commit the new files get their
visible names, and files that a compaction removed from the table are hidden. After a kill in
between, the next process does this first. Each process reads the newest version again after it
renamed files, so that the last of several concurrent processes leaves the right names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog_lake.tables.remote import Files

BOUNDED: Final = ("topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp")
"""The columns with smallest and largest values per file."""


@attrs.frozen
class FileFacts:
    """Metadata of one Parquet file whose rows all belong to one partition.

    Columns are named by their Parquet paths, such as ``keys.list.element``.

    :ivar path: absolute, or a URI
    :ivar size_bytes: its length
    :ivar partition: the values of its partition by the table's keys; days and hours of store time
        count from 1970, in UTC
    :ivar column_sizes: stored bytes of each column
    :ivar value_counts: number of values of each column
    :ivar null_counts: number of nulls of the columns in :data:`BOUNDED`
    :ivar lower: their smallest values; times are microseconds since 1970
    :ivar upper: their largest values
    :ivar row_groups: offset of each in the file
    :ivar files: the file system that can remove it, if it is not local
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
        """The topic of all rows, in a table partitioned by topic."""
        return str(self.partition["topic"])

    @property
    def day(self) -> int:
        """The day of all rows, in a table partitioned by day."""
        return int(self.partition["day"])


def facts_of(
    metadata: Any, path: str, size_bytes: int, partition: Mapping[str, int | str]
) -> FileFacts:
    """Convert a ``pyarrow.parquet.FileMetaData``."""
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
    """Sums over the row groups of a file, by column."""

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
    """The hidden name of a data file, which readers of the folder ignore.

    >>> hidden(Path("data/1.parquet")).as_posix()
    'data/.1.parquet.hidden'
    """
    return path.with_name(f".{path.name}.hidden")


def discard(files: Iterable[FileFacts]) -> None:
    """Remove files, if they exist."""
    for each in files:
        with suppress(Exception):  # only cleaning; the disk may be failing
            if each.files is None:
                Path(each.path).unlink(missing_ok=True)
            else:
                each.files.remove(each.path)


PATTERNS: Final = ("*.parquet", ".*.parquet.hidden")
"""Name patterns of visible and of hidden data files."""


def shown(paths: Iterable[Path]) -> bool:
    """Give files their visible names; return whether any was hidden."""
    found = [_renamed(hidden(path), path) for path in paths if not path.exists()]
    return any(found)


def only(seen: Iterable[Path], paths: Iterable[Path]) -> bool:
    """Show ``paths`` and hide all others; return whether that changed anything.

    :param seen: the files visible before ``paths`` was read, so that later commits are not hidden
    """
    wanted = set(paths)
    gone = [_renamed(path, hidden(path)) for path in seen if path not in wanted]
    return shown(wanted) or any(gone)


def seen_in(folder: Path) -> list[Path]:
    """The visible data files."""
    return [path for path in folder.glob(PATTERNS[0]) if not path.name.startswith(".")]


def named(path: str) -> str:
    """The visible name of a hidden file."""
    at = Path(path)
    return str(at.with_name(at.name.removeprefix(".").removesuffix(".hidden")))


def found(path: Path) -> Path:
    """The present location of a file: its visible or its hidden name."""
    return hidden(path) if not path.exists() and hidden(path).exists() else path


def _renamed(before: Path, after: Path) -> bool:
    """Rename; return whether this call did it, and not another process."""
    with suppress(FileNotFoundError):
        before.rename(after)
        return True
    return False
