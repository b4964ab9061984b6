"""Puts that run in the background: encoded together, and told each its own outcome.

One message that is refused must not let the others of its burst suffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from lakelog.errors import IllegalMessage, PutRefused
from lakelog.log.async_puts import Burst, fail_all
from lakelog.message import Message


class Encoded(Protocol):
    """Some messages as they are appended, all at once."""

    @property
    def count(self) -> int:
        """How many messages."""
        ...


Piece = TypeVar("Piece", bound=Encoded)


class AsyncBatchWriter(Generic[Piece]):
    """Takes bursts of messages whose futures have begun; these get what became of each.

    :param encoded: messages as pieces, in order; raises for all of them if one is bad
    :param put_piece: puts one piece, and sees to the futures of its messages
    """

    def __init__(
        self,
        encoded: Callable[[Sequence[Message]], Iterable[Piece]],
        put_piece: Callable[[Piece, Burst], None],
    ) -> None:
        self._encoded = encoded
        self._put_piece = put_piece

    def put(self, burst: Burst) -> None:
        """Put all of them, or those that can be."""
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
        """One of the messages is refused with ``error``: find out which, and put the others."""
        if len(burst) == 1:
            fail_all([burst[0][1]], error)
            return
        for each in burst:
            self.put([each])
