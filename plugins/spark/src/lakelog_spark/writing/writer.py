"""``df.write.format("lakelog")``, batch and streaming: tasks stage rows, the driver appends.

Spark creates a writer in one process, and sends it to the processes that write, commit and abort.

A micro-batch is a job; its id consists of the query's id and the number of the batch. Spark repeats
a batch whose commit it did not record. The file with the number of the last appended batch shows
whether a batch was appended. Unknown options are refused.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import attrs
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.types import StructType

from lakelog.errors import SettingsError, UnknownSetting
from lakelog.files.filesystem import RealFileSystem
from lakelog_lake.reading.options import PATH, SOURCE, ReadOptions, nearest, refused, switch
from lakelog_spark.writing import staging
from lakelog_spark.writing.handover import Handover, handing_over, open_to_append
from lakelog_spark.writing.rows import PartitionRows, check

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

    def abort(self, messages: Messages) -> None:  # noqa: ARG002  # Spark gives them
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
        last = staging.LastBatch(files, self._folder)
        with handing_over(options.path, options.settings) as store:
            if batchId <= last.read():
                _log.warning("batch %d of %s is in the log already", batchId, self._query)
                self._remove(messages)
                return
            job, parts = f"{self._query}.{batchId}", self._parts(messages, self._folder)
            folder = staging.folder_of(options.path, job)
            staging.adopt(files, last.folder, folder, parts)
            Handover(files, store, job).run(parts)
            last.write(batchId)
            staging.remove(files, folder, [staging.JOURNAL])
            staging.prune(files, options.path)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803, ARG002  # Spark's
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
        return cls(
            path=place.path,
            create=switch("create", str(option["create"])),
            settings=option["settings"] or None,
            job=str(uuid4()) if job is None else staging.checked_job(job),
            named=job is not None,
            ignore_position_columns=switch(
                "ignore_position_columns", str(option["ignore_position_columns"])
            ),
            decompress=switch("decompress", str(option["decompress"])),
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
