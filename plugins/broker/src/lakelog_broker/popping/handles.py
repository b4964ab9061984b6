"""Receipt handles: the text by which a client acknowledges a message.

``startOffset popTime invisibleTime reviveQid flag brokerName queueId offset``, joined by spaces.
Source: RocketMQ 5.3.3, ``ExtraInfoUtil`` and ``KeyBuilder``.
"""

from __future__ import annotations

from typing import Final

import attrs

from lakelog_broker.codes import Invalid
from lakelog_queues.groups.set_aside import RETRY_PREFIX

OWN_TOPIC: Final = 0
RETRY_TOPIC: Final = 1
RETRY_TOPIC_V2: Final = 2


@attrs.frozen
class ReceiptHandle:
    """One hand-out of one message.

    :ivar start_offset: the first queue offset of the hand-out
    :ivar pop_time_ms: time of the hand-out, in ms since 1970; distinct for each of a message's
        hand-outs
    :ivar invisible_ms: how long the message is invisible from ``pop_time_ms`` on
    :ivar flag: ``OWN_TOPIC``, ``RETRY_TOPIC`` or ``RETRY_TOPIC_V2``
    """

    start_offset: int
    pop_time_ms: int
    invisible_ms: int
    flag: int
    broker_name: str
    queue_id: int
    offset: int

    def __str__(self) -> str:
        numbers = self.start_offset, self.pop_time_ms, self.invisible_ms, 0, self.flag
        head = " ".join(str(each) for each in numbers)
        return f"{head} {self.broker_name} {self.queue_id} {self.offset}"

    @classmethod
    def parse(cls, text: str) -> ReceiptHandle:
        """Parse a client's handle; raises :class:`Refused`. Further fields are ignored."""
        parts = text.split(" ")
        try:
            start, popped, invisible, _, flag = (int(each) for each in parts[:5])
            return cls(start, popped, invisible, flag, parts[5], int(parts[6]), int(parts[7]))
        except (ValueError, IndexError):
            raise Invalid(
                f"the receipt handle {text[:200]!r} has not 8 fields joined by spaces"
            ) from None

    def topic_of(self, group: str, topic: str) -> str:
        """The topic of the message's queue: ``topic`` itself, or a retry topic of the group."""
        if self.flag == OWN_TOPIC:
            return topic
        return retry_topic(group, topic, self.flag)


def retry_topic(group: str, topic: str, flag: int = RETRY_TOPIC) -> str:
    """The retry topic for messages of ``topic`` that ``group`` did not acknowledge in time."""
    return f"{RETRY_PREFIX}{group}{'+' if flag == RETRY_TOPIC_V2 else '_'}{topic}"
