"""Groups the rows of a task by table partition, in the order of queues inside of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np

from lakelog.format.sysflag import INNER_BATCH
from lakelog_lake.log.selection import Chosen, chosen_rows, coded_topics
from lakelog_lake.tables.partitions import STORE, TIMES, TOPIC
from lakelog_lake.tables.position import QueueEnds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lakelog.codec import RecordBatch

_LAST_MS: Final = ((1 << 63) - 1) // 1000  # largest ms that fits in a column of µs
_INNER_NUMBER: Final = "INNER_NUM"


@attrs.frozen
class Group:
    """Rows of one partition.

    :ivar values: partition values by key
    :ivar rows: indices in the batch, sorted by topic, queue and offset
    """

    values: Mapping[str, int | str]
    rows: NDArray[np.int64]


@attrs.frozen
class ChosenRows:
    """The records of a batch that become rows of any table.

    :ivar topics: the distinct topics of the batch
    :ivar codes: for each record the index of its topic
    :ivar order: indices in the batch, sorted by topic, queue and offset
    """

    batch: RecordBatch
    store: str
    topics: Sequence[str]
    codes: NDArray[np.int64]
    order: NDArray[np.int64]

    @classmethod
    def of(cls, batch: RecordBatch, store: str, chosen: Chosen) -> ChosenRows:
        """Select from ``batch``."""
        topics, codes = coded_topics(batch)
        rows = chosen_rows(batch, topics, codes, chosen)
        keys = (batch.queue_offsets, batch.queue_ids, codes)
        order = rows[np.lexsort(tuple(each[rows] for each in keys))]
        return cls(batch, store, topics, codes, order)

    def by_topic(self) -> dict[str, NDArray[np.int64]]:
        """The rows of each topic."""
        return {self.topics[self.codes[rows[0]]]: rows for rows in runs(self.order, self.codes)}

    def groups(self, rows: NDArray[np.int64], partition: Sequence[str]) -> Iterator[Group]:
        """Split ``rows``, a subsequence of ``order``, by partition."""
        columns = [self._column(key) for key in partition if key != STORE]
        if columns:
            rows = rows[np.lexsort(tuple(each[rows] for each in reversed(columns)))]
        for part in runs(rows, *columns):
            yield Group({key: self._value(key, int(part[0])) for key in partition}, part)

    def _column(self, key: str) -> NDArray[np.int64]:
        return self.codes if key == TOPIC else self._times(key)

    def _times(self, key: str) -> NDArray[np.int64]:
        found: NDArray[np.int64] = (
            np.clip(self.batch.store_timestamps_ms, -_LAST_MS, _LAST_MS) // TIMES[key]
        )
        return found

    def _value(self, key: str, row: int) -> int | str:
        if key == STORE:
            return self.store
        if key == TOPIC:
            return str(self.topics[self.codes[row]])
        return int(self._times(key)[row])

    def next_offsets(self, rows: NDArray[np.int64]) -> QueueEnds:
        """The offset behind the last row of each queue; ``rows`` is a subsequence of ``order``."""
        ends: dict[str, dict[int, int]] = {}
        for queue in runs(rows, self.codes, self.batch.queue_ids):
            at = int(queue[-1])
            queues = ends.setdefault(self.topics[self.codes[at]], {})
            queues[int(self.batch.queue_ids[at])] = int(self.batch.queue_offsets[at]) + self._takes(
                at
            )
        return ends

    def _takes(self, at: int) -> int:
        """The number of queue offsets that a record takes."""
        if not int(self.batch.sys_flags[at]) & INNER_BATCH:
            return 1
        stated = self.batch[at : at + 1].properties[0].get(_INNER_NUMBER, "1")
        return int(stated) if stated.isdigit() else 1


def runs(rows: NDArray[np.int64], *columns: NDArray[Any]) -> Iterator[NDArray[np.int64]]:
    """Split ``rows`` where the value of a column changes."""
    if len(rows):
        changes = np.zeros(len(rows) - 1, np.bool_)
        for column in columns:
            changes |= np.diff(column[rows]) != 0
        yield from np.split(rows, np.flatnonzero(changes) + 1)
