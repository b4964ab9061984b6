"""Staged rows: one file per partition, written, synced, and then renamed to its final name.

The file is an Arrow IPC file; each of its record batches is one batch of an append.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, repeat
from pathlib import Path
from typing import IO, Any, Final, cast
from uuid import uuid4

import attrs
import pyarrow as pa

from lakelog.files.filesystem import File, FileSystem
from lakelog.format.checksum import crc32
from lakelog.format.layout import OWN_DIR
from lakelog.message import Message
from lakelog_spark.writing.errors import StagingLost

STAGING_DIR: Final = "staging"
SUFFIX: Final = ".arrow"
_UNFINISHED: Final = ".tmp"
_CHUNK: Final = 1 << 20
_TYPES: Final = {
    "topic": pa.string(),
    "body": pa.binary(),
    "properties": pa.binary(),
    "queue_id": pa.int32(),
    "flag": pa.int32(),
    "sys_flag": pa.int32(),
    "born_timestamp_ms": pa.int64(),
    "born_host": pa.string(),
    "reconsume_times": pa.int32(),
}
"""Fields of :class:`~lakelog.Message`."""
_SCHEMA: Final = pa.schema(list(_TYPES.items()))
_GIVEN: Final = 1 + [each.name for each in attrs.fields(Message)].index("reconsume_times")
"""Number of leading fields of a message that are passed; those without a column are ``None``."""


@attrs.frozen
class StagedPart:
    """The staged rows of one partition.

    :ivar partition: number of the partition
    :ivar file: name of the file in the folder of the job; ``None`` if there are no rows
    :ivar rows: number of rows
    :ivar batches: number of batches
    :ivar bytes: length of the file
    :ivar crc: CRC-32 of the file
    """

    partition: int
    file: str | None
    rows: int
    batches: int
    bytes: int
    crc: int


def folder_of(store: Path, job: str) -> Path:
    """The folder of a job's files."""
    return store / OWN_DIR / STAGING_DIR / job


def stage(
    files: FileSystem, folder: Path, partition: int, run: str, batches: Iterable[list[Message]]
) -> StagedPart:
    """Write the rows of one partition; durable on return.

    :param run: id of the run of the job, whose files an abort removes
    """
    name = f"{partition:05d}-{run}-{uuid4().hex[:8]}{SUFFIX}"
    rest = iter(batches)
    first = next(rest, None)
    if first is None:
        return StagedPart(partition, None, 0, 0, 0, 0)
    files.make_dir(folder)
    unfinished = folder / (name + _UNFINISHED)
    sink = _Sink(files.open(unfinished, write=True, create=True))
    try:
        counts = _write(sink, chain((first,), rest))
        sink.file.sync()
    except BaseException:
        with suppress(OSError):
            files.unlink(unfinished)
        raise
    finally:
        sink.file.close()
    files.rename(unfinished, folder / name)
    files.sync_dir(folder)
    return StagedPart(partition, name, sum(counts), len(counts), sink.written, sink.crc)


def _write(sink: _Sink, batches: Iterable[list[Message]]) -> list[int]:
    """Write batches; return the number of messages in each."""
    counts = []
    with pa.ipc.new_file(cast("IO[bytes]", sink), _SCHEMA) as writer:
        for messages in batches:
            writer.write_batch(_table(messages))
            counts.append(len(messages))
    return counts


def _table(messages: list[Message]) -> pa.RecordBatch:
    columns = [
        pa.array([getattr(each, name) for each in messages], kind) for name, kind in _TYPES.items()
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


class _Sink:
    """A file that is written from its start, with its length and CRC-32."""

    closed = False

    def __init__(self, file: File) -> None:
        self.file = file
        self.written = 0
        self.crc = 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self.file.write_at(self.written, view)
        self.crc = crc32(view, self.crc)
        self.written += len(view)
        return len(view)

    def tell(self) -> int:
        return self.written

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        """Do nothing: the owner syncs."""

    def close(self) -> None:
        """Do nothing: the owner closes."""


def verify(files: FileSystem, folder: Path, part: StagedPart) -> None:
    """Raise :class:`.StagingLost` if a staged file is missing or changed."""
    if part.file is None:
        return
    path = folder / part.file
    try:
        file = files.open(path)
    except FileNotFoundError:
        raise StagingLost(path, f"{part.rows} staged rows", "no such file") from None
    try:
        found = file.size(), _crc_of(file)
    finally:
        file.close()
    if found != (part.bytes, part.crc):
        expected = f"{part.bytes} bytes with CRC {part.crc:08x}"
        raise StagingLost(path, expected, f"{found[0]} bytes with CRC {found[1]:08x}")


def _crc_of(file: File) -> int:
    crc = position = 0
    while data := file.read_at(position, _CHUNK):
        crc = crc32(data, crc)
        position += len(data)
    return crc


@contextmanager
def opened(folder: Path, part: StagedPart) -> Iterator[StagedBatches]:
    """Open a verified file; batches are read one at a time."""
    with pa.OSFile(str(folder / str(part.file))) as source, pa.ipc.open_file(source) as reader:
        yield StagedBatches(reader)


@attrs.frozen
class StagedBatches:
    """Batches of messages by index."""

    _reader: pa.ipc.RecordBatchFileReader

    def messages(self, number: int) -> list[Message]:
        """The messages of one batch."""
        table = self._reader.get_batch(number)
        columns = {name: table.column(name).to_pylist() for name in _TYPES}
        each = [columns.get(field.name, repeat(None)) for field in attrs.fields(Message)[:_GIVEN]]
        return list(map(Message, *each))


def adopt(files: FileSystem, source: Path, folder: Path, parts: Iterable[StagedPart]) -> None:
    """Move staged files to the folder of a job; skip files that are already there."""
    files.make_dir(folder)
    for name in (part.file for part in parts if part.file is not None):
        if not (folder / name).exists():
            files.rename(source / name, folder / name)
    files.sync_dir(folder)


def remove_run(files: FileSystem, folder: Path, run: str) -> None:
    """Remove the files staged by one run of a job, and the folder if it is then empty."""
    remove(files, folder, [name for name, _ in files.list(folder) if f"-{run}-" in name])


def remove_staged(files: FileSystem, folder: Path) -> None:
    """Remove all staged files, of any run; other files stay."""
    ends = (SUFFIX, SUFFIX + _UNFINISHED)
    remove(files, folder, [name for name, _ in files.list(folder) if name.endswith(ends)])


def remove(files: FileSystem, folder: Path, names: Iterable[str]) -> None:
    """Remove files of a job, if they exist."""
    for name in names:
        with suppress(FileNotFoundError):
            files.unlink(folder / name)
    if folder.is_dir() and not any(folder.iterdir()):
        with suppress(OSError):  # a late task may add a file
            files.remove_dir(folder)
