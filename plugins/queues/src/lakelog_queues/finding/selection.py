"""Which records of a queue a call gets: RocketMQ's ``DefaultMessageStore.getMessage`` of 5.3.3.

At most ``max(800, max_messages)`` queue offsets are looked at in one call, as there (16,000 bytes
of units), so that a rare tag ends with ``NO_MATCHED_MESSAGE`` and a ``next_offset`` further on.
Three things differ: a call goes on behind the end of a queue's file; the broker's own limits for
one transfer (32 messages, 256 KiB) do not apply; and a unit that leads to no whole record (a place
past the log's end, a length of 0 or less, a damaged record) is passed over and logged, while units
behind it are served. Where such units are all there is, the status is ``MESSAGE_WAS_REMOVING``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

import attrs
import numpy as np
from numpy.typing import NDArray

from lakelog.codec import RecordBatch
from lakelog.format.queue_offsets import Queue
from lakelog.format.units import Ints, Longs, Units
from lakelog.interfaces import QueueReader
from lakelog.log.reading.gather import BROKEN, WHOLE, Gathered
from lakelog.runtime.arguments import queue_name, whole
from lakelog_queues.finding.results import GetStatus
from lakelog_queues.finding.tagfilter import TagFilter

MOST_BYTES: Final = 128 << 20
_LEAST_BYTES: Final = 100
_FILTER_BYTES: Final = 16000
_UNIT_BYTES: Final = {"SimpleCQ": 20, "BatchCQ": 46}
FILTERED_UNITS: Final = _FILTER_BYTES // 20
UNITS_PER_FILE: Final = 300_000
_log = logging.getLogger("lakelog")

TagCheck = Callable[[RecordBatch, frozenset[str]], NDArray[np.bool_]]
"""Which records of a batch have one of some tags."""


class RecordAccess(Protocol):
    """The part of :class:`~lakelog.log.reading.log_reader.LogReader` that is needed here."""

    def gather(self, offsets: Longs, sizes: Ints, *, verify: bool = True) -> Gathered:
        """Whole records at given places."""


@attrs.frozen
class GetSelection:
    """What a call asks for.

    :ivar max_messages: 1 or more
    :ivar max_bytes: of all records together; one record is given however long it is
    :ivar tags: the messages wanted, or ``None`` for all of them
    :ivar verify: whether checksums are computed; lengths and places are always checked
    """

    queue: Queue
    offset: int
    max_messages: int
    max_bytes: int
    tags: TagFilter | None
    verify: bool = True


def wanted(
    queue: Queue, offset: int, max_messages: int, max_bytes: int | None, tags: TagFilter | None
) -> GetSelection:
    """Check what a call asks for; raises ``TypeError`` and ``ValueError``."""
    at, most_messages = whole("offset", offset, None), whole("max_messages", max_messages, 1)
    most = MOST_BYTES
    if max_bytes is not None:
        most = min(max(whole("max_bytes", max_bytes), _LEAST_BYTES), MOST_BYTES)
    return GetSelection(queue_name(*queue), at, most_messages, most, tags)


@attrs.define(eq=False)
class Selection:
    """What a call gets.

    :ivar batches: the records, in the order of the queue
    :ivar count: messages in them; a record of a batch has several
    :ivar bytes: of all records together
    :ivar passed_over: queue offset, offset and size of units that lead to no whole record
    """

    status: GetStatus
    next_offset: int
    min_offset: int = 0
    max_offset: int = 0
    batches: list[RecordBatch] = attrs.field(factory=list)
    count: int = 0
    bytes: int = 0
    passed_over: list[tuple[int, int, int]] = attrs.field(factory=list)


class Selector:
    """Selects records of queues."""

    def __init__(
        self,
        queues: QueueReader,
        log: RecordAccess,
        minimum: Callable[[], int],
        units_per_file: int,
    ) -> None:
        self._queues = queues
        self._log = log
        self._minimum = minimum
        self._units_per_file = units_per_file

    def select(self, want: GetSelection, check_tags: TagCheck) -> Selection:
        """The records that ``want`` asks for, or why there are none."""
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
        """One line for each call; what was deleted while it ran is no damage."""
        minimum = self._minimum() if found.passed_over else 0
        broken = [each for each in found.passed_over if not 0 <= each[1] < minimum]
        if broken:
            more = f", as are {len(broken) - 1} more up to {broken[-1][0]}" if broken[1:] else ""
            _log.warning(
                "%s: queue offset %d leads to no whole record (offset %d, %d bytes); passed over%s",
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
            if len(units) and units.queue_offsets[0] >= end:  # places are empty up to there
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
        """The queue should hold something here; RocketMQ goes on in the next file."""
        if found.count or found.next_offset != want.offset:
            return
        found.status = GetStatus.OFFSET_FOUND_NULL
        per_file = self._units_per_file if kind == "SimpleCQ" else 1
        found.next_offset += per_file - found.next_offset % per_file
        _log.warning("%s: no unit can be read at queue offset %d", want.queue, want.offset)

    def _take(
        self, want: GetSelection, found: Selection, units: Units, check_tags: TagCheck
    ) -> bool:
        """Take what is wanted of ``units``; whether the call has all it may have."""
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
                units.offsets[chosen], units.sizes[chosen], verify=want.verify
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
                found.count += int(these.counts.sum())
                found.bytes += int(these.sizes.sum(dtype=np.int64))
        if found.count:
            found.status = GetStatus.FOUND
        else:
            last = len(missing) and missing[-1] == len(units) - 1
            found.status = GetStatus.MESSAGE_WAS_REMOVING if last else GetStatus.NO_MATCHED_MESSAGE


def _outside(offset: int, minimum: int, maximum: int) -> tuple[GetStatus | None, int]:
    """The status of an offset at which the queue holds nothing, and where to go on."""
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
    """The first unit that the call has no room for, wanted or not, as RocketMQ looks at it."""
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
