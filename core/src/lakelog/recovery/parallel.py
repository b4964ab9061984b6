"""Reads the sound part of a long log in several threads, one segment each.

Sound means: contiguous whole records whose store times do not decrease. They need no further proof,
and no record extends over two segments, so segments can be checked independently. Recovery itself
reads the log from the end of the sound part on. Only compiled code runs in parallel, since it
releases the interpreter lock.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from lakelog.files.filesystem import FileSystem, RealFileSystem
from lakelog.runtime.threads import submitted
from lakelog_format.codec.record_batch import RecordBatch
from lakelog_format.codec.run import decode_run
from lakelog_format.fields.layout import BLANK, MAGIC_BLANK, segment_name
from lakelog_format.queue_survey import QueueOffsetSurvey
from lakelog_interfaces import accelerate
from lakelog_interfaces.errors import StoreError

WINDOW_BYTES: Final = 1 << 20
"""Bytes checked at once; a buffer of this length stays in a processor's cache."""
_MOST_THREADS: Final = 8
_LOG: Final = logging.getLogger("lakelog")


def sound_segments(
    files: FileSystem, commitlog: Path, starts: Sequence[int], size_bytes: int, *, sealed: bool
) -> Iterator[QueueOffsetSurvey]:
    """Yield the sound part of the segments at ``starts``, in order; ends early on any failure.

    Yields nothing without compiled code.

    :param sealed: whether a record without a record checksum is not sound
    """
    if accelerate.current() is None or type(files) is not RealFileSystem:
        return
    count = min(len(starts), len(os.sched_getaffinity(0)), _MOST_THREADS)
    pool = ThreadPoolExecutor(count, "lakelog-recovery")
    try:
        works = [
            partial(read_segment, commitlog / segment_name(start), start, size_bytes, sealed=sealed)
            for start in starts
        ]
        running = [submitted(pool.submit, "lakelog-recovery", work) for work in works]
        for each in running:
            yield each.result()
    except (OSError, StoreError) as error:  # recovery reads it again, and reports the error
        _LOG.debug("a segment was not read in a thread: %s", error)
    finally:
        pool.shutdown(cancel_futures=True)


def read_segment(path: Path, start: int, size_bytes: int, *, sealed: bool) -> QueueOffsetSurvey:
    """Read the segment at ``start`` from its file as far as it is sound; raises ``OSError``."""
    found = QueueOffsetSurvey(start, start)
    accelerator = accelerate.current()
    with path.open("rb", buffering=0) as file:
        if accelerator is not None:
            plain = accelerator.plain_records(file.fileno(), start, size_bytes, sealed=sealed)
            if plain is not None:
                found.count_plain(plain)
        buffer = memoryview(bytearray(WINDOW_BYTES))
        while found.end_offset < start + size_bytes:
            at = found.end_offset
            length = os.preadv(file.fileno(), [buffer], at - start)
            data = buffer[: min(length, start + size_bytes - at)]
            batch = decode_run(data, at, verify=True, sealed=sealed)
            in_order = batch[: _in_order(batch, found.last_timestamp_ms)]
            if len(in_order):
                found.count(in_order)
            elif data[: BLANK.size] == BLANK.pack(start + size_bytes - at, MAGIC_BLANK):
                found.end_offset = start + size_bytes
            if len(in_order) < max(len(batch), 1):
                break
    return found


def _in_order(batch: RecordBatch, last_ms: int) -> int:
    """The number of leading records whose store times do not decrease."""
    times = batch.store_timestamps_ms
    if not len(batch) or int(times[0]) < last_ms:
        return 0
    older = (times[1:] < times[:-1]).nonzero()[0]
    return int(older[0]) + 1 if len(older) else len(batch)
