"""The batch writer: checks columns at planning, stages rows in tasks, appends in the driver.

Spark creates it in one process, and sends it to the processes that write, commit and abort.

The streaming writer: stages rows in tasks, and appends each micro-batch once in the driver.

A micro-batch is a job; its id consists of the query's id and the number of the batch. Spark repeats
a batch whose commit it did not record. The file with the number of the last appended batch shows
whether a batch was appended.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import attrs
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from lakelog.errors import SettingsError
from lakelog.files.filesystem import RealFileSystem
from lakelog_spark.writing.access import handing_over, open_to_append
from lakelog_spark.writing.errors import StagingLost
from lakelog_spark.writing.handover import Handover
from lakelog_spark.writing.journal import JOURNAL, LastBatch, read_journal, read_manifest
from lakelog_spark.writing.options import WriteOptions, checked_job, query_id
from lakelog_spark.writing.rows import PartitionRows, WriteTarget, check, prune
from lakelog_spark.writing.staging import StagedPart, adopt, folder_of, remove, remove_run, stage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


@attrs.frozen
class StagedMessage(WriterCommitMessage):
    """The answer of a task to the driver; ``part`` is ``None`` if the job was staged before."""

    part: StagedPart | None


class LakelogWriter(DataSourceArrowWriter):
    """Appends rows to a store; other processes may have it open, too."""

    def __init__(self, schema: StructType, options: WriteOptions, *, overwrite: bool) -> None:
        if overwrite:
            raise SettingsError(
                "a log can only be appended to: use mode('append'); to start over, remove the "
                "directory or name another one",
                key="mode",
            )
        fields = [(each.name, each.dataType.simpleString()) for each in schema.fields]
        check(fields, ignore_position_columns=options.ignore_position_columns)
        self._options = options
        self._run = uuid4().hex
        self._folder = folder_of(options.path, options.job)
        with open_to_append(options.path, options.settings, create=options.create) as store:
            self._target = WriteTarget.of(store.settings.core)
        files = RealFileSystem()
        self._is_staged = (
            read_manifest(files, self._folder) is not None
            or read_journal(files, self._folder) is not None
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Stage the rows of one partition; raises :class:`.BadRow` and ``OSError``."""
        if self._is_staged:
            return StagedMessage(None)
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        rows = PartitionRows(self._target, partition, decompress=self._options.decompress)
        batches = rows.batches(iterator)
        files = RealFileSystem.of_store(self._options.path)
        return StagedMessage(stage(files, self._folder, partition, self._run, batches))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Append the staged rows; durable on return. Raises as :meth:`.Handover.run`."""
        options = self._options
        files = RealFileSystem.of_store(options.path)
        with handing_over(options.path, options.settings) as store:
            handover = Handover(files, store, options.job, named=options.named)
            handover.run(None if self._is_staged else self._parts(messages))
            prune(files, options.path)

    def _parts(self, messages: Sequence[WriterCommitMessage | None]) -> list[StagedPart]:
        parts = [each.part for each in messages if isinstance(each, StagedMessage) and each.part]
        if len({each.partition for each in parts}) != len(messages):
            expected = f"one file for each of {len(messages)} partitions"
            raise StagingLost(self._folder, expected, sorted(each.partition for each in parts))
        return parts

    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],  # noqa: ARG002  # Spark gives them
    ) -> None:
        """Remove the staged files, unless rows may be in the log: such a job can be continued."""
        files = RealFileSystem()
        if read_manifest(files, self._folder) is None:
            remove_run(files, self._folder, self._run)


_log = logging.getLogger(__name__)
_STREAM: Final = "stream-"


class LakelogStreamWriter(DataSourceStreamArrowWriter):
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
        fields = [(each.name, each.dataType.simpleString()) for each in schema.fields]
        check(fields, ignore_position_columns=options.ignore_position_columns)
        self._options = options
        self._checkpoint = checkpoint
        self._run = uuid4().hex
        with open_to_append(options.path, options.settings, create=options.create) as store:
            self._target = WriteTarget.of(store.settings.core)

    @cached_property
    def _query(self) -> str:
        """The id of the query's files."""
        named = self._options.job if self._options.named else query_id(self._checkpoint)
        return checked_job(_STREAM + named)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Stage the rows of one partition; Spark does not pass the batch's number to a task.

        Raises :class:`.BadRow` and ``OSError``.
        """
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        rows = PartitionRows(self._target, partition, decompress=self._options.decompress)
        folder = folder_of(self._options.path, self._query)
        files = RealFileSystem.of_store(self._options.path)
        return StagedMessage(stage(files, folder, partition, self._run, rows.batches(iterator)))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Append one batch; durable on return. Raises as :meth:`.Handover.run`."""
        options = self._options
        files = RealFileSystem.of_store(options.path)
        last = LastBatch(files, folder_of(options.path, self._query))
        with handing_over(options.path, options.settings) as store:
            if batchId <= last.read():
                _log.warning("batch %d of %s is in the log already", batchId, self._query)
                self._remove(messages)
                return
            job = f"{self._query}.{batchId}"
            adopt(files, last.folder, folder_of(options.path, job), self._parts(messages))
            Handover(files, store, job).run(self._parts(messages))
            last.write(batchId)
            remove(files, folder_of(options.path, job), [JOURNAL])
            prune(files, options.path)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002  # Spark's
        """Remove the staged files of a batch without a manifest."""
        self._remove(messages)

    def _remove(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        names = [part.file for part in _staged(messages) if part.file is not None]
        with suppress(OSError):  # pruning removes the rest
            remove(RealFileSystem(), folder_of(self._options.path, self._query), names)

    def _parts(self, messages: Sequence[WriterCommitMessage | None]) -> list[StagedPart]:
        parts = _staged(messages)
        if len({each.partition for each in parts}) != len(messages):
            expected = f"one file for each of {len(messages)} partitions"
            found = sorted(each.partition for each in parts)
            raise StagingLost(folder_of(self._options.path, self._query), expected, found)
        return parts


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[StagedPart]:
    return [each.part for each in messages if isinstance(each, StagedMessage) and each.part]
