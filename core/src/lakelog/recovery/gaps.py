"""Decides which gaps a recovery fills with records, so that no append follows a hole.

RocketMQ cuts a log at the first bytes that are not a whole record. lakelog keeps proved records
behind such a hole, and acknowledges later appends behind it. So fillers replace the hole, as in a
repair. This applies to holes that the crash may have caused. Bytes that were durable before and are
damaged now stay unchanged: a repair may need them, and the disk may return them later.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import attrs

from lakelog.dispatch.run import NamedDispatcher, forget
from lakelog.log.reading.damage import keep_damage, read_damage
from lakelog.log.store_directory import StoreDirectory
from lakelog.recovery.filler import FILLER_TOPIC, FillerMaker, Filling, LogGap, fill, fillings_of
from lakelog.settings.model import StoreSettings
from lakelog_format.codec.record_crc import is_sealed
from lakelog_format.pieces import Blank, Damage
from lakelog_interfaces.checkpoint import StoreCheckpoint

if TYPE_CHECKING:
    from lakelog.recovery.examine import RecoveryPlan
    from lakelog_format.codec.record_batch import RecordBatch


@attrs.frozen
class GapFiller:
    """Decides which damage between whole records is filled.

    :ivar vouched: the checkpoint, with the durable end and times
    :ivar whole_end: all bytes before it were written, so that a crash caused no hole there; see
        :func:`~lakelog.files.pages.page_view.whole_end`; 0 if unknown
    :ivar clean: whether the store was closed cleanly; nothing is filled then
    :ivar fillings: the gaps to fill
    """

    directory: StoreDirectory
    core: StoreSettings
    vouched: StoreCheckpoint
    whole_end: int
    clean: bool
    fillings: list[Filling] = attrs.field(factory=list)

    def judged(
        self, between: Iterable[Blank | Damage], before_ms: int, behind: RecordBatch
    ) -> Iterator[Damage]:
        """The damage before a run of proved records, each marked if it is to be filled.

        :param before_ms: store time of the record before; 0 if there is none
        """
        for each in between:
            if isinstance(each, Damage):
                fillings = self._fillings(each, before_ms, behind)
                self.fillings.extend(fillings)
                yield attrs.evolve(each, to_fill=bool(fillings))

    def _fillings(self, damage: Damage, before_ms: int, behind: RecordBatch) -> Sequence[Filling]:
        """The fillings of the damage; empty if it stays, or if a gap is too small for a record."""
        behind_ms = int(behind.store_timestamps_ms[0])
        if not self._is_due(damage, behind_ms):
            return ()
        sealed = self.core.record_crc or self.core.require_record_crc
        sealed = sealed or is_sealed(behind[:1].property_strings[0])
        times = before_ms or behind_ms
        gap = LogGap(damage.offset, damage.end_offset, damage.error.what, times, sealed)
        found = tuple(fillings_of(self.directory, gap, self.core.segment_size_bytes))
        return found if all(each.is_possible for each in found) else ()

    def _is_due(self, damage: Damage, behind_ms: int) -> bool:
        """Whether the crash, or an interrupted recovery that filled it, may have caused it."""
        if self.clean:
            return False
        for each in read_damage(self.directory.files, self.directory.path):
            if each.to_fill and each.offset < damage.end_offset and damage.offset < each.end_offset:
                return True
        sound = max(self.vouched.confirm_offset, self.whole_end)
        return damage.offset >= sound and behind_ms >= self.vouched.physic_timestamp_ms


def fill_gaps(
    directory: StoreDirectory,
    plan: RecoveryPlan,
    dispatchers: Sequence[NamedDispatcher],
    start: int,
) -> int:
    """Fill the gaps with records, then remove their entries from ``lakelog/damage.json``.

    The bytes are already in quarantine, and the checkpoint confirms the records behind them.
    Queues and index first drop, durably, their entries from the first gap on. After an
    interruption the next recovery finds the gaps in ``lakelog/damage.json`` and continues.

    :param start: the offset from which the dispatchers need the log
    :returns: the offset to dispatch from after filling

    Raises ``OSError``, and the errors of the dispatchers.
    """
    if not plan.fillings:
        return start
    found, first = plan.found, plan.fillings[0].gap.offset
    start = min(start, first)
    forget(dispatchers, start)
    queue = FILLER_TOPIC, 0
    while queue in found.chains and found.chains[queue].end > first:  # offsets must not decrease
        queue = FILLER_TOPIC, queue[1] + 1
    now_ms = time.time_ns() // 1_000_000
    fillers = FillerMaker(queue, found.next_offsets.get(queue, 0), now_ms)
    fill(directory.files, plan.fillings, fillers)
    found.raise_offset(queue, fillers.next_offset)
    keep_damage(
        directory.files, directory.path, plan.report.start_offset, plan.minimum, plan.staying
    )
    return start
