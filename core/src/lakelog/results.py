"""The results of puts: one per message, or a sequence for a batch.

Outcomes of a put: RocketMQ's ``PutMessageStatus`` and ``AppendMessageStatus``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum, unique
from typing import TYPE_CHECKING, Any, overload

import attrs

from lakelog.format.message_id import format_message_id

if TYPE_CHECKING:
    from numpy.typing import NDArray


@unique
class PutStatus(Enum):
    """The outcome of a put.

    The first four mean that the message *is* in the log: ``PUT_OK`` is returned in a
    :class:`~lakelog.results.PutResult`, and the others are raised in a
    :class:`~lakelog.errors.NotDurable`, unless ``on_late`` is ``return``. All others
    mean that it is not, and are raised in a :class:`~lakelog.errors.PutRefused`.
    """

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    MESSAGE_SIZE_EXCEEDED = "MESSAGE_SIZE_EXCEEDED"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"

    @property
    def in_log(self) -> bool:
        """Whether a message with this outcome is in the log."""
        return self in _IN_LOG


_IN_LOG = frozenset(
    {
        PutStatus.PUT_OK,
        PutStatus.FLUSH_DISK_TIMEOUT,
        PutStatus.FLUSH_SLAVE_TIMEOUT,
        PutStatus.SLAVE_NOT_AVAILABLE,
    }
)


@unique
class AppendStatus(Enum):
    """The outcome of an append callback; internal to callback and log."""

    PUT_OK = "PUT_OK"
    END_OF_FILE = "END_OF_FILE"
    MESSAGE_SIZE_EXCEEDED = "MESSAGE_SIZE_EXCEEDED"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"


@attrs.define(slots=True)
class PutResult:
    """The result of a put whose message is in the log.

    :ivar status: ``PUT_OK``, or the status of the guarantee that was not met in time
    :ivar queue_offset: offset in its queue; 0 for prepared and rollback messages
    :ivar physical_offset: start of its record, in bytes from the start of the log
    :ivar size: length of its record in bytes
    :ivar store_timestamp_ms: time of the append, in ms since 1970
    :ivar store_host: the host in its message id
    """

    status: PutStatus
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    store_timestamp_ms: int
    store_host: str

    @property
    def message_id(self) -> str:
        """RocketMQ's offset message id."""
        return format_message_id(self.store_host, self.physical_offset)

    @property
    def end_offset(self) -> int:
        """End of the record, in bytes from the start of the log."""
        return self.physical_offset + self.size


@attrs.frozen(slots=True, eq=False)
class BatchResult(Sequence[PutResult]):
    """The results of one batch, in order, stored as columns.

    :ivar status: the status that all messages of the batch share
    :ivar queues: topic and queue of each message
    :ivar queue_offsets: ``int64``, one per message
    :ivar physical_offsets: ``int64``, one per message, in bytes from the start of the log
    :ivar sizes: ``int64``, record lengths in bytes
    :ivar store_timestamp_ms: time of the append of all messages, in ms since 1970
    :ivar store_hosts: the host in each message id
    """

    status: PutStatus
    queues: Sequence[tuple[str, int]]
    queue_offsets: NDArray[Any]
    physical_offsets: NDArray[Any]
    sizes: NDArray[Any]
    store_timestamp_ms: int
    store_hosts: Sequence[str]

    def __len__(self) -> int:
        return len(self.queues)

    @overload
    def __getitem__(self, index: int) -> PutResult: ...

    @overload
    def __getitem__(self, index: slice) -> list[PutResult]: ...

    def __getitem__(self, index: int | slice) -> PutResult | list[PutResult]:
        """One result, or a list of several."""
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        topic, queue_id = self.queues[index]
        return PutResult(
            self.status,
            topic,
            queue_id,
            int(self.queue_offsets[index]),
            int(self.physical_offsets[index]),
            int(self.sizes[index]),
            self.store_timestamp_ms,
            self.store_hosts[index],
        )

    def __iter__(self) -> Iterator[PutResult]:
        """Yield all results, in half the time of access by index."""
        status, stamp_ms = self.status, self.store_timestamp_ms
        offsets = self.queue_offsets.tolist(), self.physical_offsets.tolist(), self.sizes.tolist()
        for queue, at, place, size, host in zip(
            self.queues, *offsets, self.store_hosts, strict=True
        ):
            yield PutResult(status, queue[0], queue[1], at, place, size, stamp_ms, host)
