"""Determines the content and the end of a log, and plans its repair; changes nothing.

Bytes that are not whole records are damage if a proved record follows. Otherwise they belong to the
tail, and the log ends before them.

Reading begins at a segment whose first record is whole: zeros do not prove the end of the log
unless the bytes before them are known. Source: ``CommitLog.recoverNormally`` and
``recoverAbnormally`` of RocketMQ 5.3.3. RocketMQ does not check the queues. lakelog reads the whole
log if the next queue offsets could be wrong otherwise. If lakelog noted the offset up to which
queues were synced, reading begins there at the latest, since later records may lack units.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from lakelog.errors import CorruptRecord
from lakelog.files import queue_ends
from lakelog.files.checkpoint import StoreCheckpoint, read_checkpoint
from lakelog.files.identity import ReplicaState, read_replica
from lakelog.files.segment_files import SegmentFile
from lakelog.format import layout
from lakelog.format.queue_offsets import Queue
from lakelog.format.queue_survey import QueueOffsetSurvey
from lakelog.format.record import decode
from lakelog.format.record_batch import Blank, Damage, Piece
from lakelog.hooks.kinds import StoreSettings
from lakelog.log import sources
from lakelog.log.store_directory import StoreDirectory
from lakelog.processes.shared_page import whole_end
from lakelog.recovery.clean_stop import UNCHANGED, left_unchanged
from lakelog.recovery.filler import GapFiller, LogGap, Tail, tails
from lakelog.recovery.proof import (
    Cut,
    DurabilityClaims,
    Proof,
    cut_off,
    damage_refused,
    no_log,
    refuse_cut,
    refuse_missing,
    sound_segments,
)
from lakelog.recovery.report import NO_LOG, Aside, Progress, RecoveryPlan, RecoveryReport

MARGIN_MS: Final = 3_000
"""Subtracted from the checkpoint's times, as RocketMQ does."""
_NOT_KEPT: Final = "the ends of the queues were not stored"
_OTHER_LOG: Final = "the log is not the one whose queues were synced"


@attrs.frozen
class Start:
    """Where reading begins.

    :ivar offset: the start of a segment, in bytes from the start of the log
    :ivar reason: why reading begins there
    """

    offset: int
    reason: str


def examine(
    directory: StoreDirectory,
    core: StoreSettings,
    progress: Progress | None = None,
    *,
    full: bool = False,
    on_unclean: Callable[[int], None] | None = None,
) -> RecoveryPlan:
    """Read a store as far as needed, whether it is open or not; with ``full``, the whole log.

    :param on_unclean: called before reading, with its start offset, after an unclean stop

    Raises :class:`~lakelog.errors.BadSegment` if segments are missing, if files are not segments,
    and, with ``on_damage = "refuse"``, for damage and for missing records. Raises
    :class:`~lakelog.errors.UnreadableEnd` with ``on_damage = "skip"``. Raises
    :class:`~lakelog.errors.StoreError` if there is no segment although other files show a log, and
    :class:`~lakelog.errors.ReadFailed`.
    """
    begun = time.monotonic()
    directory.check_segments(core.segment_size_bytes)
    files = directory.segments()
    clean = not (directory.path / layout.ABORT_FILE).exists()
    if not files:
        checkpoint = read_checkpoint(directory.files, directory.path)
        held = _ends(directory)
        claims = DurabilityClaims(directory, clean, checkpoint, held)
        if claims.any():
            raise no_log(claims)
        lower = StoreCheckpoint() if checkpoint != StoreCheckpoint() else None
        ends = {queue: each.end for queue, each in held.items()}
        found = QueueOffsetSurvey(0, 0, next_offsets=ends)
        return RecoveryPlan(RecoveryReport(clean, 0, NO_LOG, 0, 0, 0), found, checkpoint=lower)
    replica = read_replica(directory.files, directory.path)
    heard = progress or (lambda _done_bytes, _total_bytes: None)
    reading = _Reading(directory, core, tuple(files), clean, full, heard, replica)
    left = reading.left_unchanged(begun) if clean and not full and reading.cut is None else None
    return left or reading.plan(begun, on_unclean)


def _ends(directory: StoreDirectory) -> dict[Queue, queue_ends.QueueEnd]:
    return queue_ends.read_ends(directory.files, directory.path)


@attrs.frozen
class _Reading:
    """One examination of a log with segments."""

    directory: StoreDirectory
    core: StoreSettings
    segments: tuple[SegmentFile, ...]
    clean: bool
    full: bool
    progress: Progress
    replica: ReplicaState | None

    @property
    def size(self) -> int:
        return self.core.segment_size_bytes

    @property
    def cut(self) -> int | None:
        """The offset from which on a replica differs from its master; the log ends there."""
        return None if self.replica is None else self.replica.cut

    def left_unchanged(self, begun: float) -> RecoveryPlan | None:
        """Use the note of a clean stop; ``None`` if the log has to be read."""
        found = left_unchanged(self.directory, self.core, self.segments, _ends(self.directory))
        noted = self._noted(found.end_offset) if found else ()
        if found is None or (noted and self.core.on_damage in {"refuse", "truncate"}):
            return None
        start = Start(found.start_offset, UNCHANGED)
        return RecoveryPlan(self._report(begun, start, found, noted), found)

    def plan(self, begun: float, on_unclean: Callable[[int], None] | None) -> RecoveryPlan:
        from lakelog.log.scan import scan  # not needed after most clean stops

        files, path = self.directory.files, self.directory.path
        checkpoint, source = read_checkpoint(files, path), self._source()
        size = self.size
        lengths = tuple(
            Length(each.path, each.start_offset, each.length, size)
            for each in self.segments
            if each.length != size
        )
        ends = _ends(self.directory)
        start = self._start(source, checkpoint, lengths, ends)
        noted = self._noted(start.offset)
        if noted and self.core.on_damage == "refuse":
            raise damage_refused(noted[0], self.directory.commitlog)
        if on_unclean is not None and not self.clean:
            on_unclean(start.offset)
        found = QueueOffsetSurvey(start.offset, start.offset)
        proof = self._proof(found, checkpoint)
        sealed = self.core.require_record_crc
        if not source.known_damage and not lengths and self.cut is None:
            self._read_sound_segments(found)
        scanned = scan(
            source,
            found.end_offset,
            self.cut,
            leading=proof.leading,
            accepts=proof.accepts,
            sealed=sealed,
        )
        gaps = GapFiller(self.directory, self.core, checkpoint, proof.whole_end or 0, self.clean)
        between, cut = self._add_up(scanned, found, proof, gaps)
        claims = DurabilityClaims(self.directory, self.clean, checkpoint, ends)
        missing = () if cut or self.cut is not None else claims.missing(found.end_offset)
        if self.core.on_damage == "refuse":
            refuse_missing(missing, self.directory.commitlog)
        self._complete_offsets(found, ends)
        end, segments = found.end_offset, self.segments
        behind = tails(files, segments, self.size, end, proof.refused, source.zeros)
        moved = tuple(map(cut.with_reason if cut else proof.with_reason, behind))
        if self.core.on_damage == "skip":
            refuse_cut(missing, [each for each in moved if each.position < self.size])
        damage = tuple(_marked(each, proof.refused) for each in between)
        gone: list[LogGap | Tail] = [*(each.gap for each in gaps.fillings), *moved]
        staying = tuple(each for each in damage if not each.to_fill)
        report = self._report(begun, start, found, noted + staying)._replace(
            cut=tuple(Aside(each.offset, each.end_offset, each.reason) for each in gone),
            mended=(*map(str, lengths), *(str(each.step()) for each in gaps.fillings)),
            missing=missing,
            cut_at=cut.damage if cut else None,
        )
        proved = bool(damage) and not self.clean and self.replica is None
        right = _right(checkpoint, found, proved=proved)
        used = claims.next_offsets() if missing else {}
        fillings = tuple(gaps.fillings)
        return RecoveryPlan(report, found, damage, moved, lengths, right, used, fillings)

    def _report(
        self, begun: float, start: Start, found: QueueOffsetSurvey, damage: tuple[Damage, ...]
    ) -> RecoveryReport:
        return RecoveryReport(
            self.clean,
            start.offset,
            start.reason,
            self.segments[0].start_offset,
            found.end_offset,
            found.records,
            damage,
            seconds=time.monotonic() - begun,
        )

    def _read_sound_segments(self, found: QueueOffsetSurvey) -> None:
        """Add the sound part from the start on, read in several threads."""
        starts = [at for each in self.segments if (at := each.start_offset) >= found.start_offset]
        total = self._total(found.start_offset)
        files, sealed = self.directory.files, self.core.require_record_crc
        for each in sound_segments(
            files, self.directory.commitlog, starts, self.size, sealed=sealed
        ):
            is_older = each.records and each.first_timestamp_ms < found.last_timestamp_ms
            if each.start_offset != found.end_offset or is_older:
                break
            found.join(each)
            self.progress(found.end_offset - found.start_offset, total)
            if found.end_offset % self.size:
                break

    def _source(self) -> PaddedSource:
        files, log = self.directory.files, self.directory.commitlog
        known_damage = sources.read_damage(files, self.directory.path)
        return PaddedSource(sources.FileSource(files, log, self.size, known_damage), self.size)

    def _start(
        self,
        source: PaddedSource,
        checkpoint: StoreCheckpoint,
        lengths: Sequence[Length],
        ends: Mapping[Queue, queue_ends.QueueEnd],
    ) -> Start:
        if self.full:
            return Start(self.segments[0].start_offset, "a full recovery was requested")
        start = (
            self._after_clean_stop(source, ends)
            if self.clean
            else self._after_unclean_stop(source, ends, checkpoint)
        )
        if lengths and lengths[0].start_offset < start.offset:
            start = Start(lengths[0].start_offset, "a segment has a wrong length")
        if self.cut is not None and self.cut < start.offset + self.size:
            first = self.segments[0].start_offset
            start = Start(max(first, self.cut - self.cut % self.size), "a replica is cut there")
        noted = self._noted(start.offset)
        if noted and self.core.on_damage == "truncate":
            at = max(noted[0].offset, self.segments[0].start_offset)
            return Start(at - at % self.size, "damage was noted there, and is to be cut")
        return start

    def _after_clean_stop(
        self, source: sources.Source, ends: Mapping[Queue, queue_ends.QueueEnd]
    ) -> Start:
        """The last segment covered by the queues, or the first if the queues may lack units."""
        path = self.directory.path
        starts, kept = source.starts(), queue_ends.read_kept(self.directory.files, path)
        doubt = _doubt(path, ends, kept) or ("" if kept.ends else _NOT_KEPT)
        if doubt:
            return Start(starts[0], doubt)
        reached = max((each.reached for each in ends.values()), default=0)
        if not starts[0] < reached <= starts[-1] + self.size:
            return Start(starts[0], "the queues do not show the end of the log")
        synced = _synced(source, kept)
        if synced is None:
            return Start(starts[0], _OTHER_LOG)
        known = min(reached - 1, synced)
        begins = _last_sound(source, [each for each in starts if each <= known])
        if begins + self.size <= known:
            return Start(begins, f"no whole record starts any segment from there to {known}")
        if synced < reached - self.size:
            return Start(begins, f"a clean stop, and queues were last synced up to {synced}")
        return Start(begins, f"a clean stop, and the queues reach to {reached}")

    def _after_unclean_stop(
        self,
        source: sources.Source,
        ends: Mapping[Queue, queue_ends.QueueEnd],
        checkpoint: StoreCheckpoint,
    ) -> Start:
        """The last segment whose first record is durable by the checkpoint, or the first."""
        path = self.directory.path
        starts, kept = source.starts(), queue_ends.read_kept(self.directory.files, path)
        doubt = _doubt(path, ends, kept)
        if doubt:
            return Start(starts[0], doubt)
        synced = _synced(source, kept) if kept.ends else starts[-1]
        if synced is None:
            return Start(starts[0], _OTHER_LOG)
        durable_ms = min(checkpoint.physic_timestamp_ms, checkpoint.logics_timestamp_ms) - MARGIN_MS
        for start in reversed([each for each in starts if each <= synced]):
            stored_ms = _first_store_time(source, start)
            if 0 < stored_ms <= durable_ms:
                reason = f"the checkpoint says that its first record, of {stored_ms}, is durable"
                return Start(start, reason)
        return Start(starts[0], "the checkpoint confirms no segment")

    def _noted(self, start: int) -> tuple[Damage, ...]:
        """Known damage before ``start``, where nothing is read; it is assumed to be unchanged."""
        return sources.noted_before(self.directory, self.size, self.segments[0].start_offset, start)

    def _proof(self, found: QueueOffsetSurvey, checkpoint: StoreCheckpoint) -> Proof:
        files, path = self.directory.files, self.directory.path
        return Proof(
            found,
            checkpoint.confirm_offset,
            max(checkpoint.physic_timestamp_ms, checkpoint.logics_timestamp_ms),
            partial(queue_ends.queue_unit, files, path),
            partial(queue_ends.read_end, files, path),
            self.segments[0].start_offset,
            self._whole_end(checkpoint),
        )

    def _whole_end(self, checkpoint: StoreCheckpoint) -> int | None:
        """The offset from which on a gap ends the log; a replica then receives the rest again."""
        if self.replica is not None:
            return checkpoint.confirm_offset
        return None if self.clean else whole_end(self.directory.files, self.directory.path)

    def _complete_offsets(
        self, found: QueueOffsetSurvey, ends: Mapping[Queue, queue_ends.QueueEnd]
    ) -> None:
        """Raise the next offsets to the ends of the queues, for messages that were not read.

        They may be deleted, or before the start of reading. Units of cut records do not count.
        """
        files, path = self.directory.files, self.directory.path
        for queue, each in queue_ends.settled_ends(files, path, ends, found.end_offset).items():
            found.settle(queue, each.end, each.reached)
        found.log_doubtful_offsets()

    def _add_up(
        self, pieces: Iterator[Piece], found: QueueOffsetSurvey, proof: Proof, gaps: GapFiller
    ) -> tuple[tuple[Damage, ...], Cut | None]:
        """Count the records of the log; return the damage followed by a record, and the cut.

        The cut is that of ``on_damage = "truncate"``, if any.
        """
        cut = None
        damage: list[Damage] = []
        pending: list[Blank | Damage] = []
        start, total = found.start_offset, self._total(found.start_offset)
        for piece in pieces:
            if isinstance(piece, Damage) and proof.is_end(piece.offset):
                break
            if isinstance(piece, Damage) or (isinstance(piece, Blank) and pending):
                pending.append(piece)
                continue
            if isinstance(piece, Blank):
                found.end_offset = piece.end_offset
            elif self._goes_on(pending):
                damage += gaps.judged(pending, found.last_timestamp_ms, piece)
                pending.clear()
                found.count(piece)
            else:
                cut = cut_off(pending, piece, pieces, found, proof)
                break
            self.progress(found.end_offset - start, total)
        self.progress(total, total)
        return tuple(damage), cut

    def _total(self, start: int) -> int:
        return self.segments[-1].start_offset + self.core.segment_size_bytes - start

    def _goes_on(self, pending: Sequence[Blank | Damage]) -> bool:
        """Whether to keep whole records behind damage, according to the settings."""
        for piece in pending:
            if isinstance(piece, Damage) and self.core.on_damage == "refuse":
                raise damage_refused(piece, self.directory.commitlog)
        return not pending or self.core.on_damage != "truncate"


def _marked(damage: Damage, refused: Sequence[int]) -> Damage:
    unproven = damage.unproven or any(damage.offset <= at < damage.end_offset for at in refused)
    return attrs.evolve(damage, unproven=unproven)


def _right(
    checkpoint: StoreCheckpoint, found: QueueOffsetSurvey, *, proved: bool
) -> StoreCheckpoint | None:
    """The checkpoint, limited to the log as found; ``None`` if it need not change.

    :param proved: whether to confirm the whole log, so that the records behind damage stay proved.
        They are synced before the checkpoint is written, but their proof, such as a queue unit, may
        be lost before the next recovery
    """
    last_ms = found.highest_timestamp_ms
    end = found.end_offset
    confirmed = end if proved else min(checkpoint.confirm_offset, end)
    right = checkpoint._replace(confirm_offset=confirmed)
    if found.records:
        right = right._replace(
            physic_timestamp_ms=min(checkpoint.physic_timestamp_ms, last_ms),
            logics_timestamp_ms=min(checkpoint.logics_timestamp_ms, last_ms),
            index_timestamp_ms=min(checkpoint.index_timestamp_ms, last_ms),
        )
    return right if right != checkpoint else None


def _synced(source: sources.Source, kept: queue_ends.DurableQueueEnds) -> int | None:
    """Start of the last record that had units at the last sync confirmed by the log.

    If the log does not have the marked record any more, it was replaced since.
    """
    return max(
        (
            each.offset
            for each in kept.marks
            if sources.read_at(source, each.offset, len(each.head)) == each.head
        ),
        default=None,
    )


def _last_sound(source: sources.Source, starts: Sequence[int]) -> int:
    """The last segment that begins with a whole record; the first one if there is none."""
    return next((each for each in reversed(starts) if _first_store_time(source, each)), starts[0])


def _doubt(
    path: Path, ends: Mapping[Queue, queue_ends.QueueEnd], kept: queue_ends.DurableQueueEnds
) -> str:
    """Why the queues may lack queue offsets; empty if they are complete."""
    if not ends:
        return "there are no queues"
    if not kept.are_reached_by(ends):
        return "queues lack what they had at the last sync"
    if (path / layout.OWN_DIR / layout.TOMBSTONES_FILE).exists():
        return "topics were removed"
    if (path / layout.BATCHCONSUMEQUEUE_DIR).is_dir() and not set(ends) <= set(kept.ends):
        return "there are queues of batches"
    return ""


def _first_store_time(source: sources.Source, start: int) -> int:
    """Store time of the checked first record of a segment; 0 if there is none."""
    for extent in source.extents(start):  # open as long as the loop runs
        if extent.start == start:
            with suppress(CorruptRecord):
                record = extent.read(start, sources.head_in(extent, start)[0])
                return decode(record, offset=start).store_timestamp_ms
        break
    return 0


@attrs.frozen
class Length:
    """A file of ``found`` bytes in place of ``expected``."""

    path: Path
    start_offset: int
    found: int
    expected: int

    def __str__(self) -> str:
        """A description of the correction."""
        done = "extended by zeros" if self.found < self.expected else "cut"
        return f"{self.path}: {self.found} bytes long, {done} to {self.expected}"


class PaddedExtent:
    """A segment of full length; zeros replace the bytes that its file lacks."""

    def __init__(self, inner: sources.FileExtent, size_bytes: int, zeros: dict[int, int]) -> None:
        self.start = inner.start
        self.end = inner.start + size_bytes
        self._inner = inner
        self._zeros = zeros

    @property
    def path(self) -> Path:
        """The file."""
        return self._inner.path

    def read(self, offset: int, length: int) -> memoryview:
        """Read at most to the end of the segment."""
        length = min(length, self.end - offset)
        if offset + length <= self._inner.end:
            return self._inner.read(offset, length)
        left = max(0, self._inner.end - offset)
        there = bytes(self._inner.read(offset, left)) if left else b""
        return memoryview(there.ljust(length, b"\x00"))

    def next_data(self, offset: int) -> int | None:
        """Offset of the next bytes that may be non-zero."""
        found = self._inner.next_data(offset) if offset < self._inner.end else None
        if found is not None and found < self._inner.end:
            return found
        self._zeros[self.start] = min(offset, self._zeros.get(self.start, offset))
        return None


class PaddedSource:
    """A directory of segments, each padded to full length.

    :ivar zeros: by segment start, the offset from which on it was found to be zero
    :ivar known_damage: the noted damage with unproved records; all other is examined again
    """

    def __init__(self, source: sources.FileSource, size_bytes: int) -> None:
        self.zeros: dict[int, int] = {}
        self.known_damage = {at: each for at, each in source.known_damage.items() if each.unproven}
        self._source = source
        self._size_bytes = size_bytes

    def starts(self) -> list[int]:
        """The start offsets of the segments."""
        return self._source.starts()

    def extents(self, start: int) -> Iterator[PaddedExtent]:
        """Yield the segments from the one at ``start`` on; each is open until the next one."""
        for extent in self._source.extents(start):
            yield PaddedExtent(extent, self._size_bytes, self.zeros)
