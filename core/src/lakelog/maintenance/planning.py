"""Decides which of the cleaner's choices may be deleted; changes nothing.

The cleaner sees a description of each segment. The store time of a segment's last message is found
by reading the segment's last few KiB, or more if they hold no whole record. It is determined once
per segment, since sealed segments do not change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import attrs

from lakelog import hooks
from lakelog.errors import BadStrategy
from lakelog.format.record_batch import Blank, Damage
from lakelog.log.log_reader import LogReader
from lakelog.log.store_directory import StoreDirectory
from lakelog.maintenance.pins import Pin, PinValidator, holders, read_pins
from lakelog.registry import Events

_AHEAD_MS: Final = 24 * 3_600_000
"""A store time that is later than the present by more was noted by a clock that was wrong."""
MANUAL_ROUNDS: Final = 20
"""Number of batches that one manual cleaning may delete, as in RocketMQ."""


class Candidate(NamedTuple):
    """A segment chosen by the cleaner."""

    info: hooks.SegmentInfo
    reason: str

    @property
    def end_offset(self) -> int:
        """Offset behind its last byte."""
        return self.info.start_offset + self.info.size_bytes

    def deleted(self) -> hooks.Deleted:
        """Its entry in a report."""
        info = self.info
        return hooks.Deleted(
            info.start_offset,
            info.size_bytes,
            info.last_timestamp_ms,
            self.reason,
            info.pinned_by,
        )


def candidates(
    cleaner: hooks.Cleaner, infos: Sequence[hooks.SegmentInfo], situation: hooks.CleaningContext
) -> list[Candidate]:
    """Run the cleaner; raises :class:`~lakelog.errors.BadStrategy` if its choice has a gap."""
    chosen = list(cleaner.choose(infos, situation))
    front = [each.start_offset for each in infos[: len(chosen)]]
    if [each.start_offset for each in chosen] != front:
        raise BadStrategy(
            f"the cleaner chose {_starts(chosen)}, but must choose consecutive segments from the "
            f"first one on: {front or 'none'}; nothing is deleted"
        )
    return [Candidate(info, each.reason) for info, each in zip(infos, chosen, strict=False)]


def _starts(chosen: Sequence[hooks.Deletion]) -> list[int]:
    return [each.start_offset for each in chosen]


def dry_run(
    cleaner: hooks.Cleaner,
    infos: Sequence[hooks.SegmentInfo],
    situation: hooks.CleaningContext,
    holds: RetentionHolds,
    minimum: int,
) -> hooks.CleaningReport:
    """Report the segments that a manual cleaning would delete, and the one that would stop it.

    Deletion for lack of disk space counts as one batch, since its effect on the disk is unknown.
    """
    deleted: list[hooks.Deleted] = []
    for _ in range(MANUAL_ROUNDS):
        chosen = candidates(cleaner, infos[len(deleted) :], situation)[: cleaner.pace.batch_max]
        for each in chosen:
            why = holds(each)
            if why is not None:
                kept = hooks.KeptSegment(each.info.start_offset, why)
                return hooks.CleaningReport(True, tuple(deleted), kept, minimum)
            deleted.append(each.deleted())
            minimum = each.end_offset
        if not chosen:
            break
        situation = situation._replace(disk=hooks.DiskState.OK)
    return hooks.CleaningReport(True, tuple(deleted), None, minimum)


class RetentionHolds(NamedTuple):
    """The reasons why a segment must stay, in order of checking.

    :ivar reached: returns the offset up to which the log is dispatched
    :ivar override_pins: whether to ignore pins
    """

    reached: Callable[[], int]
    override_pins: bool

    def __call__(self, candidate: Candidate) -> str | None:
        """The reason; ``None`` if it may be deleted."""
        info = candidate.info
        if info.pinned_by and not self.override_pins:
            return f"followers still need it: {', '.join(info.pinned_by)}"
        if self.reached() < candidate.end_offset:
            return f"queues and index reach only to offset {self.reached()}"
        return None


_LOG: Final = logging.getLogger("lakelog")

_LOOKS: Final = (64 << 10, 1 << 20, 8 << 20)
"""Bytes to read from the end of a segment, in successive attempts; then the whole segment."""


class MaintainedLog(NamedTuple):
    """The log of an open store, for its maintenance.

    :ivar directory: its directory
    :ivar reader: reads it
    :ivar starts: returns the start offset of each present segment, in order
    :ivar segment_size_bytes: length of each segment
    :ivar cleaner: builds the configured cleaner; ``None`` if none is configured
    :ivar disk_watcher: the same for the disk-space watcher
    :ivar events: notifies plugins of deletions and of the state of the disks
    :ivar clock: replaces the clock of the machine, for tests
    :ivar ask: calls a method of the maintenance in the process with the services, and
        returns its result as JSON values; ``None`` in that process, and in a reader
    """

    directory: StoreDirectory
    reader: LogReader
    starts: Callable[[], Sequence[int]]
    segment_size_bytes: int
    cleaner: Callable[[], hooks.Cleaner | None]
    disk_watcher: Callable[[], hooks.DiskWatcher | None]
    events: Events
    clock: hooks.Clock | None
    ask: Callable[[str], Any] | None = None


@attrs.define(eq=False, repr=False)
class SegmentInfos:
    """The sealed segments of a log.

    :param pin_expires_after_ms: see :class:`~lakelog.settings.effective.MaintenanceSettings`
    """

    _log: MaintainedLog
    _pin_expires_after_ms: int | None
    _times_ms: dict[int, int | None] = attrs.field(factory=dict, init=False)
    _logged: frozenset[str] = attrs.field(default=frozenset(), init=False)

    @property
    def minimum(self) -> int:
        """Offset where the log begins."""
        return self._log.reader.min_offset

    def sealed(self, now_ms: int) -> list[hooks.SegmentInfo]:
        """The segments that hold acknowledged messages only, oldest first."""
        pins = self._pins(now_ms)
        size = self._log.segment_size_bytes
        end, minimum = self._log.reader.max_offset, self._log.reader.min_offset
        pins = self._judged(pins, minimum, end)
        starts = [start for start in self._log.starts() if start >= minimum and start + size <= end]
        for start in [start for start in self._times_ms if start < minimum]:
            del self._times_ms[start]
        times_ms = self._last_times(starts, now_ms)
        return [
            hooks.SegmentInfo(
                start,
                size,
                last_ms,
                holders(pins, start + size, now_ms),
            )
            for start, last_ms in zip(starts, times_ms, strict=True)
        ]

    def _pins(self, now_ms: int) -> list[Pin]:
        """The pins that have not expired."""
        after_ms, directory = self._pin_expires_after_ms, self._log.directory
        pins = read_pins(directory.files, directory.path)
        return [each for each in pins if not each.has_expired(now_ms, after_ms)]

    def _judged(self, pins: Sequence[Pin], minimum: int, end: int) -> list[Pin]:
        """Check the pins; a problem is logged once while it lasts, since it lets the disk fill."""
        judge = PinValidator(self._log.reader.pieces)
        judged = [judge.judged(each, minimum, end) for each in pins]
        problems = frozenset(each.problem for each in judged if each.problem is not None)
        for each in sorted(problems - self._logged):
            _LOG.warning("%s", each)
        self._logged = problems
        return judged

    def _last_times(self, starts: Sequence[int], now_ms: int) -> list[int]:
        """Times of last messages; a segment without one takes that of the next segment.

        So does one whose message was stored by a clock that was ahead: else nothing behind it would
        expire until that time.
        """
        times_ms: list[int] = []
        later_ms = now_ms
        for start in reversed(starts):
            if start not in self._times_ms:
                self._times_ms[start] = self._find(start)
            found = self._times_ms[start]
            later_ms = later_ms if found is None or found > now_ms + _AHEAD_MS else found
            times_ms.append(later_ms)
        return times_ms[::-1]

    def _find(self, start: int) -> int | None:
        for look in (
            *(look for look in _LOOKS if look < self._log.segment_size_bytes),
            self._log.segment_size_bytes,
        ):
            found = self._last_time(
                start + self._log.segment_size_bytes - look, start + self._log.segment_size_bytes
            )
            if found is not None:
                return found
        return None

    def _last_time(self, begin: int, end: int) -> int | None:
        last_ms = None
        for piece in self._log.reader.pieces(begin, end):
            if not isinstance(piece, Blank | Damage) and len(piece):
                last_ms = int(piece.store_timestamps_ms[-1])
        return last_ms
