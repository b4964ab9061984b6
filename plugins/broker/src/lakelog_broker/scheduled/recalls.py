"""Recall handles, by which clients name a timer message that waits.

Source: RocketMQ 5.3.3, ``RecallMessageHandle``.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import attrs

from lakelog import Message
from lakelog.format.encoder import system_ms
from lakelog_broker.codes import Refused, ResponseCode
from lakelog_broker.settings import BrokerSettings
from lakelog_queues.delays.delivering import REAL_TOPIC
from lakelog_queues.groups.set_aside import RETRY_PREFIX
from lakelog_queues.units.properties import property_value, with_properties

_HANDLE_VERSION: Final = "v1"


@attrs.frozen
class RecallHandle:
    """The identity of a waiting timer message.

    :ivar broker: name of its broker
    :ivar due_ms: its ``TIMER_OUT_MS`` plus one, in ms since 1970
    :ivar message_id: its ``UNIQ_KEY``
    """

    topic: str
    broker: str
    due_ms: int
    message_id: str

    @classmethod
    def of(cls, properties: Any, broker: str) -> RecallHandle | None:
        """The handle of a message, by its stored property string.

        :param broker: name of this broker
        :returns: ``None`` if the message is no timer message, or cannot be recalled
        """
        if type(properties) is not bytes or b"TIMER_OUT_MS\x01" not in properties:
            return None
        due, key, topic = (
            property_value(properties, name) for name in (b"TIMER_OUT_MS", b"UNIQ_KEY", REAL_TOPIC)
        )
        if not due or not key or not topic or topic.startswith(RETRY_PREFIX.encode()):
            return None
        return cls(topic.decode(), broker, int(due) + 1, key.decode())

    @classmethod
    def parse(cls, text: str) -> RecallHandle:
        """Decode a handle; raises :class:`Refused`."""
        try:
            words = base64.urlsafe_b64decode(text.encode()).decode().split(" ")
            version, topic, broker, due, message_id = words
            if version != _HANDLE_VERSION or "\x01" in message_id or "\x02" in message_id:
                raise ValueError(version)
            return cls(topic, broker, int(due), message_id)
        except (ValueError, binascii.Error):
            raise Refused("recall handle is invalid", ResponseCode.ILLEGAL_OPERATION) from None

    def encode(self) -> str:
        """The handle as text."""
        text = f"{_HANDLE_VERSION} {self.topic} {self.broker} {self.due_ms} {self.message_id}"
        return base64.urlsafe_b64encode(text.encode()).decode()

    def message(
        self, topic: str, settings: BrokerSettings, group: str, host: str | None
    ) -> Message:
        """Make the message whose put recalls the timer message.

        :param group: the producer group
        :param host: ``address:port`` of the client

        Raises :class:`Refused` if the handle is of another topic or broker, or is too late.
        """
        now, remark = system_ms(), None
        if self.topic != topic:
            remark = "recall failed, topic not match"
        elif self.broker != settings.name:
            remark = "recall failed, broker service not available"
        elif not now < self.due_ms <= now + settings.timer_limit_s * 1000:
            remark = "recall failed, timestamp invalid"
        if remark is not None:
            raise Refused(remark, ResponseCode.ILLEGAL_OPERATION)
        properties = with_properties(
            b"",
            TAGS="_RECALL_TAG_",
            TIMER_DEL_UNIQKEY=f"{self.topic}+{self.message_id}",
            UNIQ_KEY=self.message_id,
            TIMER_DELIVER_MS=str(self.due_ms),
            BORN_TIMESTAMP=str(now),
            PGROUP=group,
        )
        return Message(
            topic, b"0", properties=properties, queue_id=0, born_timestamp_ms=now, born_host=host
        )
