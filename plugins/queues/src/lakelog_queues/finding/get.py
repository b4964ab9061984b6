"""Gets messages of one queue from a queue offset on, as objects, as bytes or as Arrow columns.

The common call is tried in compiled code, and then in a fast path here. For any other,
:mod:`~lakelog_queues.finding.selection` determines the result and its status.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import attrs

from lakelog.format.record_batch import RecordBatch
from lakelog.hooks import QueueReader
from lakelog.lazy import np
from lakelog.log.log_reader import LogReader
from lakelog_queues.finding.records import PlacedRecords
from lakelog_queues.finding.results import (
    NO_LOOKUPS,
    ColumnsResult,
    GetResult,
    GetStatus,
    Lookups,
    PlacedResult,
    RecordsResult,
)
from lakelog_queues.finding.selection import UNITS_PER_FILE, GetSelection, Selector, wanted
from lakelog_queues.units.tags import code_filter, tag_filter

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

MOST_MESSAGES: Final = 4096
"""Largest number of messages whose units are read at once."""
DEFAULT_MESSAGES: Final = 32


class QueueGetter:
    """Reads queues; thread-safe."""

    def __init__(
        self,
        queues: QueueReader,
        log: LogReader,
        minimum: Callable[[], int],
        units_per_file: int = UNITS_PER_FILE,
        lookups: Lookups = NO_LOOKUPS,
    ) -> None:
        """Create a getter; reads no file.

        :param minimum: returns the physical offset of the first byte still in the log
        :param units_per_file: number of units in a file of a queue, for the next offset after
            ``OFFSET_FOUND_NULL``
        :param lookups: the compiled form, tried first by :meth:`get` without ``max_bytes`` and by
            :meth:`get_records`
        """
        self._queues = queues
        self._log = PlacedRecords(log)
        self._minimum = minimum
        self._selector = Selector(queues, self._log, minimum, units_per_file)
        self._lookups = lookups

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
        :returns: the messages, RocketMQ's status, and the offset at which to continue; see
            :mod:`lakelog_queues.finding.selection`

        Raises ``TypeError`` for arguments of a wrong type. Raises ``ValueError`` for a queue id
        below 0, ``max_messages`` below 1, or ``tags`` without a tag.
        """
        wanted_tags = tag_filter(topic, tags)
        if max_bytes is None:
            plain = self._lookups.get(topic, queue_id, offset, max_messages, wanted_tags)
            if plain is not None:
                return plain
        want = wanted((topic, queue_id), offset, max_messages, max_bytes, wanted_tags)
        if (few := self._few(want)) is not None:
            return few
        found = self._selector.select(want, _by_message)
        read = [message for each in found.batches for message in each.decoded]
        return GetResult(found.status, read, found.next_offset, found.min_offset, found.max_offset)

    def _few(self, want: GetSelection) -> GetResult | None:
        """The result of the common call: all messages exist, are whole and stand close together.

        ``None`` for any other call, such as one that meets a damaged record or the end of a file.
        """
        if want.tags is not None or want.max_messages > MOST_MESSAGES:
            return None
        bounds, first = self._queues.bounds(want.queue, self._minimum()), want.offset
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
        places = [each.queue_offset for each in plain.messages]
        is_own = all(each.topic == topic for each in plain.messages)
        if is_own and all(a < b for a, b in pairwise([offset - 1, *places, plain.next_offset])):
            bounds = plain.min_offset, plain.max_offset
            return PlacedResult(plain.status, plain.messages, plain.next_offset, *bounds, places)
        # A light queue, which holds messages of other queues.
        want = wanted((topic, queue_id), offset, max_messages, None, tag_filter(topic, tags))
        found = self._selector.select(want, _by_message)
        read = [message for each in found.batches for message in each.decoded]
        places = [place for each in found.queue_offsets for place in each.tolist()]
        bounds = found.min_offset, found.max_offset
        return PlacedResult(found.status, read, found.next_offset, *bounds, places)

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
            return RecordsResult(
                GetStatus.FOUND if plain[0] else GetStatus.NO_MATCHED_MESSAGE, *plain
            )
        found = self._selector.select(attrs.evolve(want, verify=verify), _by_code)
        return RecordsResult(
            found.status,
            [bytes(batch.record(at)) for batch in found.batches for at in range(len(batch))],
            [place for each in found.queue_offsets for place in each.tolist()],
            found.next_offset,
            found.min_offset,
            found.max_offset,
        )

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
        found = self._selector.select(want, _by_column)
        return ColumnsResult(
            found.status,
            _joined(found.batches, names, decompress),
            found.next_offset,
            found.min_offset,
            found.max_offset,
        )


def _by_message(batch: RecordBatch, tags: frozenset[str]) -> NDArray[np.bool_]:
    return np.fromiter((each in tags for each in batch.tags), np.bool_, len(batch))


def _by_code(batch: RecordBatch, _tags: frozenset[str]) -> NDArray[np.bool_]:
    return np.ones(len(batch), np.bool_)


def _by_column(batch: RecordBatch, tags: frozenset[str]) -> NDArray[np.bool_]:
    import pyarrow as pa
    import pyarrow.compute as pc

    from lakelog.arrow import to_arrow

    found = to_arrow(batch, ["tags"])["tags"]
    good: NDArray[np.bool_] = pc.is_in(found, pa.array(sorted(tags))).to_numpy(zero_copy_only=False)
    return good


def _joined(batches: list[RecordBatch], names: list[str], decompress: bool) -> pa.RecordBatch:
    import pyarrow as pa

    from lakelog.arrow import empty, to_arrow

    made = [to_arrow(each, names, decompress) for each in batches]
    if len(made) == 1:
        return made[0]
    return pa.concat_batches(made) if made else empty(names)
