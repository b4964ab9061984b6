"""The batch writer: checks columns at planning, stages rows in tasks, appends in the driver.

Spark creates it in one process, and sends it to the processes that write, commit and abort.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

import attrs
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from lakelog.errors import SettingsError
from lakelog.files.filesystem import RealFileSystem
from lakelog_spark.writing.access import handing_over, open_to_append
from lakelog_spark.writing.errors import StagingLost
from lakelog_spark.writing.handover import Handover
from lakelog_spark.writing.journal import read_journal, read_manifest
from lakelog_spark.writing.options import WriteOptions
from lakelog_spark.writing.pruning import prune
from lakelog_spark.writing.rows import PartitionRows, WriteTarget, check
from lakelog_spark.writing.staging import StagedPart, folder_of, remove_run, stage

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
