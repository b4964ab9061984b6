"""What reading a queue gives."""

from __future__ import annotations

from enum import Enum, unique
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from lakelog.message import StoredMessage

if TYPE_CHECKING:
    import pyarrow as pa

    ArrowBatch: TypeAlias = pa.RecordBatch
else:
    ArrowBatch = Any


@unique
class GetStatus(Enum):
    """RocketMQ's ``GetMessageStatus``."""

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

    :ivar status: ``FOUND``, or why there are none
    :ivar messages: in the order of the queue
    :ivar next_offset: where to go on
    :ivar min_offset: the first queue offset that is there
    :ivar max_offset: the queue offset that the next message will take
    """

    status: GetStatus
    messages: list[StoredMessage]
    next_offset: int
    min_offset: int
    max_offset: int


@attrs.frozen(eq=False)
class ColumnsResult:
    """Messages of one queue as an Arrow record batch; else as :class:`GetResult`."""

    status: GetStatus
    batch: ArrowBatch
    next_offset: int
    min_offset: int
    max_offset: int


@attrs.frozen
class QueueInfo:
    """One queue.

    :ivar kind: ``SimpleCQ`` or ``BatchCQ``
    :ivar min_offset: the first queue offset that is there
    :ivar max_offset: the queue offset that the next message will take
    :ivar max_physical_offset: where the record of its last unit ends, in bytes; 0 if it has none
    """

    topic: str
    queue_id: int
    kind: str
    min_offset: int
    max_offset: int
    max_physical_offset: int
