"""The files of a job that writes: staged rows, manifest and journal; and the errors of writing.

Each partition has one Arrow IPC file, which is written, synced, and then renamed to its final
name; each of its record batches is one batch of an append. ``manifest.json`` lists the files to
append, and is written once. ``journal.json`` has the progress, and is written before each append. A
job without a manifest has appended no row. A job with ``done`` in its journal has appended all.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, repeat
from pathlib import Path
from typing import IO, Any, Final, cast
from uuid import uuid4

import attrs
import pyarrow as pa

from lakelog.errors import LakelogError
from lakelog.files.filesystem import File, FileSystem, read_file, write_file
from lakelog.format import checksum, layout
from lakelog.message import Message
from lakelog_lake.reading.options import refused

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
_JOB: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
JOURNAL: Final = "journal.json"
MANIFEST: Final = "manifest.json"
VERSION: Final = 1
_SHOWN: Final = 80
_DAY_SECONDS: Final = 24 * 3600
DONE_DAYS: Final = 30
"""Days to keep the journal of a finished job; if a user gave its id, it is kept for ever."""
DEAD_DAYS: Final = 7
"""Days to keep the staged rows of a job without a manifest."""
LAST_FILE: Final = "last_batch"


def checked_job(job: str) -> str:
    """Return ``job`` if it is a valid folder name.

    Raises :class:`~lakelog.errors.SettingsError`.
    """
    if not _JOB.fullmatch(job):
        raise refused(
            "job_id", f"{job!r} cannot name a folder; give up to 100 letters, digits, '_-.'"
        )
    return job


def folder_of(store: Path, job: str) -> Path:
    """The folder of a job's files."""
    return store / layout.OWN_DIR / STAGING_DIR / job


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
        counts = []
        with pa.ipc.new_file(cast("IO[bytes]", sink), _SCHEMA) as writer:
            for messages in chain((first,), rest):
                writer.write_batch(_table(messages))
                counts.append(len(messages))
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
        self.written = self.crc = 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self.file.write_at(self.written, view)
        self.crc = checksum.crc32(view, self.crc)
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
    crc = position = 0
    try:
        while data := file.read_at(position, _CHUNK):
            crc = checksum.crc32(data, crc)
            position += len(data)
    finally:
        file.close()
    found = position, crc
    if found != (part.bytes, part.crc):
        expected = f"{part.bytes} bytes with CRC {part.crc:08x}"
        raise StagingLost(path, expected, f"{found[0]} bytes with CRC {found[1]:08x}")


@contextmanager
def opened(folder: Path, part: StagedPart) -> Iterator[pa.ipc.RecordBatchFileReader]:
    """Open a verified file; batches are read one at a time."""
    with pa.OSFile(str(folder / str(part.file))) as source, pa.ipc.open_file(source) as reader:
        yield reader


def messages_of(staged: pa.ipc.RecordBatchFileReader, number: int) -> list[Message]:
    """The messages of one batch of an opened file."""
    table = staged.get_batch(number)
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


def remove_staged(files: FileSystem, folder: Path, run: str = "") -> None:
    """Remove the files staged by one run of a job, or by all runs; other files stay.

    The folder goes as well if it is then empty.
    """
    ends, mark = (SUFFIX, SUFFIX + _UNFINISHED), f"-{run}-" if run else ""
    names = (name for name, _ in files.list(folder))
    remove(files, folder, [each for each in names if each.endswith(ends) and mark in each])


def remove(files: FileSystem, folder: Path, names: Iterable[str]) -> None:
    """Remove files of a job, if they exist."""
    for name in names:
        with suppress(FileNotFoundError):
            files.unlink(folder / name)
    if folder.is_dir() and not any(folder.iterdir()):
        with suppress(OSError):  # a late task may add a file
            files.remove_dir(folder)


@attrs.frozen
class Journal:
    """The progress of a job.

    :ivar part: index of the next part in the manifest
    :ivar batch: index of the next batch in that part
    :ivar left: indices of the messages of that batch to append; ``None`` for all
    :ivar offset: physical offset at which an append of these messages may have begun; ``None`` if
        none has begun. Some of the messages may be in the log from there on
    :ivar rows: number of rows in the log, without an append that may have begun
    :ivar done: whether all rows are in the log
    :ivar named: whether a user gave the job its id, and so may use it again at any time
    """

    part: int = 0
    batch: int = 0
    left: tuple[int, ...] | None = None
    offset: int | None = None
    rows: int = 0
    done: bool = False
    named: bool = False


def read_journal(files: FileSystem, folder: Path) -> Journal | None:
    """Read the journal of a job; ``None`` without one. Raises :class:`.BadJournal`."""
    found = _read(files, folder / JOURNAL)
    if found is None:
        return None
    try:
        left = found.pop("left")
        return Journal(left=None if left is None else tuple(left), **found)
    except (KeyError, TypeError):
        raise BadJournal(folder / JOURNAL, _short(found)) from None


def write_journal(files: FileSystem, folder: Path, journal: Journal) -> None:
    """Write the journal durably; raises ``OSError``."""
    _write_json(files, folder / JOURNAL, attrs.asdict(journal))


def read_manifest(files: FileSystem, folder: Path) -> list[StagedPart] | None:
    """Read the parts to append; ``None`` without a manifest. Raises :class:`.BadJournal`."""
    found = _read(files, folder / MANIFEST)
    if found is None:
        return None
    try:
        return [StagedPart(**each) for each in found["parts"]]
    except (KeyError, TypeError):
        raise BadJournal(folder / MANIFEST, _short(found)) from None


def write_manifest(files: FileSystem, folder: Path, parts: Sequence[StagedPart]) -> None:
    """Write the list of parts to append durably; raises ``OSError``."""
    _write_json(files, folder / MANIFEST, {"parts": [attrs.asdict(each) for each in parts]})


def _read(files: FileSystem, path: Path) -> dict[str, Any] | None:
    content = read_file(files, path)
    if content is None:
        return None
    try:
        found = json.loads(content)
    except ValueError:
        raise BadJournal(path, repr(content[:_SHOWN])) from None
    if not isinstance(found, dict) or found.pop("version", None) != VERSION:
        raise BadJournal(path, _short(found))
    return found


def _short(found: object) -> str:
    return str(found)[:_SHOWN]


def _write_json(files: FileSystem, path: Path, content: dict[str, Any]) -> None:
    text = json.dumps({"version": VERSION, **content})
    write_file(files, path, text.encode() + b"\n")


def read_last_batch(files: FileSystem, folder: Path) -> int:
    """The number of a query's last batch in the log, from its folder; -1 before the first one."""
    content = read_file(files, folder / LAST_FILE)
    if content is None:
        return -1
    try:
        return int(content)
    except ValueError:
        raise BadJournal(folder / LAST_FILE, repr(content[:80])) from None


def write_last_batch(files: FileSystem, folder: Path, number: int) -> None:
    """Record that batch ``number`` of a query and all before it are in the log."""
    files.make_dir(folder)
    write_file(files, folder / LAST_FILE, b"%d\n" % number)


def prune(files: FileSystem, store: Path, now: float | None = None) -> None:
    """Remove journals of finished jobs and staged rows of abandoned jobs, once they are old.

    The file with the last batch of a streaming query stays, as the query may be restarted at any
    time. The caller must hold the store, see :func:`.handover.handing_over`.

    :param now: the present time, in seconds since 1970; by default that of the system
    """
    days = (time.time() if now is None else now) / _DAY_SECONDS
    jobs = folder_of(store, "any").parent
    for folder in [*jobs.iterdir()] if jobs.is_dir() else ():
        with suppress(OSError, LakelogError):  # the next call tries again
            _prune(files, folder, days)


def _prune(files: FileSystem, folder: Path, days: float) -> None:
    age = days - folder.stat().st_mtime / _DAY_SECONDS  # each new name updates the folder's time
    if age < min(DEAD_DAYS, DONE_DAYS) or not folder.is_dir():
        return
    names = [name for name, _ in files.list(folder)]
    journal = read_journal(files, folder)
    if journal is None:
        is_old = MANIFEST not in names
    else:
        is_old = journal.done and not journal.named and age > DONE_DAYS
    if is_old:
        remove(files, folder, [name for name in names if name != LAST_FILE])


class NoSuchStore(LakelogError):
    """Rows were to be appended to a store that does not exist."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path}: there is no store; give option create=true to create one")


class BadRow(LakelogError):
    """A row that is not a valid message.

    :ivar partition: the partition of the data frame; :ivar row: its index there, from 0
    """

    def __init__(self, partition: int, row: int, why: str) -> None:
        super().__init__(f"row {row} of partition {partition}: {why}")
        self.partition = partition
        self.row = row


class StagingLost(LakelogError):
    """A staged file is missing or changed."""

    def __init__(self, path: Path, expected: object, found: object) -> None:
        super().__init__(
            f"{path}: expected {expected}, found {found}; does the folder of the store have the "
            "same path on the driver and on every executor?"
        )


class BadJournal(LakelogError):
    """The manifest or journal of a job cannot be read."""

    def __init__(self, path: Path, found: str) -> None:
        super().__init__(f"{path}: expected a manifest or journal of a job, found {found}")


class LogLost(LakelogError):
    """The log was cut or restored, and no longer has the offset at which a job began to append."""

    def __init__(self, job: str, offset: int, first: int, end: int) -> None:
        super().__init__(
            f"job {job} began to append at offset {offset}, but the log has {first} to {end}: "
            "it was cut or restored, so it is not known which rows are in it; to append all "
            "rows again, use another job_id"
        )


class HandoverStopped(LakelogError):
    """A job was stopped with some of its rows in the log, and others missing.

    :ivar job: its id
    """

    def __init__(self, path: Path, job: str, cause: BaseException) -> None:
        super().__init__(
            f"{path}: job {job} was stopped while its rows were appended: {cause}; to append the "
            f"missing rows only, call lakelog_spark.finish_write({str(path)!r}, "
            f"{job!r}), or run the same write again with option job_id={job}"
        )
        self.job = job
