"""Queues over a folder of a test, and their content for a reader."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from core.tests.format.handmade import record, run
from lakelog.files.checkpoint import CheckpointKeeper
from lakelog.files.filesystem import FileSystem, RealFileSystem
from lakelog.format.layout import COMMITLOG_DIR, OWN_DIR, RECORD_MIN_BYTES, segment_name
from lakelog.format.record_batch import RecordBatch
from lakelog.hooks import QueueReader
from lakelog_queues.dispatching.consumequeues import ConsumeQueues, LogHeads
from lakelog_queues.plugin import ConsumeQueueSettings

SMALL = ConsumeQueueSettings(file_entries=10, flush_interval_ms=3_600_000)

SEGMENT_BYTES = 1 << 20


def queues(
    path: Path,
    settings: ConsumeQueueSettings = SMALL,
    *,
    files: FileSystem | None = None,
    clean: bool = True,
    **options: Any,
) -> ConsumeQueues:
    """Queues in ``path``, with 10 units in each file."""
    files = files or RealFileSystem()
    keeper = CheckpointKeeper(RealFileSystem(), path)
    log = LogHeads(files, path / COMMITLOG_DIR, SEGMENT_BYTES)
    return ConsumeQueues(files, path, settings, keeper, clean=clean, log=log, **options)


def keep_log(path: Path, *batches: RecordBatch) -> None:
    """Write records into the first segment of a log, and create the folder of the marks."""
    (path / OWN_DIR).mkdir(parents=True, exist_ok=True)
    (path / COMMITLOG_DIR).mkdir(exist_ok=True)
    segment = path / COMMITLOG_DIR / segment_name(0)
    segment.touch()
    with segment.open("r+b") as file:
        for batch in batches:
            file.seek(batch.base_offset)
            file.write(batch.buffer)


def contents(reader: QueueReader) -> dict[tuple[str, int], Any]:
    """Bounds and units of every queue."""
    found = {}
    for queue in reader.queues():
        bounds = reader.bounds(queue, 0)
        assert bounds is not None
        units = reader.units(queue, bounds[0], 1 << 40)
        columns = (units.queue_offsets, units.offsets, units.sizes, units.tags_codes, units.counts)
        found[queue] = (bounds, [column.tolist() for column in columns])
    return found


def batch_of(records: Sequence[tuple[str, str, bytes]], start: int = 0) -> RecordBatch:
    """Records of these topics, property strings and bodies, all in queue 0."""
    log = bytearray()
    starts = []
    for number, (topic, properties, body) in enumerate(records):
        starts.append(len(log))
        log += record(topic, properties.encode(), body, number, start + len(log))
    return RecordBatch(memoryview(bytes(log)), start, np.array(starts, np.int64))


def plain(topic: str, queue_offsets: Sequence[int], start: int = 0) -> RecordBatch:
    """Records of 200 bytes that state these queue offsets."""
    body = b"b" * (200 - RECORD_MIN_BYTES - len(topic))
    return run(
        *(
            record(topic, b"", body, stated, start + 200 * at)
            for at, stated in enumerate(queue_offsets)
        ),
        start=start,
    )
