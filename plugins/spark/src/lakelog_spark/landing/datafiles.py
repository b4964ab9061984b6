"""One task: a range of the log becomes data files, one per topic and day; returns facts only.

Files are written whole and synced before anything refers to them. Their names hold no topic, and
a number by chance: a task that runs again writes other files.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import attrs
import numpy as np

import lakelog
from lakelog.errors import CorruptRecord
from lakelog.sysflag import INNER_BATCH
from lakelog_spark.columns import NAMES
from lakelog_spark.landing.facts import BOUNDED, FileFacts, facts_of
from lakelog_spark.landing.gathering import Span, one_batch
from lakelog_spark.landing.ondamage import Damages
from lakelog_spark.landing.position import Fingerprint, QueueEnds
from lakelog_spark.landing.selection import EVERYTHING, Chosen, chosen_rows
from lakelog_spark.landing.tablefields import DAY, REPEATING, Layout, file_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from lakelog.codec import RecordBatch

_DAY_MS: Final = 86_400_000
_LAST_MS: Final = ((1 << 63) - 1) // 1000  # as the columns have it
_STEP_BYTES: Final = 8 << 20
_INNER_NUMBER: Final = "INNER_NUM"


@attrs.frozen
class Task:
    """What one process does.

    :ivar store_path: the store directory
    :ivar store: what the column ``store`` says
    :ivar folder: where the files go; it is there
    :ivar skip_damage: whether damage is passed over and counted; else it ends the task
    """

    store_path: Path
    store: str
    span: Span
    folder: Path
    layout: Layout
    skip_damage: bool = False
    chosen: Chosen = EVERYTHING


@attrs.frozen
class Written:
    """What a task did.

    :ivar last: the last record of the range, whether it is a row or not
    :ivar next_offsets: behind the rows of each queue
    :ivar damaged: pieces of the log, and bodies, that were passed over
    """

    files: tuple[FileFacts, ...] = ()
    last: Fingerprint | None = None
    next_offsets: QueueEnds = attrs.field(factory=dict)
    damaged: int = 0

    @property
    def rows(self) -> int:
        """Of all files."""
        return sum(each.rows for each in self.files)


def write(task: Task) -> Written:
    """Do ``task``; raises :class:`~lakelog_spark.errors.CorruptLog` at damage."""
    damages = Damages(skip=task.skip_damage)
    with lakelog.open(task.store_path, mode="read") as store:
        pieces = store.scan_pieces(task.span.start, task.span.end)
        batch = one_batch(damages.records(pieces, task.span))
    if batch is None:
        return Written(damaged=damages.count)
    groups = _Groups.of(batch, task.chosen)
    made = [_write_file(task, damages, batch, *group) for group in groups.each()]
    if made:
        _sync(task.folder)
    files = tuple(each for each in made if each is not None)
    return Written(files, _fingerprint(batch), groups.next_offsets(), damages.count)


def _fingerprint(batch: RecordBatch) -> Fingerprint:
    record = batch.record(len(batch) - 1)
    return Fingerprint(int(batch.physical_offsets[-1]), len(record), zlib.crc32(record))


@attrs.frozen
class _Groups:
    """The rows of a batch, by topic and day, in the order of queues inside of each.

    :ivar order: places in the batch
    :ivar codes: of the topic of each record of the batch; ``days`` likewise
    """

    batch: RecordBatch
    topics: Sequence[str]
    codes: NDArray[np.int64]
    days: NDArray[np.int64]
    order: NDArray[np.int64]

    @classmethod
    def of(cls, batch: RecordBatch, chosen: Chosen) -> _Groups:
        from lakelog.arrow import to_arrow

        column = to_arrow(batch, columns=["topic"]).column(0).dictionary_encode()
        topics = column.dictionary.to_pylist()
        codes = column.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        days = np.clip(batch.store_timestamps_ms, -_LAST_MS, _LAST_MS) // _DAY_MS
        rows = chosen_rows(batch, topics, codes, chosen)
        keys = (batch.queue_offsets, batch.queue_ids, days, codes)
        order = rows[np.lexsort(tuple(each[rows] for each in keys))]
        return cls(batch, topics, codes, days, order)

    def each(self) -> Iterator[tuple[str, int, NDArray[np.int64]]]:
        """Topic, day, and places in the batch, of each file to be written."""
        for rows in _runs(self.order, self.codes, self.days):
            yield self.topics[self.codes[rows[0]]], int(self.days[rows[0]]), rows

    def next_offsets(self) -> QueueEnds:
        """Behind the last row of each queue."""
        ends: dict[str, dict[int, int]] = {}
        queue_ids, offsets = self.batch.queue_ids, self.batch.queue_offsets
        for rows in _runs(self.order, self.codes, self.days, queue_ids):
            at = int(rows[-1])
            queues = ends.setdefault(self.topics[self.codes[at]], {})
            end = int(offsets[at]) + self._takes(at)
            queue_id = int(queue_ids[at])
            queues[queue_id] = max(end, queues.get(queue_id, 0))
        return ends

    def _takes(self, at: int) -> int:
        """How many queue offsets a record takes."""
        if not int(self.batch.sys_flags[at]) & INNER_BATCH:
            return 1
        stated = self.batch[at : at + 1].properties[0].get(_INNER_NUMBER, "1")
        return int(stated) if stated.isdigit() else 1


def _runs(order: NDArray[np.int64], *columns: NDArray[Any]) -> Iterator[NDArray[np.int64]]:
    """``order`` cut where one of the columns changes."""
    if len(order):
        changes = np.zeros(len(order) - 1, np.bool_)
        for column in columns:
            changes |= np.diff(column[order]) != 0
        yield from np.split(order, np.flatnonzero(changes) + 1)


def _write_file(
    task: Task,
    damages: Damages,
    batch: RecordBatch,
    topic: str,
    day: int,
    rows: NDArray[np.int64],
) -> FileFacts | None:
    """Write the file of one topic and day; ``None`` if none of its bodies could be unpacked."""
    path = task.folder / f"{task.span.start:020d}-{uuid4().hex}.parquet"
    schema = file_schema(task.layout)
    with path.open("xb") as file:
        with _writer(file, schema) as writer:
            for part in _steps(batch, rows):
                for columns in _columns(batch, part, damages):
                    writer.write_batch(_in_layout(columns, task.store, day, schema))
        file.flush()
        os.fsync(file.fileno())
        size_bytes = file.tell()
    metadata = writer.writer.metadata
    if metadata.num_rows == 0:
        path.unlink()
        return None
    return facts_of(metadata, str(path), size_bytes, topic, day)


def _writer(file: Any, schema: pa.Schema) -> Any:
    from pyarrow import parquet

    return parquet.ParquetWriter(
        file,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in REPEATING if name.partition(".")[0] in schema.names],
        write_statistics=[name for name in BOUNDED if name in schema.names],
        store_schema=False,
    )


def _steps(batch: RecordBatch, rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """``rows`` in parts of a bounded size, so that no column passes what Arrow can address."""
    behind = np.cumsum(batch.sizes[rows], dtype=np.int64) // _STEP_BYTES
    yield from np.split(rows, np.flatnonzero(np.diff(behind)) + 1)


def _columns(
    batch: RecordBatch, rows: NDArray[np.int64], damages: Damages
) -> Iterator[pa.RecordBatch]:
    """The rows under their columns, without those whose bodies cannot be unpacked."""
    from lakelog.arrow import to_arrow
    from lakelog.codec import RecordBatch

    while len(rows):
        part = RecordBatch(batch.buffer, batch.base_offset, batch.starts[rows])
        try:
            yield to_arrow(part, columns=NAMES[1:], decompress=True)
        except CorruptRecord as error:
            damages.body(error, int(batch.sizes[rows[0]]))
            rows = rows[batch.physical_offsets[rows] != error.offset]
        else:
            return


def _in_layout(columns: pa.RecordBatch, store: str, day: int, schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    constant = {"store": pa.scalar(store), DAY: pa.scalar(day, pa.date32())}
    arrays = [
        pa.repeat(constant[field.name], columns.num_rows)
        if field.name in constant
        else columns.column(field.name).cast(field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _sync(folder: Path) -> None:
    """Make the names of the files in ``folder`` durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
