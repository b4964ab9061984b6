"""A message that was handed out to a member of a group."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from lakelog.message import StoredMessage
from lakelog_queues.groups.set_aside import RETRY_TOPIC

Handle: TypeAlias = tuple[str, int, int, int]
"""Topic, queue id, queue offset and lease of a message that was handed out."""


@attrs.frozen
class Delivery:
    """A message that was handed out; give it to ``ack``, ``nack`` or ``renew``.

    :ivar topic: the topic of the queue, also for a light queue or the retry topic
    :ivar queue_offset: the offset in that queue
    :ivar attempt: number of hand-outs of the message to this group, from 1
    :ivar taken_ms: time of the hand-out, in ms since 1970
    :ivar visible_ms: time in ms since 1970 at which it is handed out again, unless acknowledged or
        renewed
    """

    message: StoredMessage
    topic: str
    queue_id: int
    queue_offset: int
    attempt: int
    taken_ms: int
    visible_ms: int
    lease: int = attrs.field(repr=False)

    @property
    def origin_topic(self) -> str:
        """The topic to which the message was put, also if it comes from the retry topic."""
        return self.message.properties.get(RETRY_TOPIC) or self.topic

    @property
    def handle(self) -> Handle:
        """Identifies the message and this hand-out."""
        return self.topic, self.queue_id, self.queue_offset, self.lease
