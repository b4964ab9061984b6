"""``df.write.format("lakelog")``, batch and streaming: tasks stage rows, the driver appends.

Spark creates a writer in one process, and sends it to the processes that write, commit and abort.

A micro-batch is a job; its id consists of the query's id and the number of the batch. Spark repeats
a batch whose commit it did not record. The file with the number of the last appended batch shows
whether a batch was appended. Unknown options are refused.

The columns of rows are checked at planning, and their values completely in tasks. So the append
cannot refuse them.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import attrs
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.types import StructType

from lakelog import builtin, errors
from lakelog.errors import SettingsError, UnknownSetting
from lakelog.files.filesystem import RealFileSystem
from lakelog.format import encoder, layout
from lakelog.format.properties import KEY_SEPARATOR, KEYS, TAGS, UNIQUE_KEY, join_keys
from lakelog.message import Message
from lakelog_lake.reading.options import (
    PATH,
    SOURCE,
    ReadOptions,
    nearest,
    refused,
    switch,
    without_properties,
)
from lakelog_spark.writing import staging
from lakelog_spark.writing.handover import Handover, handing_over, open_to_append

if TYPE_CHECKING:
    from lakelog.hooks.kinds import StoreSettings

_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
_TEXT: Final = ("string",)
ACCEPTED: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": _TEXT,
    "body": ("binary", "string"),
    "queue_id": _WHOLE,
    "tags": _TEXT,
    "keys": ("array<string>", "string"),
    "properties": ("map<string,string>",),
    "unique_key": _TEXT,
    "born_timestamp": ("timestamp", "timestamp_ntz", "bigint"),
    "born_host": _TEXT,
    "flag": _WHOLE,
    "sys_flag": _WHOLE,
    "reconsume_times": _WHOLE,
}
"""The Spark types that each column may have."""
REQUIRED: Final = ("topic", "body")
BY_STORE: Final = (
    "store", "queue_offset", "physical_offset", "store_size", "message_id", "body_crc",
    "transaction_type", "store_timestamp", "store_host", "prepared_transaction_offset",
)  # fmt: skip  # a list of names
"""Columns of a read that only the store can fill, or that follow from other columns."""

_PACKED: Final = layout.COMPRESSED | layout.COMPRESSION_MASK
_BATCH: Final = layout.INNER_BATCH | layout.NEED_UNWRAP
_ROWS: Final = 8192
_BYTES: Final = 4 << 20
_OVERHEAD: Final = 160
"""An upper estimate of the bytes of a record besides topic, properties and body."""


class PartitionRows:
    """The rows of one partition as batches of messages, each to be appended at once."""

    def __init__(self, core: StoreSettings, partition: int, *, decompress: bool) -> None:
        """Prepare for a store with the settings ``core``."""
        self._queues = core.queues_per_topic
        # The size of a batch in the log is a fraction of a segment, so that it fits in one.
        self._batch_bytes = min(_BYTES, core.segment_size_bytes // 4)
        self._partition = partition
        self._cleared = ~_PACKED if decompress else ~0
        self._encoder = builtin.RocketmqAppendCallback.of(core).encoder
        self._turns: dict[str, int] = {}
        self._row = 0

    def batches(self, tables: Iterable[pa.RecordBatch]) -> Iterator[list[Message]]:
        """Yield batches in order; raises :class:`.BadRow`."""
        held: list[Message] = []
        size = 0
        for message in self._messages(tables):
            length = _length(message)
            if held and (size + length > self._batch_bytes or len(held) == _ROWS):
                yield self._checked(held)
                held, size = [], 0
            held.append(message)
            size += length
        if held:
            yield self._checked(held)

    def _checked(self, messages: list[Message]) -> list[Message]:
        """Check the messages by encoding them; raises :class:`.BadRow`."""
        try:
            self._encoder.encode(messages)
        except errors.IllegalMessage:
            for at, each in enumerate(messages):
                try:
                    self._encoder.encode_one(each)
                except errors.IllegalMessage as error:
                    raise staging.BadRow(self._partition, self._row + at, str(error)) from None
            raise
        self._row += len(messages)
        return messages

    def _messages(self, tables: Iterable[pa.RecordBatch]) -> Iterator[Message]:
        number = 0
        for table in tables:
            for row in _dicts(table):
                try:
                    yield self._message(row)
                except ValueError as error:
                    raise staging.BadRow(self._partition, number, str(error)) from None
                number += 1

    def _message(self, row: Mapping[str, Any]) -> Message:
        topic, body = row["topic"], row["body"]
        if topic is None or body is None:
            raise ValueError(f"{'topic' if topic is None else 'body'} is null")
        queue_id, born_ms = row.get("queue_id"), row.get("born_timestamp")
        return Message(
            topic,
            body,
            properties=_properties(row),
            queue_id=self._queue(topic) if queue_id is None else queue_id,
            flag=_int("flag", row),
            sys_flag=self._sys_flag(_int("sys_flag", row)),
            born_timestamp_ms=time.time_ns() // 1_000_000 if born_ms is None else born_ms,
            born_host=row.get("born_host"),
            reconsume_times=_int("reconsume_times", row),
        )

    def _queue(self, topic: str) -> int:
        """Assign queues round robin; partitions start at different queues."""
        turn = self._turns[topic] = self._turns.get(topic, self._partition - 1) + 1
        return turn % self._queues

    def _sys_flag(self, given: int) -> int:
        if given & layout.PREPARED:
            raise ValueError(
                f"sys_flag {given} is of a prepared or rolled-back message, which only the store "
                "of its transaction can hold; filter by transaction_type IN ('NONE', 'COMMIT')"
            )
        if given & _BATCH:
            raise ValueError(f"sys_flag {given} is of an inner batch, which cannot be written")
        return given & self._cleared


def check(fields: Sequence[tuple[str, str]], *, ignore_position_columns: bool) -> None:
    """Check the columns of rows.

    :param fields: names and Spark's types

    Raises :class:`~lakelog.errors.SettingsError` with all errors of one kind.
    """
    names = [name for name, _ in fields]
    _refuse("a column occurs twice", [name for name, n in Counter(names).items() if n > 1])
    _refuse(
        "unknown columns",
        [_hinted(name) for name in names if name not in ACCEPTED and name not in BY_STORE],
        f"; leave it out, or make it one of {', '.join(ACCEPTED)}",
    )
    _refuse("a column is missing", [name for name in REQUIRED if name not in names])
    if not ignore_position_columns:
        _refuse(
            "these columns are for the store to fill",
            [name for name in names if name in BY_STORE],
            "; to copy what was read from a store, give option ignore_position_columns=true: "
            "messages get new places and store times",
        )
    wrong = [
        f"{name} is {kind} and must be {' or '.join(ACCEPTED[name])}"
        for name, kind in fields
        if name in ACCEPTED and kind not in ACCEPTED[name] and kind != "void"
    ]
    _refuse("a column has the wrong type", wrong)
    void = [name for name, kind in fields if kind == "void" and name in REQUIRED]
    _refuse("a column has no values at all", void)


def _hinted(name: str) -> str:
    close = get_close_matches(name.lower(), ACCEPTED, 1)
    return f"{name} (did you mean {close[0]}?)" if close else name


def _refuse(what: str, found: Sequence[str], hint: str = "") -> None:
    if found:
        raise errors.SettingsError(f"{what}: {', '.join(found)}{hint}", key="columns")


def _int(name: str, row: Mapping[str, Any]) -> int:
    value = row.get(name)
    if value is None:
        return 0
    if not -(1 << 31) <= value < 1 << 31:
        raise ValueError(f"{name} {value} does not fit into 32 bits")
    return int(value)


def _length(message: Message) -> int:
    properties: Any = message.properties or b""
    return len(message.body) + len(properties) + 3 * len(message.topic) + _OVERHEAD


def _properties(row: Mapping[str, Any]) -> bytes | None:
    """The property string: the properties of the map in its order, then those of other columns."""
    more, unique = row.get("properties"), row.get("unique_key")
    tags, keys = row.get("tags"), row.get("keys")
    if not more and unique is None:  # the common case, and much cheaper
        several = _joined(keys).split(KEY_SEPARATOR) if keys else None
        return encoder.message_properties(tags, several, None) or None
    named = dict(more or ())
    if tags is not None:
        named[TAGS] = tags
    if keys and _pieces(named.get(KEYS)) != _pieces(_joined(keys)):
        named[KEYS] = _joined(keys)
    if unique is not None:
        named[UNIQUE_KEY] = unique
    if None in named.values():
        raise ValueError(f"property {next(k for k, v in named.items() if v is None)!r} is null")
    return encoder.message_properties(None, None, named) or None


def _joined(keys: str | Sequence[str | None]) -> str:
    if isinstance(keys, str):
        return keys
    for each in keys:
        if not each or " " in each:
            raise ValueError(f"key {each!r} is null, empty or has a space, which separates keys")
    return join_keys(keys)  # type: ignore[arg-type]  # the loop raises for None


def _pieces(keys: str | None) -> list[str]:
    return [each for each in (keys or "").split(" ") if each]


def _dicts(table: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    names = [name for name in table.schema.names if name in ACCEPTED]
    columns = [_plain(name, table.column(name)) for name in names]
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _plain(name: str, column: pa.Array) -> list[Any]:
    if name == "body" and not pa.types.is_null(column.type):
        column = column.cast(pa.binary())
    if name == "born_timestamp" and pa.types.is_timestamp(column.type):
        micros = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
        return [None if each is None else each // 1000 for each in micros.to_pylist()]
    found: list[Any] = column.to_pylist()
    return found


CHECKPOINT: Final = "checkpointlocation"
"""An option of the query that Spark also passes to a sink; upper and lower case are equal."""
DEFAULTS: Final[dict[str, str | None]] = {
    PATH: None,
    "create": "false",
    "settings": None,
    "job_id": None,
    "ignore_position_columns": "false",
    "decompress": "true",
}
"""Every option with its default."""

_log = logging.getLogger(__name__)

Messages: TypeAlias = "Sequence[datasource.WriterCommitMessage | None]"
"""The answers of the tasks; ``None`` for one without an answer."""


@attrs.frozen
class StagedMessage(datasource.WriterCommitMessage):
    """The answer of a task to the driver; ``part`` is ``None`` if the job was staged before."""

    part: staging.StagedPart | None


class _Stager:
    """What both writers do: check the columns, and stage the rows of a partition in its task."""

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        fields = [(each.name, each.dataType.simpleString()) for each in schema.fields]
        check(fields, ignore_position_columns=options.ignore_position_columns)
        self._options = options
        self._run = uuid4().hex
        with open_to_append(options.path, options.settings, create=options.create) as store:
            self._core = store.settings.core

    def _stage(self, iterator: Iterator[pa.RecordBatch], folder: Path) -> StagedMessage:
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        rows = PartitionRows(self._core, partition, decompress=self._options.decompress)
        files, batches = RealFileSystem.of_store(self._options.path), rows.batches(iterator)
        return StagedMessage(staging.stage(files, folder, partition, self._run, batches))

    def _parts(self, messages: Messages, folder: Path) -> list[staging.StagedPart]:
        """The files of all partitions; raises :class:`.StagingLost` if one is missing."""
        parts = _staged(messages)
        if len({each.partition for each in parts}) != len(messages):
            expected = f"one file for each of {len(messages)} partitions"
            found = sorted(each.partition for each in parts)
            raise staging.StagingLost(folder, expected, found)
        return parts


class LakelogWriter(_Stager, datasource.DataSourceArrowWriter):
    """Appends rows to a store; other processes may have it open, too."""

    def __init__(self, schema: StructType, options: WriteOptions, *, overwrite: bool) -> None:
        if overwrite:
            raise SettingsError(
                "a log can only be appended to: use mode('append'); to start over, remove the "
                "directory or name another one",
                key="mode",
            )
        super().__init__(schema, options)
        self._folder = staging.folder_of(options.path, options.job)
        files = RealFileSystem()
        self._is_staged = (
            staging.read_manifest(files, self._folder) is not None
            or staging.read_journal(files, self._folder) is not None
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Stage the rows of one partition; raises :class:`.BadRow` and ``OSError``."""
        return StagedMessage(None) if self._is_staged else self._stage(iterator, self._folder)

    def commit(self, messages: Messages) -> None:
        """Append the staged rows; durable on return. Raises as :meth:`.Handover.run`."""
        options = self._options
        files = RealFileSystem.of_store(options.path)
        with handing_over(options.path, options.settings) as store:
            handover = Handover(files, store, options.job, named=options.named)
            handover.run(None if self._is_staged else self._parts(messages, self._folder))
            staging.prune(files, options.path)

    def abort(self, messages: Messages) -> None:  # noqa: ARG002  # the signature of Spark
        """Remove the staged files, unless rows may be in the log: such a job can be continued."""
        files = RealFileSystem()
        if staging.read_manifest(files, self._folder) is None:
            staging.remove_staged(files, self._folder, self._run)


class LakelogStreamWriter(_Stager, datasource.DataSourceStreamArrowWriter):
    """Appends micro-batches to a store; other processes may have it open, too.

    Spark creates one writer for the tasks of a batch, and another one for its commit.
    """

    def __init__(
        self, schema: StructType, options: WriteOptions, checkpoint: str | None, *, overwrite: bool
    ) -> None:
        if overwrite:
            raise SettingsError(
                "a log can only be appended to: use outputMode('append')", key="outputMode"
            )
        super().__init__(schema, options)
        self._checkpoint = checkpoint

    @cached_property
    def _query(self) -> str:
        """The id of the query's files."""
        named = self._options.job if self._options.named else query_id(self._checkpoint)
        return staging.checked_job("stream-" + named)

    @property
    def _folder(self) -> Path:
        return staging.folder_of(self._options.path, self._query)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Stage the rows of one partition; Spark does not pass the batch's number to a task.

        Raises :class:`.BadRow` and ``OSError``.
        """
        return self._stage(iterator, self._folder)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803  # Spark's name
        """Append one batch; durable on return. Raises as :meth:`.Handover.run`."""
        options = self._options
        files = RealFileSystem.of_store(options.path)
        with handing_over(options.path, options.settings) as store:
            if batchId <= staging.read_last_batch(files, self._folder):
                _log.warning("batch %d of %s is in the log already", batchId, self._query)
                self._remove(messages)
                return
            job, parts = f"{self._query}.{batchId}", self._parts(messages, self._folder)
            folder = staging.folder_of(options.path, job)
            staging.adopt(files, self._folder, folder, parts)
            Handover(files, store, job).run(parts)
            staging.write_last_batch(files, self._folder, batchId)
            staging.remove(files, folder, [staging.JOURNAL])
            staging.prune(files, options.path)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803, ARG002  # the signature of Spark
        """Remove the staged files of a batch without a manifest."""
        self._remove(messages)

    def _remove(self, messages: Messages) -> None:
        names = [part.file for part in _staged(messages) if part.file is not None]
        with suppress(OSError):  # pruning removes the rest
            staging.remove(RealFileSystem(), self._folder, names)


def _staged(messages: Messages) -> list[staging.StagedPart]:
    return [each.part for each in messages if isinstance(each, StagedMessage) and each.part]


@attrs.frozen
class WriteOptions:
    """The checked options of a write.

    :ivar path: the store directory, absolute; executors need it under the same path
    :ivar create: whether to create a store that does not exist
    :ivar settings: path of a settings file for the store, besides its own
    :ivar job: id of the job: its rows are appended once, also if the write is repeated
    :ivar named: whether a user gave that id
    :ivar ignore_position_columns: whether to ignore columns that only the store can fill
    :ivar decompress: whether the bodies of rows are decompressed, for any ``sys_flag``
    """

    path: Path
    create: bool
    settings: str | None
    job: str
    named: bool
    ignore_position_columns: bool
    decompress: bool

    @classmethod
    def of_stream(cls, given: Mapping[str, str]) -> tuple[WriteOptions, str | None]:
        """As :meth:`of`, for a stream; also return the location of its checkpoint."""
        checkpoint = next((given[key] for key in given if key.lower() == CHECKPOINT), None)
        return cls.of({key: given[key] for key in given if key.lower() != CHECKPOINT}), checkpoint

    @classmethod
    def of(cls, given: Mapping[str, str]) -> WriteOptions:
        """Check the options given to Spark; raises :class:`~lakelog.errors.SettingsError`."""
        given = without_properties(given)
        for key in given:
            if key not in DEFAULTS:
                hint = nearest(key, DEFAULTS)
                raise UnknownSetting(f"no such option; {hint}", key=key, source=SOURCE)
        if not given.get(PATH):
            raise refused(PATH, "name a store directory: .save('STORE')")
        option = {**DEFAULTS, **given}
        job = option["job_id"]
        place = ReadOptions.of({PATH: given[PATH]})
        if place.archive is not None:
            raise refused(
                PATH,
                f"{place.archive} is not a directory: mount it, under one path on all executors",
            )
        switches = ("create", "ignore_position_columns", "decompress")
        return cls(
            path=place.path,
            settings=option["settings"] or None,
            job=str(uuid4()) if job is None else staging.checked_job(job),
            named=job is not None,
            **{key: switch(key, str(option[key])) for key in switches},
        )


def query_id(location: str | None) -> str:
    """Read Spark's id of a query from its checkpoint at ``location``.

    Raises :class:`~lakelog.errors.SettingsError` if it cannot be read.
    """
    if not location:
        raise _refused("the query has no checkpoint")
    parts = urlsplit(location)
    if parts.scheme not in ("", "file"):
        raise _refused(f"the checkpoint is at {location}, which this process cannot read")
    metadata = Path(unquote(parts.path) if parts.scheme else location) / "metadata"
    try:
        return str(json.loads(metadata.read_text())["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _refused(f"{metadata}: expected Spark's id of the query, found {error!r}") from error


def _refused(why: str) -> SettingsError:
    return SettingsError(
        f"{why}; give option checkpointLocation, a local folder, or name the query "
        "with option job_id, and change that name whenever its checkpoint is new",
        key="job_id",
    )
