"""``spark.readStream.format("lakelog")``: the new messages of a log, batch by batch.

An offset is JSON, ``{"version": 1, "store": ID, "offset": BYTES}``: all records before the physical
offset ``BYTES`` were read. With ``max_bytes_per_batch`` or ``max_rows_per_batch`` a batch may end
before the log does.

When Spark 4.1 requests the latest offset, it passes a Python source neither the query's position
nor the trigger. With ``AvailableNow`` it makes this request once and then ends, so a bounded offset
would silently leave the rest unread. So batches are bounded only with the option
``trigger=processing-time``. Otherwise a batch has all messages, and the limits apply to its tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import attrs
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

import lakelog
from lakelog_lake.errors import OffsetUnavailable, OtherStore
from lakelog_lake.log.columns import store_name
from lakelog_lake.log.ends import end_of
from lakelog_lake.log.record_starts import RecordStarts
from lakelog_lake.log.wanted import LAST, NumberSpan
from lakelog_lake.reading.cuts import batch_end
from lakelog_lake.reading.options import LATEST, PROCESSING_TIME, SKIP, ReadOptions
from lakelog_lake.reading.plan import check_start, plan_between
from lakelog_lake.reading.rows import rows
from lakelog_lake.reading.times import part_of_times
from lakelog_spark.sessions.shipping import clear_importer_cache

if TYPE_CHECKING:
    import pyarrow as pa

VERSION: Final = 1
_log = logging.getLogger("lakelog_spark")


class LakelogStreamReader(DataSourceStreamReader):
    """Reads one store batch by batch.

    Its only state is the query's position, taken from the calls of :meth:`partitions`. After a
    restart Spark first calls :meth:`partitions` with the last offset as start and end.
    """

    def __init__(self, options: ReadOptions) -> None:
        with lakelog.open(options.path, mode="read"):  # fail early if it is not a store
            self._name = options.store_id or store_name(options.path)
        self._options = _for_tasks(options)
        self._initial: int | None = None
        self._reached: int | None = None
        self._asked = False

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """The start of a new query, by the option ``start``."""
        if self._initial is None:
            with (
                lakelog.open(self._options.path, mode="read") as store,
                RecordStarts.of(store) as log,
            ):
                self._initial = _first(log, self._options)
        return self._offset(self._initial)

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """The end of the next batch, as an offset."""
        reached, self._asked = self._reached, True
        if reached is None:
            reached = int(self.initialOffset()["offset"])
        with lakelog.open(self._options.path, mode="read") as store, RecordStarts.of(store) as log:
            end = max(end_of(log, self._options.until), reached)
            end = min(end, max(self._options.wanted.physical.end, reached))
            if self._options.trigger == PROCESSING_TIME:
                end = batch_end(
                    log,
                    NumberSpan(reached, end),
                    self._options.max_bytes_per_batch,
                    self._options.max_rows_per_batch,
                )
        return self._offset(end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The ranges of one batch.

        Raises :class:`~lakelog_lake.errors.OtherStore` and
        :class:`~lakelog_lake.errors.OffsetUnavailable`.
        """
        part = NumberSpan(self._place(start), self._place(end))
        self._warn_of_unfinished(part)
        self._reached = max(self._reached or 0, part.end)
        if part.low >= part.end:
            return []
        with lakelog.open(self._options.path, mode="read") as store, RecordStarts.of(store) as log:
            found = plan_between(log, self._there(log, part), self._options)
        return [InputPartition(each) for each in found]

    def _warn_of_unfinished(self, part: NumberSpan) -> None:
        """Warn about an unfinished batch of an earlier run, after which the query may end."""
        if not self._asked and part.low < part.end:
            _log.warning(
                "%s: an earlier run left the batch from %d to %d unfinished; under AvailableNow "
                "Spark 4.1 ends after it: run the query once more to read what is behind",
                *(self._options.path, part.low, part.end),
            )

    def _there(self, log: RecordStarts, part: NumberSpan) -> NumberSpan:
        """The part of a batch that is still in the log."""
        minimum = log.store.min_offset
        if part.low >= minimum:
            return part
        if self._options.lost != SKIP:
            raise OffsetUnavailable(log.store.path, part.low, minimum, part.end)
        _log.warning("%s: the log from %d to %d was deleted", log.store.path, part.low, minimum)
        return NumberSpan(minimum, max(minimum, part.end))

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        if partition is not None:
            clear_importer_cache()
            yield from rows(self._options, self._name, partition.value)

    def _offset(self, offset: int) -> dict[str, Any]:
        return {"version": VERSION, "store": self._name, "offset": offset}

    def _place(self, found: dict[str, Any]) -> int:
        if found.get("store") != self._name:
            raise OtherStore(self._options.path, str(found.get("store")), self._name)
        return int(found["offset"])


def _for_tasks(options: ReadOptions) -> ReadOptions:
    """Limit the size of a task to that of a batch."""
    most = options.max_bytes_per_batch
    if most is None or most >= options.max_partition_bytes:
        return options
    return attrs.evolve(options, max_partition_bytes=most)


def _first(log: RecordStarts, options: ReadOptions) -> int:
    """The physical offset for ``start``: a start of a record, or the end of the log."""
    minimum, start = log.store.min_offset, options.start
    end = max(minimum, end_of(log, options.until))
    if start.word == LATEST:
        return end
    check_start(log, options, end)
    if start.time_ms is not None:
        return part_of_times(log, NumberSpan(minimum, end), NumberSpan(start.time_ms, LAST)).low
    if start.offset is not None and start.offset < end:
        return log.before(max(start.offset, minimum), minimum)
    return end if start.offset is not None else minimum
