"""The results of reading a queue, and the look-ups that compiled code may do."""

from __future__ import annotations

from enum import Enum, unique
from typing import TYPE_CHECKING, Any, Final

import attrs

from lakelog.message import StoredMessage

if TYPE_CHECKING:
    import pyarrow as pa


@unique
class GetStatus(Enum):
    """The status of a read, with the names of RocketMQ's ``GetMessageStatus``.

    ``FOUND``: there are messages. ``NO_MATCHED_MESSAGE``: none of those examined has the tags.
    ``MESSAGE_WAS_REMOVING``: the units point to no whole record. ``OFFSET_FOUND_NULL``: the queue
    has no unit at this offset. ``OFFSET_OVERFLOW_ONE``: the offset is the end of the queue.
    ``OFFSET_OVERFLOW_BADLY``: it is past the end. ``OFFSET_TOO_SMALL``: it is before the first
    existing one. ``NO_MATCHED_LOGIC_QUEUE``: there is no such queue. ``NO_MESSAGE_IN_QUEUE``: the
    queue has never had a message.
    """

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


@attrs.frozen
class GetResult:
    """Messages of one queue.

    :ivar status: ``FOUND``, or the reason why there are none
    :ivar messages: in the order of the queue
    :ivar next_offset: the queue offset at which to continue
    :ivar min_offset: the first existing queue offset
    :ivar max_offset: the queue offset of the next message to be written
    """

    status: GetStatus
    messages: list[StoredMessage]
    next_offset: int
    min_offset: int
    max_offset: int


@attrs.frozen
class PlacedResult(GetResult):
    """Messages of one queue with their places in it.

    :ivar queue_offsets: the offset of each message in the queue that was read. A message of a light
        queue has the offset in its own queue in ``StoredMessage.queue_offset``
    """

    queue_offsets: list[int]


@attrs.frozen
class RecordsResult:
    """Whole records of one queue as stored; other fields as in :class:`GetResult`.

    :ivar records: the bytes of each record, in RocketMQ's layout
        (core/docs/reference/format/commitlog.md)
    :ivar queue_offsets: the offset of each record in the queue that was read
    """

    status: GetStatus
    records: list[bytes]
    queue_offsets: list[int]
    next_offset: int
    min_offset: int
    max_offset: int


@attrs.frozen(eq=False)
class ColumnsResult:
    """Messages of one queue as an Arrow record batch; other fields as in :class:`GetResult`."""

    status: GetStatus
    batch: pa.RecordBatch
    next_offset: int
    min_offset: int
    max_offset: int


@attrs.frozen
class QueueInfo:
    """One queue.

    :ivar kind: ``SimpleCQ`` or ``BatchCQ``
    :ivar min_offset: the first existing queue offset
    :ivar max_offset: the queue offset of the next message to be written
    :ivar max_physical_offset: physical end offset of its last unit's record; 0 without a unit
    """

    topic: str
    queue_id: int
    kind: str
    min_offset: int
    max_offset: int
    max_physical_offset: int


class Lookups:
    """Looks up messages of an open store; a result of ``None`` means to do it in Python.

    This class always falls back. Compiled code has a class with the same methods, which may fall
    back for any arguments. All arguments are passed by position.
    """

    def close(self) -> None:
        """Close the file that is kept open between calls; no other is kept from now on."""

    def get(self, *_arguments: Any) -> GetResult | None:
        """Like ``QueueGetter.get``, with a ``TagFilter`` or ``None``."""

    def records(self, *_arguments: Any) -> tuple[list[bytes], list[int], int, int, int] | None:
        """The fields of ``QueueGetter.get_records`` behind the status, with valid arguments.

        Arguments: topic, queue id, offset, number of records, number of bytes, whether to verify
        checksums, and a ``TagFilter`` or ``None``.
        """

    def query(self, *_arguments: Any) -> list[StoredMessage] | None:
        """Like ``KeyQuery.query``."""

    def offset_by_time(self, *_arguments: Any) -> int | None:
        """Like ``TimeSearch.offset_by_time``."""


NO_LOOKUPS: Final = Lookups()
