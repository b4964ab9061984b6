"""Scans a log with several processes, one segment each, with the same result as a single scan.

A process only determines whether a segment is whole. If one is not, or is missing, the log is
scanned here from the last whole record to the next whole segment. The extent of damage depends on
the records before it. The last segment with records is always scanned here, since it may still be
written.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from threading import Thread
from typing import Final, TypeAlias

import attrs

from lakelog import Store, accelerate
from lakelog.errors import ThreadNotStarted
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.segment_files import SegmentFile
from lakelog.format.layout import BLANK
from lakelog.format.record_batch import Blank, Damage, Piece
from lakelog.log import sources, store_directory
from lakelog.log.scan import scan
from lakelog.runtime.threads import started

_LOG: Final = logging.getLogger("lakelog")
WORTH_BYTES: Final = 256 << 20
"""For smaller logs, starting processes takes longer than reading."""


@attrs.frozen
class WholeSegment:
    """A segment whose bytes were all read and checked.

    :ivar start_offset: its first byte
    :ivar end_offset: its end, exclusive
    :ivar records: number of its records
    :ivar record_bytes: total length of its records
    :ivar last_record: start of its last record
    :ivar last_timestamp_ms: store time of its last record
    """

    start_offset: int
    end_offset: int
    records: int
    record_bytes: int
    last_record: int
    last_timestamp_ms: int


Part: TypeAlias = "WholeSegment | Piece"
Answer: TypeAlias = "tuple[SegmentFile, WholeSegment | None]"


def parallel_scan(store: Store, processes: int | None = None) -> Iterator[Part]:
    """Yield the whole log of a store that is open for reading, in order.

    Whole segments are one part each; the rest is as in :meth:`~lakelog.Store.scan_pieces`.

    :param processes: number of processes; ``None`` is one per core if the log is long enough
    """
    sealed = _sealed(store)
    if processes is None:
        worth = sum(each.length for each in sealed) >= WORTH_BYTES
        processes = len(os.sched_getaffinity(0)) if worth else 1
    processes = min(processes, len(sealed))
    if processes < 2:
        yield from store.scan_pieces()
        return
    try:  # the pool starts its processes before its thread, and needs that thread to end them
        started(Thread(target=int, name="lakelog-scan")).join()
    except ThreadNotStarted as error:
        _LOG.warning("one process reads all: %s", error)
        yield from store.scan_pieces()
        return
    with _answers(_undamaged(store, sealed), processes) as answers:
        yield from _joined(store, answers)


def _sealed(store: Store) -> list[SegmentFile]:
    """The segments before the last one with records."""
    found = [
        each for each in directory_of(store).segments() if each.start_offset >= store.min_offset
    ]
    size_bytes = store.settings.core.segment_size_bytes
    used = [number for number, each in enumerate(found) if _begins(each.path)]
    is_whole = all(each.length == size_bytes for each in found)
    return found[: used[-1]] if used and is_whole else []


def directory_of(store: Store) -> store_directory.StoreDirectory:
    """The files of an open store."""
    return store_directory.StoreDirectory.of(RealFileSystem(), store.path, store.settings.core)


def _undamaged(store: Store, sealed: Sequence[SegmentFile]) -> list[SegmentFile]:
    """Exclude segments that a recovery has recorded as damaged, even if they look whole."""
    known = sources.read_damage(RealFileSystem(), store.path)
    return [
        each
        for each in sealed
        if not any(
            bad.offset < each.start_offset + each.length and each.start_offset < bad.end_offset
            for bad in known
        )
    ]


def _begins(path: Path) -> bool:
    with path.open("rb") as file:
        return any(file.read(BLANK.size))


@contextmanager
def _answers(sealed: Sequence[SegmentFile], processes: int) -> Iterator[Iterator[Answer]]:
    """The result for each segment, in order; ``None`` for the rest if a process was killed."""
    # a fork of this process would copy locks of its threads, which may be held
    context = get_context("forkserver")
    context.set_forkserver_preload(["lakelog.log.scan"])
    pool = ProcessPoolExecutor(processes, context, accelerate.use, (accelerate.current(),))
    try:
        asked = [(each, pool.submit(read_whole, each)) for each in sealed]
        yield ((segment, _answered(future)) for segment, future in asked)
    finally:
        pool.shutdown(cancel_futures=True)


def _answered(future: Future[WholeSegment | None]) -> WholeSegment | None:
    try:
        return future.result()
    except (BrokenProcessPool, CancelledError):
        return None


def read_whole(segment: SegmentFile) -> WholeSegment | None:
    """Read a segment with every check; ``None`` if any part of it is not valid."""
    start, end = segment.start_offset, segment.start_offset + segment.length
    source = sources.FileSource(RealFileSystem(), segment.path.parent, segment.length)
    at = last = start
    records = size = time_ms = 0
    for piece in scan(source, start, end):
        if isinstance(piece, Damage):
            return None
        at = piece.end_offset
        if not isinstance(piece, Blank):
            last = piece.base_offset + int(piece.starts[-1])
            time_ms = int(piece.store_timestamps_ms[-1])
            records += len(piece)
            size += int(piece.sizes.sum())
    return WholeSegment(start, end, records, size, last, time_ms) if at == end else None


def _joined(store: Store, answers: Iterator[Answer]) -> Iterator[Part]:
    """Yield whole segments, and scan the ranges between and after them."""
    end = last = store.min_offset
    for _, whole in answers:
        if whole is None:
            continue
        if whole.start_offset > end:
            yield from _scanned(store, last, end, whole.start_offset)
        yield whole
        end, last = whole.end_offset, whole.last_record
    yield from _scanned(store, last, end, None)


def _scanned(store: Store, last: int, start: int, stop: int | None) -> Iterator[Piece]:
    """Scan from ``start`` to the first piece that starts at ``stop``, or to the end.

    :param last: the last whole record before ``start``; later records must not be older than it
    """
    for piece in store.scan_pieces(last):
        offset = _start(piece)
        if stop is not None and offset >= stop:
            return
        if offset >= start:
            yield piece
        elif not isinstance(piece, Blank | Damage) and piece.end_offset > start:
            behind = piece.starts + piece.base_offset >= start
            yield piece[int(behind.argmax()) :]


def _start(piece: Piece) -> int:
    if isinstance(piece, Blank | Damage):
        return piece.offset
    return piece.base_offset + int(piece.starts[0])
