"""Which gaps a recovery fills with records, because nothing may be built upon a hole.

The real store cuts a log at the first bytes that are no whole record. What a crash left behind such
a hole is kept here if it is proved; and what is appended behind it from then on is acknowledged. So
records take the hole's place, as in a repair. That is for holes which the crash may have made. What
had been durable before, and is damaged now, stays as it is: a repair may want those bytes, and the
disk may give them once more.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import attrs

from lakelog.codec.recordcrc import is_sealed
from lakelog.dispatch.run import NamedDispatcher, forget
from lakelog.files.state.checkpoint import StoreCheckpoint
from lakelog.log.reading.damage_file import keep_damage, read_damage
from lakelog.log.reading.pieces import Blank, Damage
from lakelog.log.store_directory import StoreDirectory
from lakelog.recovery.filler import FILLER_TOPIC, FillerMaker, LogGap
from lakelog.recovery.repairact import fill
from lakelog.recovery.repairplan import Filling, fillings_of
from lakelog.settings.model import StoreSettings

if TYPE_CHECKING:
    from lakelog.codec.recordbatch import RecordBatch
    from lakelog.recovery.examine import RecoveryPlan


@attrs.frozen
class GapFiller:
    """Judges what was found between whole records.

    :ivar clean: whether the store was closed cleanly: then nothing is filled
    :ivar vouched: it says what was durable
    :ivar whole_end: every byte before it was written, see
        :func:`~lakelog.files.pages.page_view.whole_end`: the crash made no hole there
    :ivar sealed: whether records need a checksum of their own, whatever stands behind them
    :ivar begun: what an earlier recovery may have filled in part
    :ivar fillings: what is to be filled
    """

    directory: StoreDirectory
    size_bytes: int
    clean: bool
    vouched: StoreCheckpoint
    whole_end: int
    sealed: bool
    begun: tuple[Damage, ...]
    fillings: list[Filling] = attrs.field(factory=list)

    @classmethod
    def of(
        cls,
        directory: StoreDirectory,
        core: StoreSettings,
        vouched: StoreCheckpoint,
        whole_end: int | None,
        *,
        clean: bool,
    ) -> GapFiller:
        """For one examination of a store."""
        known = read_damage(directory.files, directory.path)
        begun = tuple(each for each in known if each.to_fill)
        sealed = core.record_crc or core.require_record_crc
        size, whole = core.segment_size_bytes, whole_end or 0
        return cls(directory, size, clean, vouched, whole, sealed, begun)

    def judged(
        self, between: Iterable[Blank | Damage], before_ms: int, behind: RecordBatch
    ) -> Iterator[Damage]:
        """The damage in front of proved records, each with whether it is to be filled.

        :param before_ms: store time of the record before; 0 where there is none
        """
        for each in between:
            if isinstance(each, Damage):
                fillings = self._fillings(each, before_ms, behind)
                self.fillings.extend(fillings)
                yield attrs.evolve(each, to_fill=bool(fillings))

    def _fillings(self, damage: Damage, before_ms: int, behind: RecordBatch) -> Sequence[Filling]:
        """None where it stays; there is no record as short as some gaps."""
        behind_ms = int(behind.store_timestamps_ms[0])
        if not self._is_due(damage, behind_ms):
            return ()
        sealed = self.sealed or is_sealed(behind[:1].property_strings[0])
        times = before_ms or behind_ms
        gap = LogGap(damage.offset, damage.end_offset, damage.error.what, times, sealed)
        found = tuple(fillings_of(self.directory, gap, self.size_bytes))
        return found if all(each.is_possible for each in found) else ()

    def _is_due(self, damage: Damage, behind_ms: int) -> bool:
        """Whether a crash may have made it, or a crash of a recovery that was filling it."""
        if self.clean:
            return False
        if any(
            each.offset < damage.end_offset and damage.offset < each.end_offset
            for each in self.begun
        ):
            return True
        sound = max(self.vouched.confirm_offset, self.whole_end)
        return damage.offset >= sound and behind_ms >= self.vouched.physic_timestamp_ms


def fill_gaps(
    directory: StoreDirectory,
    plan: RecoveryPlan,
    dispatchers: Sequence[NamedDispatcher],
    start: int,
) -> int:
    """Put records in the place of gaps, and note no more that it is to be done.

    By now their bytes are in quarantine, and the checkpoint confirms what stands behind them.
    Queues and index drop durably what they have from the first of them on, before it is filled.
    Whatever stops it, the next recovery finds the gaps in ``lakelog/damage.json``, and goes on.

    :param start: from where the log has to be dispatched; from where it has to be then
    """
    if not plan.fillings:
        return start
    found, first = plan.found, plan.fillings[0].gap.offset
    start = min(start, first)
    forget(dispatchers, start)
    queue = FILLER_TOPIC, 0
    while queue in found.chains and found.chains[queue].end > first:  # offsets only go up
        queue = FILLER_TOPIC, queue[1] + 1
    now_ms = time.time_ns() // 1_000_000
    fillers = FillerMaker(queue, found.next_offsets.get(queue, 0), now_ms)
    fill(directory.files, plan.fillings, fillers)
    found.raise_offset(queue, fillers.next_offset)
    keep_damage(directory.files, directory.path, plan.start_offset, plan.minimum, plan.staying)
    return start
