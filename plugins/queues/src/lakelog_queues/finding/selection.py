"""Selects the records of a queue that one call returns.

Source: RocketMQ 5.3.3, ``DefaultMessageStore.getMessage``. As there, one call examines at most
``max(800, max_messages)`` queue offsets (16,000 bytes of units). So a call for a rare tag may
return ``NO_MATCHED_MESSAGE`` and a larger ``next_offset``.

There are three differences. A call continues past the end of a queue's file. The broker's limits
for one transfer (32 messages, 256 KiB) do not apply. A unit that leads to no whole record (because
its offset is past the end of the log, its size is 0 or less, or the record is damaged) is skipped
and logged, and later units are served. If no unit leads to a whole record, the status is
``MESSAGE_WAS_REMOVING``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from lakelog.arguments import whole
from lakelog.format.queue_offsets import Longs, Queue, Units
from lakelog.format.record_batch import RecordBatch
from lakelog.hooks import QueueReader
from lakelog.lazy import np
from lakelog_queues.arguments import queue_name
from lakelog_queues.finding.records import BROKEN, WHOLE, Gathered, PlacedRecords
from lakelog_queues.finding.results import GetStatus
from lakelog_queues.units.tags import TagFilter

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_BYTES: Final = 128 << 20
_LEAST_BYTES: Final = 100
_FILTER_BYTES: Final = 16000
_UNIT_BYTES: Final = {"SimpleCQ": 20, "BatchCQ": 46}
FILTERED_UNITS: Final = _FILTER_BYTES // 20
UNITS_PER_FILE: Final = 300_000
_log = logging.getLogger("lakelog")
TagCheck: TypeAlias = "Callable[[RecordBatch, frozenset[str]], NDArray[np.bool_]]"
"""Returns for each record of a batch whether it has one of the tags."""


@attrs.frozen
class GetSelection:
    """The validated arguments of a call.

    :ivar offset: the first queue offset
    :ivar max_messages: 1 or more
    :ivar max_bytes: limit for the sum of the record lengths; the first record is returned even if
        it is longer
    :ivar tags: selects messages; ``None`` selects all
    :ivar verify: whether checksums are verified; lengths and offsets are always checked
    :ivar pack_bodies: whether the caller needs the bodies back to back
    """

    queue: Queue
    offset: int
    max_messages: int
    max_bytes: int
    tags: TagFilter | None
    verify: bool = True
    pack_bodies: bool = False


def wanted(
    queue: Queue, offset: int, max_messages: int, max_bytes: int | None, tags: TagFilter | None
) -> GetSelection:
    """Validate the arguments of a call; raises ``TypeError`` and ``ValueError``."""
    at, most_messages = whole("offset", offset, None), whole("max_messages", max_messages, 1)
    most = MOST_BYTES
    if max_bytes is not None:
        most = min(max(whole("max_bytes", max_bytes), _LEAST_BYTES), MOST_BYTES)
    return GetSelection(queue_name(*queue), at, most_messages, most, tags)


@attrs.define(eq=False)
class Selection:
    """The records that a call returns.

    :ivar batches: the records, in the order of the queue
    :ivar queue_offsets: for each batch, the queue offset of each record
    :ivar count: number of messages in them; a batch record holds several
    :ivar bytes: sum of the record lengths
    :ivar passed_over: queue offset, physical offset and size of each unit that leads to no whole
        record
    """

    status: GetStatus
    next_offset: int
    min_offset: int = 0
    max_offset: int = 0
    batches: list[RecordBatch] = attrs.field(factory=list)
    queue_offsets: list[Longs] = attrs.field(factory=list)
    count: int = 0
    bytes: int = 0
    passed_over: list[tuple[int, int, int]] = attrs.field(factory=list)


class Selector:
    """Selects records of queues."""

    def __init__(
        self,
        queues: QueueReader,
        log: PlacedRecords,
        minimum: Callable[[], int],
        units_per_file: int,
    ) -> None:
        self._queues = queues
        self._log = log
        self._minimum = minimum
        self._units_per_file = units_per_file

    def select(self, want: GetSelection, check_tags: TagCheck) -> Selection:
        """The selected records, or the reason why there are none.

        :param check_tags: compares the tags themselves, as different tags may have the same hash
        """
        bounds = self._queues.bounds(want.queue, self._minimum())
        if bounds is None:
            return Selection(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
        status, next_offset = _outside(want.offset, *bounds)
        if status is not None:
            return Selection(status, next_offset, *bounds)
        found = Selection(GetStatus.NO_MATCHED_MESSAGE, want.offset, *bounds)
        self._walk(want, found, check_tags)
        self._report(want.queue, found)
        return found

    def _report(self, queue: Queue, found: Selection) -> None:
        """Log one line for each call; a record that was deleted during the call is no damage."""
        minimum = self._minimum() if found.passed_over else 0
        broken = [each for each in found.passed_over if not 0 <= each[1] < minimum]
        if broken:
            more = f", and {len(broken) - 1} more up to {broken[-1][0]}" if broken[1:] else ""
            _log.warning(
                "%s: queue offset %d leads to no whole record (offset %d, %d bytes); skipped%s",
                *(queue, *broken[0], more),
            )

    def _walk(self, want: GetSelection, found: Selection, check_tags: TagCheck) -> None:
        kind = self._queues.kind(want.queue)
        reach = max(-(-_FILTER_BYTES // _UNIT_BYTES.get(kind, 20)), want.max_messages)
        end = min(want.offset + reach, found.max_offset)
        while found.next_offset < end:
            at = found.next_offset
            most = end - at if want.tags else min(end - at, want.max_messages - found.count)
            units = self._queues.units(want.queue, at, most)
            # A queue may have no units up to a later offset. Continue there, with a new limit of
            # examined offsets, unless the call already has messages.
            if len(units) and units.queue_offsets[0] >= end:
                found.next_offset = int(units.queue_offsets[0])
                if found.count:
                    return
                end = min(found.next_offset + reach, found.max_offset)
            units = units[units.queue_offsets < end]
            if not len(units):
                self._nothing_there(want, found, kind)
                return
            if self._take(want, found, units, check_tags):
                return

    def _nothing_there(self, want: GetSelection, found: Selection, kind: str) -> None:
        """Handle an offset in bounds that has no unit: continue in the next file, as RocketMQ."""
        if found.count or found.next_offset != want.offset:
            return
        found.status = GetStatus.OFFSET_FOUND_NULL
        per_file = self._units_per_file if kind == "SimpleCQ" else 1
        found.next_offset += per_file - found.next_offset % per_file
        _log.warning("%s: queue offset %d has no unit in its file", want.queue, want.offset)

    def _take(
        self, want: GetSelection, found: Selection, units: Units, check_tags: TagCheck
    ) -> bool:
        """Add the selected records of ``units``; returns whether the call is complete."""
        hits = (
            np.ones(len(units), np.bool_)
            if want.tags is None
            else want.tags.may_match(units.tags_codes)
        )
        full = _first_beyond(want, found, units, hits)
        if full == 0:
            return True
        units, hits = units[:full], hits[:full]
        found.next_offset = int(units.queue_offsets[-1]) + max(int(units.counts[-1]), 1)
        chosen = np.flatnonzero(hits)
        if len(chosen):
            gathered = self._log.gather(
                units.offsets[chosen],
                units.sizes[chosen],
                verify=want.verify,
                pack_bodies=want.pack_bodies,
            )
            self._keep(want, found, units, chosen, gathered, check_tags)
        elif not found.count:
            found.status = GetStatus.NO_MATCHED_MESSAGE
        return found.count >= want.max_messages

    def _keep(
        self,
        want: GetSelection,
        found: Selection,
        units: Units,
        chosen: Longs,
        gathered: Gathered,
        check_tags: TagCheck,
    ) -> None:
        missing = chosen[gathered.states != WHOLE]
        found.passed_over += _places(units, chosen[gathered.states == BROKEN])
        for batch, rows in zip(gathered.batches, gathered.rows, strict=True):
            tagged = np.ones(len(rows), np.bool_)
            if want.tags is not None:
                tagged = check_tags(batch, want.tags.tags)
            these = units[chosen[rows[tagged]]]
            if len(these):
                found.batches.append(batch if tagged.all() else batch.take(tagged))
                found.queue_offsets.append(these.queue_offsets)
                found.count += int(these.counts.sum())
                found.bytes += int(these.sizes.sum(dtype=np.int64))
        if found.count:
            found.status = GetStatus.FOUND
        else:
            last = len(missing) and missing[-1] == len(units) - 1
            found.status = GetStatus.MESSAGE_WAS_REMOVING if last else GetStatus.NO_MATCHED_MESSAGE


def _outside(offset: int, minimum: int, maximum: int) -> tuple[GetStatus | None, int]:
    """The status and next offset for an offset out of bounds; no status if it is in bounds."""
    if maximum == 0:
        return GetStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < minimum:
        return GetStatus.OFFSET_TOO_SMALL, minimum
    if offset == maximum:
        return GetStatus.OFFSET_OVERFLOW_ONE, offset
    if offset > maximum:
        return GetStatus.OFFSET_OVERFLOW_BADLY, maximum
    return None, offset


def _first_beyond(
    want: GetSelection, found: Selection, units: Units, hits: NDArray[np.bool_]
) -> int:
    """The index of the first unit that exceeds a limit of the call, else the number of units.

    As in RocketMQ, a unit is compared with the limits before its tags are checked.
    """
    sizes = np.maximum(units.sizes, 0).astype(np.int64)
    counts = units.counts.astype(np.int64)
    counts_before = found.count + np.cumsum(counts * hits) - counts * hits
    bytes_before = found.bytes + np.cumsum(sizes * hits) - sizes * hits
    beyond = (counts_before + counts > want.max_messages) | (bytes_before + sizes > want.max_bytes)
    beyond &= counts_before > 0
    return int(beyond.argmax()) if beyond.any() else len(units)


def _places(units: Units, rows: Longs) -> list[tuple[int, int, int]]:
    columns = (units.queue_offsets, units.offsets, units.sizes)
    return list(zip(*(each[rows].tolist() for each in columns), strict=True))
