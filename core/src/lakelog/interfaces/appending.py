"""The append callback: messages to the bytes of records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from lakelog.status import AppendStatus

if TYPE_CHECKING:
    from lakelog.codec.encoded import EncodedBatch
    from lakelog.format.queue_offsets import QueueOffsets
    from lakelog.message import Message, StoredMessage


@runtime_checkable
class AppendCallback(Protocol):
    """Turns messages into the bytes of records.

    One that stores bodies otherwise than they are put is a :class:`BodyDecoder`, too.
    """

    def encode(self, messages: Sequence[Message]) -> EncodedBatch:
        """Encode outside the append lock.

        What depends on the place in the log is left open. Raises
        :class:`~lakelog.errors.IllegalMessage`.
        """

    def place(
        self,
        batch: EncodedBatch,
        position: int,
        remaining: int,
        queue_offsets: QueueOffsets,
        now_ms: int,
    ) -> AppendStatus:
        """Fill in what depends on the place, inside the append lock.

        :param position: physical offset at which the batch will stand, in bytes
        :param remaining: bytes left in the segment
        :returns: ``PUT_OK`` when ``batch.buffer`` can be written as it now is; ``END_OF_FILE``
            when it does not fit into this segment; another status when it fits nowhere.
            ``queue_offsets`` is read, never changed: the store lets the batch advance it once the
            bytes are written.
        """


@runtime_checkable
class BodyDecoder(Protocol):
    """An append callback that stores bodies otherwise than they are put: compressed, encrypted.

    It is made in stores that are open for reading, too, with ``context.read_only``.
    """

    def decode(self, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        """The same messages, in order, with the bodies that were put.

        Each has another ``body``, and where that tells of the body another ``sys_flag``; all else
        stays, also ``body_crc``, which is of the body as stored. Messages that this callback did
        not make, such as those put before it was chosen, are returned as they are.

        Called from any thread, with some of what a read found, and never by what looks at stored
        bytes: dispatchers, recovery, ``verify`` and ``repair``. Whatever it raises ends the read.
        """
