"""Puts a message that was handed out into another topic."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from lakelog import Message, PutResult
from lakelog_broker.appending import BrokerAppender, terminated
from lakelog_broker.properties import with_properties

_REMOVED: Final = (
    *(b"CLUSTER", b"DELAY", b"TRAN_MSG"),
    *(b"TIMER_DELIVER_MS", b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS"),
)
"""Properties that the appender adds, or for which it would set the message aside once more."""


def append_moved(appender: BrokerAppender, message: Message) -> PutResult | Awaitable[PutResult]:
    """Append a copy of a stored message; raises as :meth:`Appender.append`."""
    message.properties = with_properties(terminated(message.properties), _REMOVED)
    return appender.append(message)
