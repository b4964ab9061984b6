"""Gets messages of one queue from a queue offset on, as objects, as bytes or as Arrow columns.

The common call is tried in compiled code, and then in a fast path here. For any other,
``QueueGetter._select`` determines the records and the status.

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
from collections.abc import Callable, Collection, Iterable
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from lakelog.arguments import queue_name, whole
from lakelog.format.queue_offsets import Flags, Longs, Queue, Units
from lakelog.format.record_batch import RecordBatch
from lakelog.hooks import QueueReader
from lakelog.lazy import np
from lakelog.message import StoredMessage
from lakelog_queues.finding.records import BROKEN, WHOLE, Gathered, PlacedRecords
from lakelog_queues.finding.results import (
    NO_LOOKUPS,
    ColumnsResult,
    GetResult,
    GetStatus,
    Lookups,
    PlacedResult,
    RecordsResult,
)
from lakelog_queues.units.tags import TagFilter, code_filter, tag_filter

if TYPE_CHECKING:
    import pyarrow as pa

MOST_BYTES: Final = 128 << 20
_LEAST_BYTES: Final = 100
_FILTER_BYTES: Final = 16000
_UNIT_BYTES: Final = {"SimpleCQ": 20, "BatchCQ": 46}
_queue_offset, _topic = attrgetter("queue_offset"), attrgetter("topic")
FILTERED_UNITS: Final = _FILTER_BYTES // 20
UNITS_PER_FILE: Final = 300_000
_log = logging.getLogger("lakelog")
Bounds: TypeAlias = tuple[int, int]
"""The first queue offset, and the one behind the last."""
TagCheck: TypeAlias = "Callable[[RecordBatch, frozenset[str]], Flags]"
"""Returns for each record of a batch whether it has one of the tags."""
MOST_MESSAGES: Final = 4096
"""Largest number of messages whose units are read at once."""
DEFAULT_MESSAGES: Final = 32


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

    @property
    def messages(self) -> list[StoredMessage]:
        """The messages; a batch record is one."""
        return [message for each in self.batches for message in each.decoded]

    @property
    def places(self) -> list[int]:
        """The queue offset of each record."""
        return [place for each in self.queue_offsets for place in each.tolist()]

    @property
    def bounds(self) -> tuple[int, int, int]:
        """Where to continue, and the first and the next future offset of the queue."""
        return self.next_offset, self.min_offset, self.max_offset


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


def _first_beyond(want: GetSelection, found: Selection, units: Units, hits: Flags) -> int:
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


@attrs.frozen
class QueueGetter:
    """Reads queues; thread-safe.

    :param log: the reader of the log
    :param minimum: brings the queues up to date, and returns the physical offset of the first byte
        still in the log
    :param units_per_file: number of units in a file of a queue, for the next offset after
        ``OFFSET_FOUND_NULL``
    :param lookups: the compiled form, tried first by :meth:`get` without ``max_bytes`` and by
        :meth:`get_records`
    :param catch_up: brings the queues up to the readable end of the log; called only by reads that
        reach the end of a queue, as reads of older messages need not wait for newer ones
    """

    _queues: QueueReader
    _log: PlacedRecords = attrs.field(converter=PlacedRecords)
    _minimum: Callable[[], int]
    _units_per_file: int = UNITS_PER_FILE
    _lookups: Lookups = NO_LOOKUPS
    _catch_up: Callable[[], object] = lambda: None

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int = DEFAULT_MESSAGES,
        *,
        max_bytes: int | None = None,
        tags: str | None = None,
    ) -> GetResult:
        """Messages from queue offset ``offset`` on.

        Each message has the values of its own record. A message found through a light queue has
        the topic, queue id and queue offset of its own queue. A batch record is one message.

        :param max_bytes: limit for the sum of the record lengths, at least 100 bytes and at most
            128 MiB; the first message is returned even if it is longer
        :param tags: ``"TagA || TagB"``; ``None`` and ``"*"`` mean all messages
        :returns: the messages, RocketMQ's status, and the offset at which to continue

        Raises ``TypeError`` for arguments of a wrong type. Raises ``ValueError`` for a queue id
        below 0, ``max_messages`` below 1, or ``tags`` without a tag.
        """
        wanted_tags = None if tags is None else tag_filter(topic, tags)
        if max_bytes is None:
            plain = self._lookups.get(topic, queue_id, offset, max_messages, wanted_tags)
            if plain is not None and (
                plain.next_offset < plain.max_offset
                or len(plain.messages) >= max_messages
                or self._is_end((topic, queue_id), plain.max_offset)
            ):
                return plain
        want = wanted((topic, queue_id), offset, max_messages, max_bytes, wanted_tags)
        bounds = self._bounds(want)
        if (few := self._few(want, bounds)) is not None:
            return few
        found = self._select(want, bounds, _by_message)
        return GetResult(found.status, found.messages, *found.bounds)

    def _is_end(self, queue: Queue, offset: int) -> bool:
        """Whether the queue ends at ``offset``, with all messages that are readable now."""
        self._catch_up()
        bounds = self._queues.bounds(queue, self._minimum())
        return bounds is not None and bounds[1] == offset

    def _bounds(self, want: GetSelection) -> Bounds | None:
        """The bounds of the queue; up to date if the call reaches its end."""
        bounds = self._queues.bounds(want.queue, self._minimum())
        reach = max(want.max_messages, FILTERED_UNITS) if want.tags else want.max_messages
        if bounds is None or want.offset + reach > bounds[1]:
            self._catch_up()
            bounds = self._queues.bounds(want.queue, self._minimum())
        return bounds

    def _few(self, want: GetSelection, bounds: Bounds | None) -> GetResult | None:
        """The result of the common call: all messages exist, are whole and stand close together.

        ``None`` for any other call, such as one that meets a damaged record or the end of a file.
        """
        if want.tags is not None or want.max_messages > MOST_MESSAGES:
            return None
        first = want.offset
        if bounds is None or not bounds[0] <= first < bounds[1]:
            return None
        count = min(want.max_messages, bounds[1] - first)
        units = self._queues.units(want.queue, first, count)
        if len(units) != count or int(units.queue_offsets[-1]) != first + count - 1:
            return None
        # for a few numbers, lists are faster than arrays
        is_too_much = sum(units.sizes.tolist()) > want.max_bytes
        if is_too_much or units.counts.tolist().count(1) != count:
            return None
        messages = self._log.few(units.offsets, units.sizes, verify=want.verify)
        if messages is None:
            return None
        return GetResult(GetStatus.FOUND, messages, first + count, *bounds)

    def get_placed(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int = DEFAULT_MESSAGES,
        *,
        tags: str | None = None,
    ) -> PlacedResult:
        """Like :meth:`get`, with the offset of each message in the queue that is read."""
        plain = self.get(topic, queue_id, offset, max_messages, tags=tags)
        places = list(map(_queue_offset, plain.messages))
        is_own = {topic}.issuperset(map(_topic, plain.messages))
        is_run = places == list(range(offset, plain.next_offset))
        ends = offset - 1, *places, plain.next_offset
        if is_own and (is_run or all(a < b for a, b in pairwise(ends))):
            bounds = plain.min_offset, plain.max_offset
            return PlacedResult(plain.status, plain.messages, plain.next_offset, *bounds, places)
        # A light queue, which holds messages of other queues.
        want = wanted((topic, queue_id), offset, max_messages, None, tag_filter(topic, tags))
        found = self._select(want, self._bounds(want), _by_message)
        return PlacedResult(found.status, found.messages, *found.bounds, found.places)

    def get_records(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_records: int = DEFAULT_MESSAGES,
        *,
        max_bytes: int | None = None,
        tags_codes: Collection[int] | None = None,
        verify: bool = True,
    ) -> RecordsResult:
        """Like :meth:`get`, as bytes.

        :param tags_codes: Java hashes of tags; a record is selected by the tags code of its unit
            alone, as RocketMQ's broker does, whose clients compare the tags. ``None`` selects all
        :param verify: whether checksums are verified; lengths and offsets are always checked
        """
        codes = None if tags_codes is None else code_filter(topic, tags_codes)
        want = wanted((topic, queue_id), offset, max_records, max_bytes, codes)
        queue = topic, queue_id, offset, max_records
        plain = self._lookups.records(*queue, want.max_bytes, bool(verify), codes)
        if plain is not None:
            status = GetStatus.FOUND if plain[0] else GetStatus.NO_MATCHED_MESSAGE
            result = RecordsResult(status, *plain)
            if (
                result.next_offset < result.max_offset
                or len(result.records) >= max_records
                or self._is_end(want.queue, result.max_offset)
            ):
                return result
        want = attrs.evolve(want, verify=verify)
        found = self._select(want, self._bounds(want), _all)
        records = [bytes(batch.record(at)) for batch in found.batches for at in range(len(batch))]
        return RecordsResult(found.status, records, found.places, *found.bounds)

    def get_columns(  # noqa: PLR0913  # all but three are optional, and given by name
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int = DEFAULT_MESSAGES,
        *,
        max_bytes: int | None = None,
        tags: str | None = None,
        columns: Iterable[str] | None = None,
        decompress: bool = False,
        verify: bool = True,
    ) -> ColumnsResult:
        """Like :meth:`get`, as an Arrow record batch; see :func:`lakelog.arrow.to_arrow`.

        :param columns: names of :data:`lakelog.arrow.COLUMNS`; ``None`` is all. A column that is
            not requested costs nothing
        :param decompress: whether compressed bodies are decompressed
        :param verify: whether checksums are verified, which takes up to a third of the time if
            bodies are short; lengths and offsets are always checked. Checksums also detect damage
            by the disk to records that this process wrote

        Raises ``ImportError`` without pyarrow, and the errors of :meth:`get` and ``to_arrow``.
        """
        from lakelog.arrow import schema

        names = schema(columns).names
        want = wanted((topic, queue_id), offset, max_messages, max_bytes, tag_filter(topic, tags))
        pack = "body" in names and tags is None  # tags may leave few of them
        want = attrs.evolve(want, verify=verify, pack_bodies=pack)
        found = self._select(want, self._bounds(want), _by_column)
        batch = _joined(found.batches, names, decompress)
        return ColumnsResult(found.status, batch, *found.bounds)

    # --- the selected records of any call ---

    def _select(self, want: GetSelection, bounds: Bounds | None, check_tags: TagCheck) -> Selection:
        """The selected records, or the reason why there are none.

        :param check_tags: compares the tags themselves, as different tags may have the same hash
        """
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


def _by_message(batch: RecordBatch, tags: frozenset[str]) -> Flags:
    return np.fromiter((each in tags for each in batch.tags), np.bool_, len(batch))


def _all(batch: RecordBatch, _tags: frozenset[str]) -> Flags:
    return np.ones(len(batch), np.bool_)


def _by_column(batch: RecordBatch, tags: frozenset[str]) -> Flags:
    import pyarrow as pa
    import pyarrow.compute as pc

    from lakelog.arrow import to_arrow

    found = to_arrow(batch, ["tags"])["tags"]
    good: Flags = pc.is_in(found, pa.array(sorted(tags))).to_numpy(zero_copy_only=False)
    return good


def _joined(batches: list[RecordBatch], names: list[str], decompress: bool) -> pa.RecordBatch:
    import pyarrow as pa

    from lakelog.arrow import empty, to_arrow

    made = [to_arrow(each, names, decompress) for each in batches]
    if len(made) == 1:
        return made[0]
    return pa.concat_batches(made) if made else empty(names)
