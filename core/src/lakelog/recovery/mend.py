"""Acts on what an examination found; the only place of a recovery that changes a byte.

In this order, each step durable before the next: what is missing is noted; copies go to the
quarantine, also of damage with whole records in it that nothing proves; files behind the end go,
from the back; lengths are put right; the tail is zeroed; what an unclean stop may have left in
memory alone is synced; damage is noted; the checkpoint is lowered. Gaps that records have to fill
come last, once queues and index have dropped what pointed there, see :mod:`.gaps`. Whatever stops
it in between, the next recovery finds the same end, and goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from mmap import PAGESIZE
from typing import Final

import attrs

from lakelog.files.filesystem import FileSystem
from lakelog.files.segment_files import segment_files
from lakelog.files.state.checkpoint import write_checkpoint
from lakelog.format.layout import OWN_DIR
from lakelog.log.reading.damage_file import keep_damage
from lakelog.log.reading.pieces import Damage
from lakelog.log.store_directory import StoreDirectory
from lakelog.recovery.examine import RecoveryPlan
from lakelog.recovery.lengths import Length
from lakelog.recovery.missing import keep_missing
from lakelog.recovery.quarantine import keep
from lakelog.recovery.repairact import keep_gaps
from lakelog.recovery.report import Aside, RecoveryReport
from lakelog.recovery.tails import Tail, chunks

_LOG: Final = logging.getLogger("lakelog")
_UNPROVED: Final = "whole records in it are not proved; it stays in the log, as damage"


def mend(directory: StoreDirectory, plan: RecoveryPlan, size_bytes: int) -> RecoveryReport:
    """Do what was planned for a store that is locked; what was done.

    Raises :class:`~lakelog.errors.StoreError` and ``OSError``.
    """
    files, path = directory.files, directory.path
    keep_missing(files, path, plan.missing, plan.lost_ends)  # before any proof of it goes
    _keep_unproved(directory, plan.staying, size_bytes)
    kept = [*keep_gaps(directory, plan.fillings), *_set_aside(directory, plan.tails)]
    active = plan.end_offset - plan.end_offset % size_bytes
    removed = _remove_behind(directory, plan.tails, max(active, plan.minimum))
    _correct_lengths(files, plan.lengths, removed)
    _wipe(files, [each for each in plan.tails if each.path not in removed], size_bytes)
    if not plan.clean:
        _sync(directory, plan, size_bytes)
    keep_damage(files, path, plan.start_offset, plan.minimum, plan.damage)
    if plan.checkpoint is not None:
        write_checkpoint(files, path, plan.checkpoint)
    copies, report = {each.offset: each for each in kept}, plan.report()
    report = attrs.evolve(report, cut=tuple(copies.get(each.offset, each) for each in report.cut))
    for damage in report.damage:
        _LOG.warning("%s", damage)
    for filling in plan.fillings:
        _LOG.warning("%s", filling.step())
    for missing in report.missing:
        _LOG.warning("%s: missing at the end of the log: %s", path, missing)
    return report


def _set_aside(directory: StoreDirectory, found: Iterable[Tail]) -> list[Aside]:
    return [
        keep(
            directory.files,
            directory.path,
            each.path,
            each.position,
            each.length,
            each.log_offset,
            each.reason,
        )
        for each in found
    ]


def _keep_unproved(directory: StoreDirectory, found: Iterable[Damage], size_bytes: int) -> None:
    """Whole records that readers will pass over are kept, though their bytes stay in the log.

    Raises :class:`~lakelog.errors.StoreError` for lack of room.
    """
    for damage in found:
        if damage.unproven:
            for begin, end in _by_segment(damage, size_bytes):
                at = begin % size_bytes
                path = directory.segment(begin - at)
                keep(directory.files, directory.path, path, at, end - begin, begin, _UNPROVED)


def _by_segment(damage: Damage, size_bytes: int) -> Iterator[tuple[int, int]]:
    begin = damage.offset
    while begin < damage.end_offset:
        end = min(begin - begin % size_bytes + size_bytes, damage.end_offset)
        yield begin, end
        begin = end


def _remove_behind(directory: StoreDirectory, found: Sequence[Tail], active: int) -> set[object]:
    """Remove segments from the first one behind the end on that is not all zero.

    Those before it are stock for the next rolls.
    """
    files = directory.files
    segments = segment_files(directory.commitlog, files.list(directory.commitlog))
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
            file = files.open(each.path, write=True)
            try:
                file.truncate(each.expected)  # blocks are allocated where the log goes on
                file.sync()
            finally:
                file.close()


def _sync(directory: StoreDirectory, plan: RecoveryPlan, size_bytes: int) -> None:
    """Make durable what was read: who wrote it may have died before a sync."""
    files = directory.files
    for each in segment_files(directory.commitlog, files.list(directory.commitlog)):
        if plan.start_offset < each.start_offset + size_bytes and each.start_offset < (
            plan.end_offset
        ):
            file = files.open(each.path, write=True)
            try:
                file.sync()
            finally:
                file.close()
    if directory.commitlog.is_dir():
        files.sync_dir(directory.commitlog)
    own = directory.path / OWN_DIR  # a tombstone that queues are made by from now on
    if own.is_dir():
        files.sync_dir(own)


def _not_zero(position: int, data: bytes) -> Iterator[tuple[int, int]]:
    """The runs of pages of ``data`` that are not all zero: zeros in a hole would take blocks."""
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
    """Zero what stands behind the end: it must never show up again."""
    for each in found:
        if each.position >= size_bytes:
            continue  # the file was cut there
        file = files.open(each.path, write=True)
        try:
            for position, data in chunks(file, each.position, each.position + each.length):
                for start, end in _not_zero(position, data):
                    file.write_at(start, bytes(end - start))
            file.sync()
        finally:
            file.close()
