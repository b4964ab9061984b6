"""Queues over a folder of a test, and their content for a reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from core.tests.format.handmade import record, run
from lakelog.files.checkpoint import CheckpointKeeper
from lakelog.files.filesystem import FileSystem, RealFileSystem
from lakelog.format.layout import ABORT_FILE, COMMITLOG_DIR, OWN_DIR, RECORD_MIN_BYTES, segment_name
from lakelog.format.record_batch import RecordBatch
from lakelog.hooks import Context, QueueReader
from lakelog.hooks.kinds import StoreSettings
from lakelog_queues.dispatching.consumequeues import ConsumeQueues
from lakelog_queues.dispatching.tombstones import write_tombstones
from lakelog_queues.plugin import ConsumeQueueSettings

SMALL = ConsumeQueueSettings(file_entries=10, flush_interval_ms=3_600_000)

SEGMENT_BYTES = 1 << 20


def queues(
    path: Path,
    settings: ConsumeQueueSettings = SMALL,
    *,
    files: FileSystem | None = None,
    clean: bool = True,
    read_only: bool = False,
    light_queues: bool = False,
    tombstones: Mapping[str, int] | None = None,
    keeper: CheckpointKeeper | None = None,
) -> ConsumeQueues:
    """Queues in ``path``, with 10 units in each file; not ``clean`` as after a crash."""
    files, disk = files or RealFileSystem(), RealFileSystem()
    core = StoreSettings(segment_size_bytes=SEGMENT_BYTES, light_queues=light_queues)
    keeper = keeper or CheckpointKeeper(disk, path)
    context = Context(path, core, files, keeper, read_only=read_only, owner_follows=clean)
    if tombstones is not None:
        write_tombstones(disk, path, tombstones)
    abort = path / ABORT_FILE
    is_new = not clean and not abort.exists()
    if is_new:
        abort.parent.mkdir(parents=True, exist_ok=True)
        abort.touch()
    made = ConsumeQueues(settings, context)
    if is_new:
        abort.unlink()
    return made


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
