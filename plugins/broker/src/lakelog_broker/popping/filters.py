"""Selects the messages of a subscription: by tags or by an SQL92 expression."""

from __future__ import annotations

from typing import Final

import attrs

from lakelog import Store, StoredMessage
from lakelog.errors import SettingsError
from lakelog_broker.codes import Refused, ResponseCode
from lakelog_queues.groups.property_filter import PropertyFilter

_READ_AHEAD: Final = 256
"""Messages that are read at once for an SQL92 expression."""
_MAX_BYTES: Final = 4 << 20


@attrs.frozen
class MessageFilter:
    """A subscription's expression.

    :ivar tags: ``"TagA || TagB"``; ``None`` matches all
    :ivar properties: a parsed SQL92 expression
    """

    tags: str | None = None
    properties: PropertyFilter | None = None

    @classmethod
    def of(cls, expression: str | None, expression_type: str | None) -> MessageFilter:
        """Parse a client's expression, of type ``TAG`` or ``SQL92``; raises :class:`Refused`."""
        if not expression or expression == "*":
            return ALL
        if expression_type in (None, "", "TAG"):
            if not expression.replace("|", "").strip():
                raise Refused(
                    ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"no tag in {expression[:200]!r}"
                )
            return cls(expression)
        try:
            return cls(None, PropertyFilter(expression))
        except SettingsError as error:
            raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None

    def read(
        self, store: Store, topic: str, queue_id: int, offset: int, most: int
    ) -> tuple[list[StoredMessage], int]:
        """At most ``most`` messages from a queue offset on, and the next offset to read."""
        wanted = most if self.properties is None else max(most, _READ_AHEAD)
        got = store.get(topic, queue_id, offset, wanted, max_bytes=_MAX_BYTES, tags=self.tags)
        if self.properties is None:
            return got.messages, got.next_offset
        kept: list[StoredMessage] = []
        for message in got.messages:
            if self.properties.matches(message.properties):
                kept.append(message)
                if len(kept) == most:
                    return kept, message.queue_offset + 1
        return kept, got.next_offset


ALL: Final = MessageFilter()
