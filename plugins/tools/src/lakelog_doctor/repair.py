"""``lakelog.repair``: repairs a log so that RocketMQ keeps all of it too.

RocketMQ cuts its log at damage that lakelog skips. A repair overwrites damage with whole records,
or with blanks where a segment ends or is missing. Then it checks queues and index against the log,
and rebuilds faulty ones. Bytes are copied to quarantine before they are overwritten or moved. An
interrupted repair is continued by the next repair or recovery.

All steps are planned before: a scan of the whole log finds the gaps, and the data for the records
that fill them. A step is carried out under the lock, in a store marked as not closed cleanly.
If it is interrupted, it leaves the former state, or one that the next repair detects and mends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import attrs

from lakelog.arguments import folder
from lakelog.errors import BadSegment, PluginError
from lakelog.files.filesystem import FileSystem
from lakelog.files.preallocation import SegmentMaker
from lakelog.files.queue_ends import forget_ends
from lakelog.files.segment_files import SegmentFile, segment_files
from lakelog.format import checksum, layout, queue_offsets
from lakelog.format.record_batch import Blank, Damage, Piece, RecordBatch
from lakelog.hooks.kinds import StoreSettings
from lakelog.log.scan import scan
from lakelog.log.sources import FileSource, keep_damage, read_damage
from lakelog.log.store_directory import StoreDirectory, readable
from lakelog.processes import membership, ownership
from lakelog.recovery import filler
from lakelog.recovery.filler import Tail, keep
from lakelog.recovery.report import Aside, Progress, RecoveryReport
from lakelog.store.open import prepare
from lakelog_doctor.check import check
from lakelog_doctor.rebuild import ignore_progress, rebuild
from lakelog_doctor.recover import check_progress, recover
from lakelog_queues.check import queues_with_replacements


@attrs.frozen
class Stray:
    """A file among the segments that is not a segment: it is moved to quarantine."""

    path: Path
    length: int

    def step(self) -> filler.Step:
        """The step that moves it."""
        return filler.Step(self.path, 0, "move it to quarantine", "it is no segment")


@attrs.frozen
class MissingRange:
    """A segment missing between others: it is replaced by one blank record."""

    path: Path
    start_offset: int
    size_bytes: int

    def step(self) -> filler.Step:
        """The step that creates it."""
        what = f"make the segment, with one blank record of {self.size_bytes} bytes"
        return filler.Step(self.path, self.start_offset, what, "it is missing")


@attrs.frozen
class RepairPlan:
    """All steps of a repair.

    :ivar recovery: the report of the recovery that runs first; ``None`` if it is not known until
        strays and missing segments are mended
    """

    strays: tuple[Stray, ...]
    missing: tuple[MissingRange, ...]
    recovery: RecoveryReport | None
    fillings: tuple[filler.Filling, ...]

    @property
    def steps(self) -> tuple[filler.Step, ...]:
        """The steps in order, without those of the recovery."""
        due: tuple[Stray | MissingRange | filler.Filling, ...]
        due = (*self.strays, *self.missing, *self.fillings)
        return tuple(each.step() for each in due)


@attrs.frozen
class RepairReport:
    """The result of a repair, or the plan of a dry run.

    :ivar plan: its steps
    :ivar done: whether they were executed
    :ivar kept: the overwritten or moved bytes, which are in quarantine
    :ivar rebuilt: rebuilt folders of the store directory
    :ivar led: queues with a unit that points to a record made by a repair, since its message was
        lost
    :ivar seconds: duration
    """

    plan: RepairPlan
    done: bool = False
    kept: tuple[Aside, ...] = ()
    rebuilt: tuple[str, ...] = ()
    led: tuple[queue_offsets.Queue, ...] = ()
    seconds: float = 0.0

    @property
    def recovery(self) -> RecoveryReport | None:
        """The result of the recovery; ``None`` in a dry run that cannot determine it yet."""
        return self.plan.recovery

    @property
    def left(self) -> tuple[filler.Step, ...]:
        """The steps that are impossible."""
        return tuple(each for each in self.plan.steps if not each.is_possible)


def repair(  # all but the path are optional keyword arguments
    path: str | os.PathLike[str],
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
    settings: object | None = None,
    broker_conf: str | os.PathLike[str] | None = None,
    plugins: Sequence[object] | None = None,
    files: FileSystem | None = None,
    **arguments: Any,
) -> RepairReport:
    """Repair the log, queues and index of a store without an owner, and leave it cleanly stopped.

    Recovers first, like ``lakelog.recover`` with ``on_damage="skip"``, or with ``"cut-end"`` if
    that is given. Whole records stay byte for byte. A second repair changes nothing.

    :param dry_run: change nothing, and return the plan; queues and index are not checked
    :param progress: called with the bytes of the log read so far, and their total
    :param arguments: as for :func:`lakelog.open`, like those before them

    Raises :class:`~lakelog.errors.StoreLocked` while a process owns the store, and
    :class:`~lakelog.errors.NotAStore`. Raises :class:`~lakelog.errors.BadSegment` if most segments
    differ from the settings, and :class:`~lakelog.errors.StoreError` if the disk is full.
    """
    place = folder("path", path)
    check_progress(progress)
    given: dict[str, Any] = {"settings": settings, "broker_conf": broker_conf}
    given |= {"plugins": plugins, "files": files}
    opening = prepare(place, **given, tolerate_missing=True, arguments=arguments)
    core = opening.settings.core
    directory = StoreDirectory.of(opening.files, place, core)
    given |= {**arguments, "on_damage": "cut-end" if core.on_damage == "cut-end" else "skip"}
    work = _Repair(directory, core, given, progress or ignore_progress)
    try:
        directory.check_readable()
        with ownership.unowned(opening.files, place):
            return work.plan() if dry_run else work.run()
    except OSError as error:
        raise readable(error, place) from error


@attrs.frozen
class _Repair:
    """One repair.

    :ivar given: the arguments for opening the store otherwise
    """

    directory: StoreDirectory
    core: StoreSettings
    given: dict[str, Any]
    progress: Progress

    @property
    def size_bytes(self) -> int:
        return self.core.segment_size_bytes

    # --- planning ---

    def plan(self) -> RepairReport:
        """Return the plan; changes nothing. Raises ``StoreLocked`` while the store is owned."""
        begun = time.monotonic()
        if ownership.is_owned(self.directory.files, self.directory.path):
            raise ownership.locked(self.directory.files, self.directory.path)
        strays, missing = self._odd_files()
        recovery = None if strays or missing else self._recover(dry_run=True)
        scanned = self._scan_log(() if recovery is None else recovery.damage)
        end = scanned.end_offset if recovery is None else recovery.end_offset
        scanned.gaps = [each for each in scanned.gaps if each.end_offset < end]
        fillings = self._fillings(scanned, missing)
        plan = RepairPlan(strays, missing, recovery, fillings)
        return RepairReport(plan, seconds=time.monotonic() - begun)

    def _odd_files(self) -> tuple[tuple[Stray, ...], tuple[MissingRange, ...]]:
        """Files whose name or length no segment can have, and segments missing between others."""
        files, folder, size_bytes = self.directory.files, self.directory.commitlog, self.size_bytes
        listing = files.list(folder)
        segments = segment_files(folder, listing)
        check_sizes(segments, size_bytes)
        strays = tuple(
            Stray(folder / name, length)
            for name, length in listing
            if not layout.is_segment_name(name) or int(name) % size_bytes
        )
        starts = [each.start_offset for each in segments if not each.start_offset % size_bytes]
        missing = tuple(
            MissingRange(self.directory.segment(start), start, size_bytes)
            for before, behind in pairwise(starts)  # a loss at either end only shortens the log
            for start in range(before + size_bytes, behind, size_bytes)
        )
        return strays, missing

    def _scan_log(self, damage: Sequence[Damage] = ()) -> LogScan:
        """Scan the whole log; ranges in which recovery found damage count as damaged."""
        sealed = self.core.record_crc or self.core.require_record_crc
        known = read_damage(self.directory.files, self.directory.path)
        return LogScan.at(self._pieces((*known, *damage)), sealed=sealed)

    def _fillings(
        self, scanned: LogScan, missing: Sequence[MissingRange] = ()
    ) -> tuple[filler.Filling, ...]:
        """The filling of each gap that is not a missing segment."""
        absent = {each.start_offset for each in missing}
        found = (filler.fillings_of(self.directory, gap, self.size_bytes) for gap in scanned.gaps)
        return tuple(each for each in chain.from_iterable(found) if each.start_offset not in absent)

    def _pieces(self, known_damage: Sequence[Damage]) -> Iterator[Piece]:
        directory = self.directory
        source = FileSource(directory.files, directory.commitlog, self.size_bytes, known_damage)
        segments = [each for each in source.segments() if not each.start_offset % self.size_bytes]
        if segments:
            first, last = segments[0], segments[-1]
            total = last.start_offset + last.length - first.start_offset
            for piece in scan(source, first.start_offset):
                yield piece
                self.progress(min(piece.end_offset - first.start_offset, total), total)

    # --- repairing ---

    def run(self) -> RepairReport:
        """Execute all steps."""
        begun = time.monotonic()
        strays, missing, moved = self._repair_files()
        recovery = self._recover(dry_run=False)
        fillings, kept = self._repair_log()
        if any(each.is_possible for each in fillings):
            self._recover(dry_run=False)
        rebuilt = self._repair_derived()
        plan = RepairPlan(strays, missing, recovery, fillings)
        kept = (*moved, *recovery.cut, *kept)
        led = queues_with_replacements(self.directory.files, self.directory.path)
        return RepairReport(plan, True, kept, rebuilt, led, time.monotonic() - begun)

    def _repair_files(
        self,
    ) -> tuple[tuple[Stray, ...], tuple[MissingRange, ...], tuple[Aside, ...]]:
        """Move stray files away and create missing segments, as recovery requires."""
        with self._locked():
            strays, missing = self._odd_files()
            if strays or missing:
                ownership.write_abort(self.directory.files, self.directory.path)
            moved = tuple(self._move_away(strays))
            self._make_missing(missing)
        return strays, missing, moved

    def _move_away(self, strays: Sequence[Stray]) -> Iterator[Aside]:
        """Move files that are not segments to quarantine."""
        files = self.directory.files
        for stray in strays:
            if stray.length:
                tail = Tail(stray.path, 0, stray.length, 0, "it is no segment")
                yield keep(files, self.directory.path, tail)
            files.unlink(stray.path)
            files.sync_dir(stray.path.parent)

    def _make_missing(self, missing: Sequence[MissingRange]) -> None:
        """Create missing segments, each with one blank record."""
        files, temporary = self.directory.files, self.directory.temporary()
        maker = SegmentMaker(files, self.directory.commitlog, temporary, self.size_bytes)
        if missing:
            files.make_dir(temporary)
        for each in missing:
            with closing(maker.make(each.start_offset).file) as file:
                filler.write_blank(file, 0, each.size_bytes)
                file.sync()

    def _recover(self, *, dry_run: bool) -> RecoveryReport:
        given = {**self.given, "dry_run": dry_run, "progress": self.progress}
        return recover(self.directory.path, **given)

    def _repair_log(self) -> tuple[tuple[filler.Filling, ...], tuple[Aside, ...]]:
        """Fill the gaps of a recovered log."""
        files, path = self.directory.files, self.directory.path
        with self._locked():
            scanned = self._scan_log()
            fillings = self._fillings(scanned)
            possible = [each for each in fillings if each.is_possible]
            if not possible:
                return fillings, ()
            ownership.write_abort(files, path)
            forget_ends(files, path)  # so that recovery adds units for the fillers
            queue_id, next_offset = scanned.queue_for(possible[0].gap.offset)
            now_ms = time.time_ns() // 1_000_000
            fillers = filler.FillerMaker((filler.FILLER_TOPIC, queue_id), next_offset, now_ms)
            kept = tuple(filler.keep_gaps(self.directory, possible))
            filler.fill(files, possible, fillers)
            keep_damage(files, path, 0, 0, _still_damaged(read_damage(files, path), possible))
        return fillings, kept

    def _repair_derived(self) -> tuple[str, ...]:
        """Rebuild queues and index that differ from the log."""
        queues, index = self._wrong()
        if not queues and not index:
            return ()
        given = {**self.given, "keep_tombstones": True, "progress": self.progress}
        return rebuild(self.directory.path, queues=queues, index=index, **given).folders

    def _wrong(self) -> tuple[bool, bool]:
        """Whether the queues, and whether the index, differ from the log."""
        wrong = [False, False]
        for queues, index in ((True, True), (True, False), (False, True)):
            try:
                for problem in check(self.directory.path, queues=queues, index=index, **self.given):
                    parts = problem.path.relative_to(self.directory.path).parts
                    wrong[parts[:1] == (layout.INDEX_DIR,)] = True
                    if all(wrong):
                        break
                break
            except PluginError:
                continue  # no dispatcher supports this check: try the next one
        return wrong[0], wrong[1]

    # --- shared ---

    @contextmanager
    def _locked(self) -> Iterator[None]:
        held = membership.alone(self.directory.files, self.directory.path)
        try:
            yield
        finally:
            held.leave()


def _still_damaged(
    known_damage: Sequence[Damage], filled: Sequence[filler.Filling]
) -> list[Damage]:
    """The known damage, without the filled gaps."""
    gaps = [each.gap for each in filled]
    return [
        each
        for each in known_damage
        if not any(gap.offset < each.end_offset and each.offset < gap.end_offset for gap in gaps)
    ]


def check_sizes(segments: Sequence[SegmentFile], size_bytes: int) -> None:
    """Refuse a wrong setting of the segment size: nearly every file would seem to be wrong.

    Raises :class:`~lakelog.errors.BadSegment`.
    """
    odd = [each for each in segments if each.length != size_bytes or each.start_offset % size_bytes]
    if len(odd) > 1 and 2 * len(odd) > len(segments):
        raise BadSegment(
            f"{len(odd)} of {len(segments)} segments do not have the length or place that "
            f"segment_size_bytes = {size_bytes} requires; check this setting. Nothing was changed",
            path=odd[0].path,
            offset=odd[0].start_offset,
            expected=size_bytes,
            found=odd[0].length,
        )


@attrs.define
class LogScan:
    """The result of the scan.

    :ivar gaps: damage followed by a record; a gap may span several segments
    :ivar end_offset: behind the last record
    :ivar fillers: queues with fillers of earlier repairs: by id, the physical offset of the last
        one, and the next queue offset
    """

    sealed: bool
    gaps: list[filler.LogGap] = attrs.field(factory=list)
    end_offset: int = 0
    fillers: dict[int, tuple[int, int]] = attrs.field(factory=dict)
    _last_ms: int | None = None
    _last_sealed: bool = False
    _pending: list[Damage] = attrs.field(factory=list)

    @classmethod
    def at(cls, pieces: Iterable[Piece], *, sealed: bool) -> LogScan:
        """Evaluate everything that a scan yields.

        :param sealed: whether fillers need a record checksum, whatever their neighbours have
        """
        scanned = cls(sealed)
        for piece in pieces:
            if isinstance(piece, Damage):
                scanned._pending.append(piece)
            elif not isinstance(piece, Blank):
                scanned._close_gaps(piece)
                scanned._note(piece)
        return scanned

    def _close_gaps(self, behind: RecordBatch) -> None:
        """Turn pending damage into gaps, as a record follows."""
        for damage in self._pending:
            before_ms = self._last_ms
            time_ms = int(behind.store_timestamps_ms[0]) if before_ms is None else before_ms
            sealed = self.sealed or self._last_sealed or _seal(behind, 0)
            reason = damage.error.what
            gap = filler.LogGap(damage.offset, damage.end_offset, reason, time_ms, sealed)
            self.gaps.append(gap)
        self._pending.clear()

    def _note(self, batch: RecordBatch) -> None:
        self.end_offset = batch.end_offset
        self._last_ms = int(batch.store_timestamps_ms[-1])
        self._last_sealed = _seal(batch, len(batch) - 1)
        for at, topic in enumerate(batch.topics):
            if topic == filler.FILLER_TOPIC:
                offset, number = int(batch.physical_offsets[at]), int(batch.queue_offsets[at])
                self.fillers[int(batch.queue_ids[at])] = offset, number + 1

    def queue_for(self, first_gap: int) -> tuple[int, int]:
        """Id and next queue offset of a queue with no record behind ``first_gap``.

        Fillers of an earlier repair may stand behind a new gap. In the same queue, the queue
        offsets would then decrease.
        """
        queue_id = 0
        while queue_id in self.fillers and self.fillers[queue_id][0] > first_gap:
            queue_id += 1
        return queue_id, self.fillers.get(queue_id, (0, 0))[1]


def _seal(batch: RecordBatch, at: int) -> bool:
    return checksum.is_sealed(batch[at : at + 1].property_strings[0])
