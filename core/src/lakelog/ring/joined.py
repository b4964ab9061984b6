"""Entries of several producers, appended as one batch: one lock, one write, one sync for all.

A part that is refused, such as one that would make a light queue too many, refuses only itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lakelog.codec.encoded import EncodedBatch
from lakelog.codec.pieces import Tentative
from lakelog.errors import PutRefused
from lakelog.layout import BLANK_MIN_BYTES
from lakelog.queueoffsets import QueueOffsets
from lakelog.results import PutResult
from lakelog.ring.arena import Arena
from lakelog.ring.taken import Taken
from lakelog.status import AppendStatus, PutStatus

_REFUSALS = {
    AppendStatus.MESSAGE_SIZE_EXCEEDED: (
        PutStatus.MESSAGE_SIZE_EXCEEDED,
        "a record is larger than max_message_size_bytes allows",
    ),
    AppendStatus.PROPERTIES_SIZE_EXCEEDED: (
        PutStatus.PROPERTIES_SIZE_EXCEEDED,
        "the properties are too long once the offsets in light queues stand in them",
    ),
}


class JoinedBatch(EncodedBatch):
    """The batches of entries, back to back; each entry knows where it goes before it is written.

    :ivar buffer: complete after :meth:`place`, and empty before
    :ivar parts: the entries that have something to append
    :ivar refused: those that :meth:`place` refused, each with its error; told by :meth:`answer`
    """

    __slots__ = ("_accepted", "_arena", "parts", "refused")

    def __init__(self, parts: Sequence[Taken], arena: Arena | None = None) -> None:
        """:param arena: where all entries were copied that were taken since it was reset"""
        self.parts = [each for each in parts if each.batch is not None]
        self.refused: list[tuple[Taken, PutRefused]] = []
        self.buffer = bytearray()
        self.count = sum(each.count for each in self.parts)
        self.wait = any(each.wait for each in self.parts)
        self._accepted: list[Taken] = []
        self._arena = arena

    def place(
        self, position: int, remaining: int, queue_offsets: QueueOffsets, now_ms: int
    ) -> AppendStatus:
        """Place one part behind the other.

        Raises the first :class:`~lakelog.errors.PutRefused` where all of them are refused.
        """
        if sum(len(_batch(each).buffer) for each in self.parts) + BLANK_MIN_BYTES > remaining:
            return AppendStatus.END_OF_FILE
        self.refused, self._accepted = [], []
        offsets = Tentative(queue_offsets) if len(self.parts) > 1 else queue_offsets
        end = position + remaining
        for part in self.parts:
            status = self._place(part, position, end - position, offsets, now_ms)
            if status is AppendStatus.END_OF_FILE:
                return status
            if status is AppendStatus.PUT_OK:
                self._accepted.append(part)
                position += len(_batch(part).buffer)
                if offsets is not queue_offsets:
                    _batch(part).advance(offsets)
        if not self._accepted:
            raise self.refused[0][1]
        self._join()
        return AppendStatus.PUT_OK

    def _place(
        self, part: Taken, position: int, remaining: int, offsets: QueueOffsets, now_ms: int
    ) -> AppendStatus:
        try:
            status = _batch(part).place(position, remaining, offsets, now_ms)
        except PutRefused as error:
            self.refused.append((part, error))
            return AppendStatus.UNKNOWN_ERROR
        if status is AppendStatus.PUT_OK:
            part.intend(position, now_ms)
        elif status is not AppendStatus.END_OF_FILE:
            self.refused.append((part, PutRefused(*_REFUSALS[status])))
        return status

    def _join(self) -> None:
        """All that goes to the log, without a copy where it stands side by side already."""
        buffers: list[Any] = [_batch(each).buffer for each in self._accepted]
        joined = self._in_place(buffers)
        self.buffer = bytearray().join(buffers) if joined is None else joined

    def _in_place(self, buffers: list[Any]) -> Any:
        if len(buffers) == 1:
            return buffers[0]
        if self._arena is None:
            return None
        if any(_batch(each).buffer is not each.parts.records for each in self._accepted):
            return None
        return self._arena.joined(buffers)

    def advance(self, queue_offsets: QueueOffsets) -> None:
        """Take the offsets of all parts that were not refused."""
        for each in self._accepted:
            _batch(each).advance(queue_offsets)

    def results(self, status: PutStatus) -> Sequence[PutResult]:
        """Nobody asks: the producers make them, from their answers."""
        raise NotImplementedError("the results of what was taken are the producers' to make")

    def answer(self, status: PutStatus) -> None:
        """Tell each part what became of it, once that is known."""
        for part, error in self.refused:
            part.refuse(error)
        for part in self._accepted:
            part.answer(status)

    def refuse(self, error: BaseException) -> None:
        """The append failed: each part is refused, by its own error where it has one."""
        own = {id(part): its for part, its in self.refused}
        for part in self.parts:
            part.refuse(own.get(id(part), error))


def _batch(part: Taken) -> EncodedBatch:
    batch = part.batch
    assert batch is not None, "parts without one are left out"
    return batch
