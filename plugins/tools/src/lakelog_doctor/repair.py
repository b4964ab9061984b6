"""``lakelog.repair``: mends a log so that the real RocketMQ store keeps all of it, too.

Damage that is passed over here makes the real store cut its log. A repair puts whole records in
its place, blank ones where a segment ends or is missing; then it compares queues and index with the
log, and builds anew what is wrong. Whatever is written over, or moved, is kept in quarantine
before. It can be stopped at any point: the next repair, or recovery, goes on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from lakelog.errors import PluginError
from lakelog.files.filesystem import FileSystem
from lakelog.files.preallocation import SegmentMaker
from lakelog.files.segment_files import segment_files
from lakelog.files.shared.dispatch_lock import DispatchLock
from lakelog.files.shared.membership import alone
from lakelog.files.shared.ownership import is_owned, locked, unowned, write_abort
from lakelog.files.state.durable_queue_ends import forget_ends
from lakelog.format.layout import INDEX_DIR, OWN_DIR, TMP_DIR
from lakelog.format.queue_offsets import Queue
from lakelog.log.reading.damage_file import keep_damage, read_damage
from lakelog.log.reading.pieces import Blank, Damage, Piece
from lakelog.log.reading.source import FileSource
from lakelog.log.store_directory import StoreDirectory, readable
from lakelog.recovery.filler import FILLER_TOPIC, FillerMaker
from lakelog.recovery.repairact import Acting, fill, keep_gaps
from lakelog.recovery.repairplan import (
    Filling,
    Missing,
    RepairPlan,
    Step,
    Stray,
    check_sizes,
    find_fillings,
    find_missing,
    find_strays,
)
from lakelog.recovery.repairscan import LogLook
from lakelog.recovery.report import Aside, RecoveryReport
from lakelog.settings.model import StoreSettings
from lakelog.store.open import prepare
from lakelog.store.recover import recover
from lakelog_doctor.check import check
from lakelog_doctor.rebuild import rebuild

Progress: TypeAlias = Callable[[int, int], None]
"""Told how many bytes of the log were read, and how many there are; each pass begins anew."""


@attrs.frozen
class RepairReport:
    """What a repair did, or in a dry run would do.

    :ivar plan: its steps
    :ivar done: whether they were carried out
    :ivar kept: what was written over or moved, and is in quarantine
    :ivar rebuilt: folders of the store directory that were built anew
    :ivar led: queues of which a place leads to a record that a repair made, this one or another:
        their message was lost
    :ivar seconds: how long it took
    """

    plan: RepairPlan
    done: bool = False
    kept: tuple[Aside, ...] = ()
    rebuilt: tuple[str, ...] = ()
    led: tuple[Queue, ...] = ()
    seconds: float = 0.0

    @property
    def recovery(self) -> RecoveryReport | None:
        """What the recovery found; ``None`` in a dry run that cannot tell yet."""
        return self.plan.recovery

    @property
    def left(self) -> tuple[Step, ...]:
        """What cannot be mended."""
        return tuple(each for each in self.plan.steps if not each.is_possible)


def repair(  # all but the path are optional, and given by name
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
    """Mend the log, the queues and the index of a store that nobody owns; a clean stop is left.

    Recovers first, as ``lakelog.recover`` does with ``on_damage="skip"``. Whole records stay, byte
    for byte. Repeating it changes nothing more.

    :param dry_run: change nothing, and say what would be done; queues and index are not compared
    :param progress: told how many bytes of the log were read, and of how many
    :param arguments: as for :func:`lakelog.open`, like those before them

    Raises :class:`~lakelog.errors.StoreLocked` while an owner lives,
    :class:`~lakelog.errors.NotAStore`, :class:`~lakelog.errors.BadSegment` where most segments are
    not as the settings say, and :class:`~lakelog.errors.StoreError` where there is no room.
    """
    place = Path(path).absolute()
    given = {
        **arguments,
        "on_damage": "skip",
        "settings": settings,
        "broker_conf": broker_conf,
        "plugins": plugins,
        "files": files,
    }
    opening = prepare(
        place,
        settings=settings,
        broker_conf=broker_conf,
        plugins=plugins,
        files=files,
        tolerate_missing=True,
        arguments=arguments,
    )
    core = opening.settings.core
    directory = StoreDirectory.of(opening.files, place, core)
    work = _Repair(directory, core, given, progress or _silent)
    try:
        directory.check_readable()
        with unowned(opening.files, place):
            return work.tell() if dry_run else work.run()
    except OSError as error:
        raise readable(error, place) from error


def _silent(done_bytes: int, total_bytes: int) -> None:
    """For callers who do not want to know."""


@attrs.frozen
class _Repair:
    """One repair; :ivar given: the arguments for every other way of opening the store."""

    directory: StoreDirectory
    core: StoreSettings
    given: dict[str, Any]
    progress: Progress

    @property
    def size_bytes(self) -> int:
        return self.core.segment_size_bytes

    # --- what is to be done ---

    def tell(self) -> RepairReport:
        """The plan, and no byte changed."""
        begun = time.monotonic()
        if is_owned(self.directory.files, self.directory.path):
            raise locked(self.directory.files, self.directory.path)
        strays, missing = self._odd_files()
        recovery = None if strays or missing else self._recover(dry_run=True)
        look = self._look(() if recovery is None else recovery.damage)
        end = look.end_offset if recovery is None else recovery.end_offset
        look.gaps = [each for each in look.gaps if each.end_offset < end]
        fillings = tuple(find_fillings(self.directory, look, self.size_bytes, missing))
        plan = RepairPlan(strays, missing, recovery, fillings)
        return RepairReport(plan, seconds=time.monotonic() - begun)

    def _odd_files(self) -> tuple[tuple[Stray, ...], tuple[Missing, ...]]:
        files, folder = self.directory.files, self.directory.commitlog
        check_sizes(segment_files(folder, files.list(folder)), self.size_bytes)
        strays = find_strays(self.directory, self.size_bytes)
        return tuple(strays), tuple(find_missing(self.directory, self.size_bytes))

    def _look(self, damage: Sequence[Damage] = ()) -> LogLook:
        """Read the whole log; what a recovery found damaged is, whatever it looks like."""
        sealed = self.core.record_crc or self.core.require_record_crc
        return LogLook.at(self._pieces((*self._known(), *damage)), sealed=sealed)

    def _known(self) -> tuple[Damage, ...]:
        return read_damage(self.directory.files, self.directory.path)

    def _pieces(self, known: Sequence[Damage]) -> Iterator[Piece]:
        from lakelog.log.reading.scan import scan  # brings NumPy

        directory = self.directory
        source = FileSource(directory.files, directory.commitlog, self.size_bytes, known)
        segments = [each for each in source.segments() if not each.start_offset % self.size_bytes]
        if segments:
            first, last = segments[0], segments[-1]
            total = last.start_offset + last.length - first.start_offset
            for piece in scan(source, first.start_offset):
                yield piece
                self.progress(min(_end(piece) - first.start_offset, total), total)

    # --- doing it ---

    def run(self) -> RepairReport:
        """Do everything."""
        begun = time.monotonic()
        strays, missing, moved = self._mend_files()
        recovery = self._recover(dry_run=False)
        fillings, kept = self._mend_log()
        if any(each.is_possible for each in fillings):
            self._recover(dry_run=False)
        rebuilt = self._mend_derived()
        plan = RepairPlan(strays, missing, recovery, fillings)
        kept = (*moved, *recovery.cut, *kept)
        return RepairReport(plan, True, kept, rebuilt, self._led(), time.monotonic() - begun)

    def _led(self) -> tuple[Queue, ...]:
        from lakelog.consumequeue.leading import leading_queues  # brings NumPy

        return leading_queues(self.directory.files, self.directory.path)

    def _mend_files(self) -> tuple[tuple[Stray, ...], tuple[Missing, ...], tuple[Aside, ...]]:
        """What no recovery can go on over: strays and missing segments."""
        with self._locked():
            strays, missing = self._odd_files()
            if not strays and not missing:
                return strays, missing, ()
            write_abort(self.directory.files, self.directory.path)
            moved = tuple(self._acting().move_away(strays))
            self._acting().make_missing(missing)
        return strays, missing, moved

    def _recover(self, *, dry_run: bool) -> RecoveryReport:
        given = {**self.given, "dry_run": dry_run, "progress": self.progress}
        return recover(self.directory.path, **given)

    def _mend_log(self) -> tuple[tuple[Filling, ...], tuple[Aside, ...]]:
        """Fill the gaps of a log that was recovered."""
        files, path = self.directory.files, self.directory.path
        with self._locked():
            look = self._look()
            fillings = tuple(find_fillings(self.directory, look, self.size_bytes, ()))
            possible = [each for each in fillings if each.is_possible]
            if not possible:
                return fillings, ()
            write_abort(files, path)
            forget_ends(files, path)  # whoever recovers gives fillers their units
            queue_id, next_offset = look.queue_for(possible[0].gap.offset)
            now_ms = time.time_ns() // 1_000_000
            fillers = FillerMaker((FILLER_TOPIC, queue_id), next_offset, now_ms)
            kept = tuple(keep_gaps(self.directory, possible))
            fill(files, possible, fillers)
            keep_damage(files, path, 0, 0, _still_damaged(self._known(), possible))
        return fillings, kept

    def _mend_derived(self) -> tuple[str, ...]:
        """Build queues and index anew where they are not what the log says."""
        queues, index = self._wrong()
        if not queues and not index:
            return ()
        given = {**self.given, "keep_tombstones": True, "progress": self.progress}
        return rebuild(self.directory.path, queues=queues, index=index, **given).folders

    def _wrong(self) -> tuple[bool, bool]:
        """Whether queues, and whether the index, are not as they should be."""
        wrong = [False, False]
        for queues, index in ((True, True), (True, False), (False, True)):
            try:
                for problem in check(self.directory.path, queues=queues, index=index, **self.given):
                    parts = problem.path.relative_to(self.directory.path).parts
                    wrong[parts[:1] == (INDEX_DIR,)] = True
                    if all(wrong):
                        break
                break
            except PluginError:
                continue  # nothing here can check that: what can be is asked for next
        return wrong[0], wrong[1]

    # --- both ---

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with ExitStack() as held:
            files, path = self.directory.files, self.directory.path
            held.callback(alone(files, path).leave)
            held.callback(DispatchLock.take(files, path).release)
            yield

    def _acting(self) -> Acting:
        directory = self.directory
        temporary = (
            directory.path / OWN_DIR / TMP_DIR
            if directory.same_file_system()
            else directory.commitlog.parent / f".{directory.commitlog.name}.{TMP_DIR}"
        )
        maker = SegmentMaker(directory.files, directory.commitlog, temporary, self.size_bytes)
        return Acting(directory, maker)


def _end(piece: Piece) -> int:
    return piece.offset + piece.size if isinstance(piece, Blank) else piece.end_offset


def _still_damaged(known: Sequence[Damage], filled: Sequence[Filling]) -> list[Damage]:
    """What was known to be damaged, without what was filled."""
    gaps = [each.gap for each in filled]
    return [
        each
        for each in known
        if not any(gap.offset < each.end_offset and each.offset < gap.end_offset for gap in gaps)
    ]
