"""Carries out the plan of an examination; the only part of recovery that changes a byte.

Each step is durable before the next one:

1. note the missing records,
2. copy to quarantine: the tail, gaps to be filled, and damage with unproved whole records,
3. remove files behind the end, the last one first,
4. correct file lengths,
5. zero the tail,
6. sync the segments that were read, if the stop was unclean,
7. note the damage,
8. correct the checkpoint.

Gaps are filled last, after queues and index have dropped their entries there, see :mod:`.filler`.
After an interruption at any point the next recovery finds the same end, and continues.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from mmap import PAGESIZE
from typing import Final

from lakelog.errors import ThreadNotStarted
from lakelog.files.checkpoint import write_checkpoint
from lakelog.files.filesystem import FileSystem, RealFileSystem, chunks, sync_file
from lakelog.format.layout import OWN_DIR
from lakelog.format.record_batch import Damage
from lakelog.log.sources import keep_damage
from lakelog.log.store_directory import StoreDirectory
from lakelog.recovery.examine import Length
from lakelog.recovery.filler import Tail, by_segment, keep, keep_gaps
from lakelog.recovery.proof import keep_missing
from lakelog.recovery.report import RecoveryPlan, RecoveryReport
from lakelog.runtime.threads import LockFreeFuture, Workers, submitted

_LOG: Final = logging.getLogger("lakelog")
_UNPROVED: Final = "whole records in it are not proved; it stays in the log, as damage"


def apply_plan(directory: StoreDirectory, plan: RecoveryPlan, size_bytes: int) -> RecoveryReport:
    """Carry out the plan for a locked store; return the report, with the quarantined copies.

    Raises :class:`~lakelog.errors.StoreError` and ``OSError``.
    """
    files, path = directory.files, directory.path
    keep_missing(files, path, plan.report.missing, plan.lost_ends)  # before its proof is removed
    _keep_unproved(directory, plan.staying, size_bytes)
    kept = [*keep_gaps(directory, plan.fillings), *(keep(files, path, each) for each in plan.tails)]
    active = plan.end_offset - plan.end_offset % size_bytes
    removed = _remove_behind(directory, plan.tails, max(active, plan.minimum))
    _correct_lengths(files, plan.lengths, removed)
    _wipe(files, [each for each in plan.tails if each.path not in removed], size_bytes)
    if not plan.report.clean:
        _sync(directory, plan, size_bytes)
    keep_damage(files, path, plan.report.start_offset, plan.minimum, plan.damage)
    if plan.checkpoint is not None:
        write_checkpoint(files, path, plan.checkpoint)
    copies, report = {each.offset: each for each in kept}, plan.report
    report = report._replace(cut=tuple(copies.get(each.offset, each) for each in report.cut))
    for damage in report.damage:
        _LOG.warning("%s", damage)
    for filling in plan.fillings:
        _LOG.warning("%s", filling.step())
    for missing in report.missing:
        _LOG.warning("%s: missing at the end of the log: %s", path, missing)
    return report


def _keep_unproved(directory: StoreDirectory, found: Iterable[Damage], size_bytes: int) -> None:
    """Copy unproved whole records to quarantine, since readers will skip them in the log.

    Raises :class:`~lakelog.errors.StoreError` for lack of space.
    """
    for damage in found:
        if damage.unproven:
            for begin, end in by_segment(damage.offset, damage.end_offset, size_bytes):
                at = begin % size_bytes
                tail = Tail(directory.segment(begin - at), at, end - begin, begin, _UNPROVED)
                keep(directory.files, directory.path, tail)


def _remove_behind(directory: StoreDirectory, found: Sequence[Tail], active: int) -> set[object]:
    """Remove segments from the first non-zero one behind the end on.

    The zero segments before it are kept for later rolls.
    """
    files = directory.files
    segments = directory.segments()
    dirty = {each.path for each in found}
    used = [each.start_offset for each in segments if each.path in dirty]
    first = min((start for start in used if start > active), default=None)
    removed: set[object] = set()
    if first is not None:
        for each in reversed(segments):
            if each.start_offset >= first:
                files.unlink(each.path)
                removed.add(each.path)
                files.sync_dir(directory.commitlog)
    return removed


def _correct_lengths(files: FileSystem, lengths: Iterable[Length], removed: set[object]) -> None:
    for each in lengths:
        if each.path not in removed:
            with closing(files.open(each.path, write=True)) as file:
                file.truncate(each.expected)  # later appends allocate the blocks
                file.sync()


def _sync(directory: StoreDirectory, plan: RecoveryPlan, size_bytes: int) -> None:
    """Sync the segments that were read: their writer may have died before a sync."""
    files = directory.files
    for each in directory.segments():
        if plan.report.start_offset < each.start_offset + size_bytes and each.start_offset < (
            plan.end_offset
        ):
            sync_file(files, each.path)
    if directory.commitlog.is_dir():
        files.sync_dir(directory.commitlog)
    own = directory.path / OWN_DIR  # it may hold tombstones, on which the queues depend from now on
    if own.is_dir():
        files.sync_dir(own)


def _not_zero(position: int, data: bytes) -> Iterator[tuple[int, int]]:
    """The runs of non-zero pages in ``data``; writing zeros to others would fill holes."""
    start = at = position
    stop = position + len(data)
    while at < stop:
        end = min(at - at % PAGESIZE + PAGESIZE, stop)
        if not any(data[at - position : end - position]):
            if start < at:
                yield start, at
            start = end
        at = end
    if start < stop:
        yield start, stop


def _wipe(files: FileSystem, found: Iterable[Tail], size_bytes: int) -> None:
    """Zero the bytes behind the end, so that no later recovery finds records in them."""
    for each in found:
        if each.position >= size_bytes:
            continue  # the file ends before it
        with closing(files.open(each.path, write=True)) as file:
            part = each.position, each.position + each.length
            for position, data in chunks(file.next_data, file.read_at, *part):
                for start, end in _not_zero(position, data):
                    file.write_at(start, bytes(end - start))
            file.sync()


class BackgroundSync:
    """Syncs the segments of a locked store in its own thread, while recovery reads them.

    The writer may have died before a sync, so all records found must be synced before they count.
    :func:`apply_plan` does that, and takes less time if they are synced already.
    """

    def __init__(self, directory: StoreDirectory, size_bytes: int) -> None:
        self._directory = directory
        self._size_bytes = size_bytes
        self._pool = Workers("lakelog-sync-ahead")
        self._running: LockFreeFuture[None] | None = None
        self._over = False

    def begin(self, start_offset: int) -> None:
        """Sync each segment that ends behind ``start_offset``.

        Does nothing with replaced files, since tests need all calls in a fixed order. If no thread
        can be started, :func:`apply_plan` does all the work.
        """
        if type(self._directory.files) is RealFileSystem:
            work = partial(self._run, start_offset)
            with suppress(ThreadNotStarted):
                self._running = submitted(self._pool.submit, "lakelog-sync-ahead", work)

    def _run(self, start_offset: int) -> None:
        files = self._directory.files
        for each in self._directory.segments():
            if not self._over and each.start_offset + self._size_bytes > start_offset:
                sync_file(files, each.path)

    def end(self) -> None:
        """Finish, as :meth:`leave`; raises the ``OSError`` of any sync."""
        self.leave()
        if self._running is not None:
            self._running.result()

    def leave(self) -> None:
        """Start no further sync, and wait for the current one."""
        self._over = True
        self._pool.shutdown()
