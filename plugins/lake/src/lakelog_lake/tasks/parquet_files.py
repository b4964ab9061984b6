"""Writes the rows of one partition to Parquet files; each is complete and synced when returned.

File names contain a random number and no topic: a repeated task writes other files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import attrs

from lakelog_lake.errors import NotWritten
from lakelog_lake.tables.file_facts import FileFacts, facts_of, hidden
from lakelog_lake.tables.parquet_writer import ParquetCompression, parquet_writer
from lakelog_lake.tables.partitions import DAY, HOUR, STORE, as_text
from lakelog_lake.tables.remote import Folder, Remote

if TYPE_CHECKING:
    import pyarrow as pa


@attrs.frozen
class FilePlacement:
    """The location and form of data files.

    :ivar folder: folder of the files
    :ivar schema: schema of each file
    :ivar store: the value of the column ``store``
    :ivar prefix: prefix of the files' names
    :ivar file_bytes: a file of this size is closed, and another one started
    :ivar is_hidden: whether names are hidden
    :ivar compression: compression of the files; ``auto`` is decided for each file
    """

    folder: Folder
    schema: pa.Schema
    store: str
    prefix: str
    file_bytes: int
    is_hidden: bool = False
    compression: ParquetCompression = ParquetCompression.AUTO


def write_files(
    place: FilePlacement, values: Mapping[str, int | str], batches: Iterable[pa.RecordBatch]
) -> Iterator[FileFacts]:
    """Write ``batches``, all of whose rows belong to the partition ``values``."""
    constants = _constants(place.store, values)
    file: _File | None = None
    try:
        for batch in batches:
            if batch.num_rows == 0:
                continue
            with writing(place.folder):
                rows = _in_layout(batch, constants, place.schema)
                file = file or _File.begun(place, rows)
                file.writer.write_batch(rows)
                if file.size_bytes < place.file_bytes:
                    continue
                done, file = file.ended(values), None
            yield done
        if file is not None:
            with writing(place.folder):
                done, file = file.ended(values), None
            yield done
    finally:
        if file is not None:
            file.dropped()


@contextmanager
def writing(folder: Folder) -> Iterator[None]:
    """Convert errors of the block to :class:`~lakelog_lake.errors.NotWritten`."""
    try:
        yield
    except OSError as error:
        raise NotWritten(folder, error.strerror or str(error)) from error


@attrs.frozen
class _File:
    path: Folder
    raw: Any
    writer: Any

    @classmethod
    def begun(cls, place: FilePlacement, first: pa.RecordBatch) -> _File:
        named = place.folder / f"{place.prefix}-{uuid4().hex}.parquet"
        path = hidden(named) if isinstance(named, Path) and place.is_hidden else named
        raw = path.open("xb") if isinstance(path, Path) else path.create()
        return cls(path, raw, parquet_writer(raw, place.schema, place.compression, first))

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
            size = self.size_bytes
        facts = facts_of(self.writer.writer.metadata, str(self.path), size, values)
        if isinstance(self.path, Remote):
            return attrs.evolve(facts, files=self.path.files)
        return facts


def _constants(store: str, values: Mapping[str, int | str]) -> Mapping[str, Any]:
    import pyarrow as pa

    known = {STORE: pa.scalar(store)}
    if DAY in values:
        known[DAY] = pa.scalar(values[DAY], pa.date32())
    if HOUR in values:
        known[HOUR] = pa.scalar(as_text(HOUR, values[HOUR]))
    return known


def _in_layout(
    batch: pa.RecordBatch, constants: Mapping[str, Any], schema: pa.Schema
) -> pa.RecordBatch:
    """``batch`` in the columns of a file; missing columns are null."""
    import pyarrow as pa

    given = set(batch.schema.names)

    def column(field: pa.Field) -> pa.Array:
        if field.name in given:
            return batch.column(field.name).cast(field.type)
        if field.name in constants:
            return pa.repeat(constants[field.name], batch.num_rows)
        return pa.nulls(batch.num_rows, field.type)

    return pa.RecordBatch.from_arrays([column(each) for each in schema], schema=schema)
