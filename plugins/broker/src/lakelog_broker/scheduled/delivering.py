"""Delivers messages that were set aside; a message that cannot be delivered stops no other."""

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
from lakelog.results import PutStatus

_LOG: Final = logging.getLogger("lakelog.broker")
_ILLEGAL: Final = {
    PutStatus.MESSAGE_ILLEGAL,
    PutStatus.MESSAGE_SIZE_EXCEEDED,
    PutStatus.PROPERTIES_SIZE_EXCEEDED,
}
RETRY_MS: Final = 1_000
"""Pause before another attempt to deliver a message."""
MAX_DEFERRED: Final = 1_000
"""With this many deferred messages no further ones are read: the disk accepts no writes."""

Clock: TypeAlias = Callable[[], int]
"""Returns the time in ms since 1970."""


def now_ms() -> int:
    """The system's time, in ms since 1970."""
    return time.time_ns() // 1_000_000


class Deliverer:
    """Delivers messages by their physical offset.

    :param what: a noun for the messages in log lines
    :param look_up: reads the message at a physical offset
    """

    def __init__(self, what: str, look_up: Callable[[int], StoredMessage]) -> None:
        self._what, self._look_up = what, look_up
        self._failing: set[int] = set()

    def deliver(self, physical_offset: int, put: Callable[[StoredMessage], Any]) -> bool:
        """Read the message at ``physical_offset``, and call ``put`` with it.

        :returns: ``True`` if the message was put, or can never be put because its record is damaged
            or deleted; RocketMQ skips such a message, too. ``False`` to try again later

        Raises :class:`~lakelog.errors.StoreClosed`. Repeated failures of a message are logged once.
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
