"""Puts messages that were set aside into their topics; one bad message does not stop the others."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from lakelog import PutRefused, StoredMessage
from lakelog.errors import (
    CorruptRecord,
    IllegalMessage,
    OffsetOutOfRange,
    ReadFailed,
    StoreClosed,
    StoreError,
)
from lakelog.status import PutStatus

_LOG: Final = logging.getLogger("lakelog.broker")
_ILLEGAL: Final = {
    PutStatus.MESSAGE_ILLEGAL,
    PutStatus.MESSAGE_SIZE_EXCEEDED,
    PutStatus.PROPERTIES_SIZE_EXCEEDED,
}
RETRY_MS: Final = 1_000
"""A message that could not be delivered now is tried again after so long."""
MAX_DEFERRED: Final = 1_000
"""With so many undelivered messages no further ones are read: the disk takes nothing."""

Clock: TypeAlias = Callable[[], int]
"""Returns the time in ms since 1970."""


def now_ms() -> int:
    """The time of the system."""
    return time.time_ns() // 1_000_000


class Deliverer:
    """Delivers messages by their physical offset.

    :param what: names the messages in the log
    """

    def __init__(self, what: str, look_up: Callable[[int], StoredMessage]) -> None:
        self._what, self._look_up = what, look_up
        self._failing: set[int] = set()

    def deliver(self, physical_offset: int, put: Callable[[StoredMessage], Any]) -> bool:
        """Look a message up and ``put`` it.

        :returns: whether it is done with: put, or never to be put, as where its record is damaged
            or gone. Then RocketMQ goes on with the next one too. ``False`` is to be tried again

        Raises :class:`~lakelog.errors.StoreClosed`. A message is logged once.
        """
        try:
            put(self._look_up(physical_offset))
        except StoreClosed:
            raise
        except Exception as error:  # noqa: BLE001  # any fault is of this message only
            if _is_final(error):
                _LOG.error(
                    "%s at offset %d of the log is left out: %s", self._what, physical_offset, error
                )
            else:
                self._defer(physical_offset, error)
                return False
        self._failing.discard(physical_offset)
        return True

    def _defer(self, physical_offset: int, error: Exception) -> None:
        if physical_offset in self._failing:
            return
        self._failing.add(physical_offset)
        expected = isinstance(error, StoreError | PutRefused)
        _LOG.warning(
            "%s at offset %d of the log could not be delivered and is tried again: %s",
            self._what,
            physical_offset,
            error,
            exc_info=None if expected else error,
        )


def _is_final(error: Exception) -> bool:
    if isinstance(error, PutRefused):
        return error.status in _ILLEGAL
    if isinstance(error, ReadFailed):
        return False
    return isinstance(error, CorruptRecord | OffsetOutOfRange | IllegalMessage | ValueError)
