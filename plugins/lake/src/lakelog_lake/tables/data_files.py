"""Data files: how they are written, what a commit needs to know of them, and their names.

Files are complete and synced when returned; the facts for a commit come from the writer, so that no
file is read again. File names contain a random number: a repeated task writes other files. Files of
a Delta table are in folders named by partition, from which some readers take its values; those of
an Iceberg table need none, and those of a Parquet table have all columns, whose types readers would
otherwise guess from the names (a topic ``001`` becomes 1). Half of the cost of landing is zstd,
mostly for bodies. Bodies that do not shrink, such as images or encrypted data, are therefore not
compressed.

Exactly the data files of a Parquet table's newest version are visible to other readers. A file is
written under a hidden name, which begins with ``.`` and does not end with ``.parquet``, so readers
of folders ignore it. The manifest is the commit. After the commit the new files get their visible
names, and files that a compaction removed from the table are hidden. After a kill in between, the
next process does this first. Each process reads the newest version again after it renamed files, so
that the last of several concurrent processes leaves the right names.

Small files, or manifests, are merged in groups, so that each is rewritten only a few times: ten or
more of one size, within a factor of ten, become one. So each is rewritten once per power of ten,
and at most nine of each size remain.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from lakelog_lake.errors import NotWritten, RowRefused
from lakelog_lake.tables import remote, settings, shape

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
    :ivar value_counts: number of values of each column, with nulls
    :ivar null_counts: number of nulls of each column outside of lists and maps; readers may treat a
        missing count as 0. Lists, maps and structs, which have no Parquet path, are there by name
    :ivar lower: smallest values of the columns in :data:`BOUNDED`; times are microseconds since
        1970
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
    files: remote.Files | None = None


def facts_of(
    metadata: Any, path: str, size_bytes: int, partition: Mapping[str, int | str]
) -> FileFacts:
    """Convert a ``pyarrow.parquet.FileMetaData``."""
    sizes, values, nulls = Counter[str](), Counter[str](), Counter[str]()
    lower: dict[str, Any] = {}
    upper: dict[str, Any] = {}
    starts = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        first = group.column(0)
        has_dictionary = first.has_dictionary_page
        starts.append(first.dictionary_page_offset if has_dictionary else first.data_page_offset)
        for chunk in map(group.column, range(group.num_columns)):
            name, known = chunk.path_in_schema, chunk.statistics if chunk.is_stats_set else None
            sizes[name] += chunk.total_compressed_size
            values[name] += chunk.num_values
            if known is not None and known.has_null_count:
                nulls[name] += known.null_count
            if known is not None and known.has_min_max:
                low, high = _plain(known.min_raw), _plain(known.max_raw)
                lower[name] = min(lower.get(name, low), low)
                upper[name] = max(upper.get(name, high), high)
    counts = (dict(sizes), dict(values), dict(nulls))
    rows = metadata.num_rows
    return FileFacts(path, size_bytes, rows, partition, *counts, lower, upper, tuple(starts))


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


_LEVEL: Final = 1
"""The zstd level; level 3 takes three times as long for almost no gain."""
_SAMPLE_BYTES: Final = 256 << 10
_SAMPLE_ROWS: Final = (16, 4096)
_TOO_FEW_BYTES: Final = 4096
_LEAST_GAIN: Final = 0.1


def levels(compression: settings.ParquetCompression) -> Sequence[int]:
    """The levels of a compression; none if it has no levels."""
    known = settings.ParquetCompression
    codec = known.ZSTD if compression is known.AUTO else compression
    if codec not in {known.ZSTD, known.GZIP}:
        return ()
    least = pa.Codec.minimum_compression_level(codec.value)
    return range(least, pa.Codec.maximum_compression_level(codec.value) + 1)


def parquet_writer(
    file: Any,
    schema: pa.Schema,
    compression: settings.ParquetCompression,
    first: pa.RecordBatch | None = None,
    level: int | None = None,
) -> Any:
    """A ``pyarrow.parquet.ParquetWriter``.

    :param first: rows of the file, from which ``auto`` decides; without them all is compressed
    :param level: one of :func:`levels`
    """
    codec, packed = compression.value, True
    if compression is settings.ParquetCompression.AUTO:
        codec = settings.ParquetCompression.ZSTD.value
        # A parser's column of this name may have another type; text always shrinks by a tenth.
        has_bytes = shape.BODY in schema.names and pa.types.is_binary(schema.field(shape.BODY).type)
        packed = first is None or not has_bytes or shrinks(first.column(shape.BODY))
    if level is None and codec == settings.ParquetCompression.ZSTD:
        level = _LEVEL
    leaves = [] if packed else [each for each in _leaves(schema) if each != shape.BODY]
    return parquet.ParquetWriter(
        file,
        schema,
        compression=codec if packed else {**dict.fromkeys(leaves, codec), shape.BODY: "none"},
        compression_level=level if packed else dict.fromkeys(leaves, level),
        use_dictionary=[name for name in shape.REPEATING if name.partition(".")[0] in schema.names],
        write_statistics=[name for name in BOUNDED if name in schema.names],
        store_schema=False,
    )


def shrinks(bodies: pa.Array) -> bool:
    """Whether zstd shrinks a sample of ``bodies`` by at least a tenth; True for few bytes."""
    if bodies.nbytes < _TOO_FEW_BYTES:
        return True
    least, most = _SAMPLE_ROWS
    rows = min(len(bodies), max(least, min(most, _SAMPLE_BYTES * len(bodies) // bodies.nbytes)))
    places = np.linspace(0, len(bodies) - 1, rows).astype(np.int64)
    longest = _SAMPLE_BYTES // least
    sample = b"".join((each or b"")[:longest] for each in bodies.take(places).to_pylist())
    packed = pa.Codec("zstd", compression_level=_LEVEL).compress(sample, asbytes=True)
    return len(packed) <= (1 - _LEAST_GAIN) * len(sample)


def _leaves(schema: pa.Schema) -> list[str]:
    """The leaf columns by Parquet path."""
    made = pa.BufferOutputStream()
    parquet.write_metadata(schema, made)
    found = parquet.ParquetFile(pa.BufferReader(made.getvalue())).schema
    return [found.column(number).path for number in range(len(found))]


@attrs.frozen
class FilePlacement:
    """The location and form of data files.

    :ivar folder: folder of the files
    :ivar layout: columns and partitions of each file, and whether its name is hidden
    :ivar store: the value of the column ``store``
    :ivar prefix: prefix of the files' names
    :ivar file_bytes: a file of this size is closed, and another one started
    :ivar compression: compression of the files; ``auto`` is decided for each file
    :ivar level: its level; ``None`` for the default
    """

    folder: remote.Folder
    layout: shape.Layout
    store: str
    prefix: str
    file_bytes: int
    compression: settings.ParquetCompression = settings.ParquetCompression.AUTO
    level: int | None = None


_PLACE: Final = ("topic", "queue_id", "queue_offset", "physical_offset")
HELD_BYTES: Final = 64 << 20
"""Most bytes of rows that :class:`PartitionFiles` holds in memory, beside those being added."""
_MOST_OPEN: Final = 64
"""Most files that it has open; a stream to an object store buffers up to 10 MB."""
_FREED: Final = 8
"""The part of the held rows that is written at once, as a fraction."""


@attrs.define(eq=False)
class _Partition:
    """The rows of one partition that are in no finished file.

    :ivar held: those in memory, which follow those in ``file``
    """

    number: int
    place: FilePlacement
    values: Mapping[str, int | str]
    held: list[pa.RecordBatch] = attrs.field(factory=list)
    held_bytes: int = 0
    file: _File | None = None


@attrs.define(eq=False)
class PartitionFiles:
    """Gathers rows by table and partition, and writes as few files as the limits allow.

    Rows stay in memory until there are ``held_bytes`` of them. Then the partitions with the most
    rows in memory write a row group each, sorted by queue, to files that stay open. So a partition
    has one file, also where its rows come in many parts; further ones follow only where a file is
    full, or where more than ``most_open`` are needed at a time: then the largest one is ended.

    A context manager, which removes all files at an error.
    """

    held_bytes: int = HELD_BYTES
    most_open: int = _MOST_OPEN
    _parts: dict[tuple[int | str, ...], _Partition] = attrs.field(factory=dict, init=False)
    _held_bytes: int = attrs.field(default=0, init=False)
    _open: list[_Partition] = attrs.field(factory=list, init=False)
    _done: dict[int, list[FileFacts]] = attrs.field(factory=dict, init=False)

    def __enter__(self) -> PartitionFiles:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            for part in self._open:
                if part.file is not None:
                    part.file.dropped()
            discard(file for files in self._done.values() for file in files)

    def add(
        self,
        number: int,
        place: FilePlacement,
        values: Mapping[str, int | str],
        batches: Iterable[pa.RecordBatch],
    ) -> None:
        """Add rows of one partition, sorted by topic, queue and offset, behind those that it has.

        :param number: identifies the table, whose placements differ in the prefix only

        Raises :class:`~lakelog_lake.errors.RowRefused` for a row that the table does not allow, and
        :class:`~lakelog_lake.errors.NotWritten`, which may concern other rows.
        """
        schema, constants = shape.file_schema(place.layout), _constants(place.store, values)
        part = self._parts.setdefault((number, *values.values()), _Partition(number, place, values))
        most = min(self.held_bytes, place.file_bytes)
        for batch in batches:
            for column, wrong in shape.refused(batch, place.layout) if batch.num_rows else ():
                first = batch.slice(int(np.argmax(wrong)), 1).select(_PLACE).to_pylist()[0]
                raise RowRefused(place.folder, column, first)
            if batch.num_rows:
                rows = _in_layout(batch, constants, schema)
                part.held.append(rows)
                part.held_bytes += rows.nbytes
                self._held_bytes += rows.nbytes
                if part.held_bytes >= most:
                    self._write(part)
                elif self._held_bytes > self.held_bytes:
                    self._make_room()

    def finished(self) -> Mapping[int, Sequence[FileFacts]]:
        """Write all rows, and sync the folders; return the files of each table."""
        for part in sorted(self._parts.values(), key=lambda part: part.file is None):
            if part.held:
                self._write(part)
            if part.file is not None:
                self._end(part, part.file)
        for folder in {part.place.folder for part in self._parts.values()}:
            with writing(folder):
                remote.sync(folder)
        return self._done

    def _make_room(self) -> None:
        least = self.held_bytes - self.held_bytes // _FREED
        for part in sorted(self._parts.values(), key=lambda part: -part.held_bytes):
            if self._held_bytes <= least:
                break
            self._write(part)

    def _write(self, part: _Partition) -> None:
        """Write the rows in memory as a row group."""
        rows, part.held = part.held, []
        self._held_bytes -= part.held_bytes
        part.held_bytes = 0
        with writing(part.place.folder):
            file = part.file or self._begun(part, rows[0])
            for group in _row_groups(rows):
                file.write(pa.Table.from_batches(group))
            is_full = file.size_bytes >= part.place.file_bytes
        if is_full:
            self._end(part, file)

    def _begun(self, part: _Partition, first: pa.RecordBatch) -> _File:
        if len(self._open) >= self.most_open:
            sizes = [(0 if each.file is None else each.file.size_bytes) for each in self._open]
            largest = self._open[int(np.argmax(sizes))]
            if largest.file is not None:
                self._end(largest, largest.file)
        part.file = _File.begun(part.place, part.values, first)
        self._open.append(part)
        return part.file

    def _end(self, part: _Partition, file: _File) -> None:
        with writing(part.place.folder):
            self._done.setdefault(part.number, []).append(file.ended(part.values))
        part.file = None
        self._open.remove(part)


_MOST_RUNS: Final = 2000


def _row_groups(batches: Sequence[pa.RecordBatch]) -> list[list[pa.RecordBatch]]:
    """One row group, sorted by topic and queue as each batch is; or one for each batch.

    To put many short runs of rows in order costs more than the row groups that it saves.
    """
    if len(batches) == 1:
        return [[*batches]]
    names = [name for name in (shape.TOPIC, "queue_id") if name in batches[0].schema.names]
    found: list[tuple[list[Any], pa.RecordBatch]] = []
    for batch in batches:
        changes = np.zeros(len(batch) - 1, np.bool_)
        for name in names:
            column = batch.column(name)
            changes |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
        ends = [*(np.flatnonzero(changes) + 1).tolist(), len(batch)]
        if len(found) + len(ends) > _MOST_RUNS:
            return [[each] for each in batches]
        for start, end in pairwise([0, *ends]):
            key = [batch.column(name)[start].as_py() for name in names]
            found.append((key, batch.slice(start, end - start)))
    return [[part for _, part in sorted(found, key=itemgetter(0))]]


@contextmanager
def writing(folder: remote.Folder) -> Iterator[None]:
    """Convert errors of the block to :class:`~lakelog_lake.errors.NotWritten`."""
    try:
        yield
    except OSError as error:
        raise NotWritten(folder, error.strerror or str(error)) from error


LONGEST_NAME: Final = 255
_UNNAMED: Final = "__HIVE_DEFAULT_PARTITION__"
"""Hive's name for the folder of a null."""


def partition_folder(folder: remote.Folder, values: Mapping[str, int | str]) -> remote.Folder:
    """The folder for files of a partition, as other writers and readers name it.

    A value whose folder would have too long a name has a null there; the table's log has the value.

    >>> partition_folder(Path("data"), {"topic": "%RETRY%a", "day": 20_000}).as_posix()
    'data/topic=%25RETRY%25a/day=2024-10-04'
    """
    for key, value in values.items():
        name = f"{key}={quote(shape.as_text(key, value), safe='')}"
        folder /= name if len(name) <= LONGEST_NAME else f"{key}={_UNNAMED}"
    return folder


@attrs.frozen
class _File:
    """A file being written.

    :ivar folders: its folder and those above it, if it is in one for its partition. They are synced
        with each file, as another process may have made them just now
    """

    path: remote.Folder
    raw: Any
    writer: Any
    folders: tuple[Path, ...] = ()
    nulls: Counter[str] = attrs.field(factory=Counter)

    def write(self, rows: pa.Table) -> None:
        """Write a row group."""
        self.writer.write_table(rows)
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            self.nulls.update(dict(_nulls(name, column)))

    @classmethod
    def begun(
        cls, place: FilePlacement, values: Mapping[str, int | str], first: pa.RecordBatch
    ) -> _File:
        folder = place.folder
        if place.layout.has_folders:
            folder = partition_folder(folder, values)
        folders = _between(folder, place.folder)
        for each in reversed(folders[:-1]):
            each.mkdir(exist_ok=True)
        named = folder / f"{place.prefix}-{uuid4().hex}.parquet"
        path = hidden(named) if isinstance(named, Path) and place.layout.is_hidden else named
        raw = path.open("xb") if isinstance(path, Path) else path.create()
        writer = parquet_writer(raw, first.schema, place.compression, first, place.level)
        return cls(path, raw, writer, folders)

    @property
    def size_bytes(self) -> int:
        return int(self.raw.tell())

    def dropped(self) -> None:
        """Remove an unfinished file; also closes a stream to an object store."""
        with suppress(OSError):  # closing repeats the error of a failed write
            self.writer.close()
        with suppress(OSError):
            self.raw.close()
        with suppress(OSError):
            if isinstance(self.path, Path):
                self.path.unlink(missing_ok=True)
            else:
                self.path.files.remove(self.path.uri)

    def ended(self, values: Mapping[str, int | str]) -> FileFacts:
        with self.raw:
            self.writer.close()
            self.raw.flush()
            if isinstance(self.path, Path):
                os.fsync(self.raw.fileno())
                for each in self.folders:
                    remote.sync(each)
            size = self.size_bytes
        facts = facts_of(self.writer.writer.metadata, str(self.path), size, values)
        return attrs.evolve(
            facts,
            value_counts={**dict.fromkeys(self.nulls, facts.rows), **facts.value_counts},
            null_counts=dict(self.nulls),
            files=self.path.files if isinstance(self.path, remote.Remote) else None,
        )


def _between(folder: remote.Folder, root: remote.Folder) -> tuple[Path, ...]:
    """A local folder below ``root``, those above it, and ``root``; nothing if it is ``root``."""
    if folder == root or not isinstance(folder, Path) or not isinstance(root, Path):
        return ()
    return (folder, *(root / each for each in folder.relative_to(root).parents))


def _nulls(name: str, column: pa.ChunkedArray) -> Iterator[tuple[str, int]]:
    """The number of nulls of a column, and of each one in a struct."""
    yield name, column.null_count
    if pa.types.is_struct(column.type):
        inside = column.flatten()  # null where the struct is
        for field, inner in zip(column.type, inside, strict=True):
            yield from _nulls(f"{name}.{field.name}", inner)


def _constants(store: str, values: Mapping[str, int | str]) -> Mapping[str, Any]:

    known = {shape.STORE: pa.scalar(store)}
    if shape.DAY in values:
        known[shape.DAY] = pa.scalar(values[shape.DAY], pa.date32())
    if shape.HOUR in values:
        known[shape.HOUR] = pa.scalar(shape.as_text(shape.HOUR, values[shape.HOUR]))
    return known


def _in_layout(
    batch: pa.RecordBatch, constants: Mapping[str, Any], schema: pa.Schema
) -> pa.RecordBatch:
    """``batch`` in the columns of a file; missing columns are null."""
    given = set(batch.schema.names)

    def column(field: pa.Field) -> pa.Array:
        if field.name in given:
            return batch.column(field.name).cast(field.type)
        if field.name in constants:
            return pa.repeat(constants[field.name], batch.num_rows)
        return pa.nulls(batch.num_rows, field.type)

    return pa.RecordBatch.from_arrays([column(each) for each in schema], schema=schema)


FANOUT: Final = 10
"""Number of items of one size that are merged."""


@attrs.frozen
class Weight:
    """The size of an item.

    :ivar count: the number whose power of ten is the size class
    :ivar bytes: bytes to rewrite in a merge
    """

    count: int
    bytes: int


def mergeable(things: Sequence[Weight], most_bytes: int) -> list[list[int]]:
    """Return groups of indices of items to merge.

    :param most_bytes: most bytes of one group

    >>> mergeable([Weight(1, 99)] * 11 + [Weight(10, 99)] * 8, 10_000)
    [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]]
    """
    tiers: dict[int, list[list[int]]] = defaultdict(list)
    for place, each in enumerate(things):
        tiers[_tier(each.count)].append([place])
    tier = 0
    while tier <= max(tiers, default=-1):
        together = sorted(place for group in tiers[tier] for place in group)
        is_small = sum(things[place].bytes for place in together) <= most_bytes
        if len(tiers[tier]) >= FANOUT and is_small:
            del tiers[tier]
            tiers[_tier(sum(things[place].count for place in together))].append(together)
        tier += 1
    return [group for groups in tiers.values() for group in groups if len(group) > 1]


def _tier(count: int) -> int:
    return len(str(count)) - 1  # as FANOUT is ten
