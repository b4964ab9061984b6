"""Puts in the background: encoded together, each with its own outcome.

A refused message must not affect the others of its burst.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from lakelog.errors import IllegalMessage, PutRefused
from lakelog.log.async_puts import Burst, fail_all
from lakelog.message import Message


class Encoded(Protocol):
    """Encoded messages that are appended at once."""

    @property
    def count(self) -> int:
        """The number of messages."""
        ...


Piece = TypeVar("Piece", bound=Encoded)


class AsyncBatchWriter(Generic[Piece]):
    """Puts bursts of messages whose futures have begun, and settles the futures.

    :param encoded: encodes messages into pieces, in order; raises if any of them is invalid
    :param put_piece: puts one piece, and settles the futures of its messages
    """

    def __init__(
        self,
        encoded: Callable[[Sequence[Message]], Iterable[Piece]],
        put_piece: Callable[[Piece, Burst], None],
    ) -> None:
        self._encoded = encoded
        self._put_piece = put_piece

    def put(self, burst: Burst) -> None:
        """Put all messages that can be put."""
        try:
            pieces = list(self._encoded([message for message, _ in burst]))
        except IllegalMessage as error:
            self.put_singly(burst, PutRefused(error.status, str(error)))
            return
        except Exception as error:  # noqa: BLE001  # what is no message is the caller's to hear of
            self.put_singly(burst, error)
            return
        done = 0
        for piece in pieces:
            self._put_piece(piece, burst[done : done + piece.count])
            done += piece.count

    def put_singly(self, burst: Burst, error: Exception) -> None:
        """Put one by one, after ``error``, to find the refused message and put the others."""
        if len(burst) == 1:
            fail_all([burst[0][1]], error)
            return
        for each in burst:
            self.put([each])
