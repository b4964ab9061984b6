"""The append callback, which encodes messages as records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from lakelog_format.status import AppendStatus

if TYPE_CHECKING:
    from lakelog_format.codec.encoded import EncodedBatch
    from lakelog_format.fields.queue_offsets import QueueOffsets
    from lakelog_format.message import Message, StoredMessage


@runtime_checkable
class AppendCallback(Protocol):
    """Encodes messages as records.

    A callback that changes bodies before it stores them also implements :class:`BodyDecoder`.
    """

    def encode(self, messages: Sequence[Message]) -> EncodedBatch:
        """Encode messages outside the append lock, except for fields that depend on the position.

        Raises :class:`~lakelog.errors.IllegalMessage`.
        """

    def place(
        self,
        batch: EncodedBatch,
        position: int,
        remaining: int,
        queue_offsets: QueueOffsets,
        now_ms: int,
    ) -> AppendStatus:
        """Fill in the fields that depend on the position, inside the append lock.

        Must read ``queue_offsets`` without changing it: after the write, the store lets the batch
        advance it.

        :param position: physical offset of the batch, in bytes
        :param remaining: bytes left in the segment
        :param now_ms: the store time, in ms since 1970
        :returns: ``PUT_OK`` if ``batch.buffer`` is ready to be written; ``END_OF_FILE`` if it does
            not fit into this segment; another status if it fits into none
        """


@runtime_checkable
class BodyDecoder(Protocol):
    """An append callback that changes bodies before it stores them, by compression or encryption.

    Stores that are open for reading create one too, with ``context.read_only``.
    """

    def decode(self, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        """The same messages, in order, with their original bodies.

        Each gets another ``body``, and another ``sys_flag`` where that describes the body. All
        other fields stay, including ``body_crc``, which covers the stored body. Messages that this
        callback did not encode, such as older ones, are returned unchanged.

        Called from any thread, with the messages of one read. Dispatchers, recovery, ``verify`` and
        ``repair`` use stored bytes and never call it. An exception ends the read.
        """
