"""Handles by which clients recall timer messages; source: RocketMQ 5.3.3, ``RecallMessageHandle``.

A handle is URL-safe base64 of ``v1 topic broker time-in-ms unique-key``.
"""

from __future__ import annotations

import base64
import binascii
import time
from typing import Any

import attrs

from lakelog import Message
from lakelog_broker.appending import REAL_TOPIC
from lakelog_broker.codes import Refused, ResponseCode
from lakelog_broker.properties import property_value, with_properties
from lakelog_broker.settings import BrokerSettings
from lakelog_queues.groups.set_aside import RETRY_PREFIX

_VERSION = "v1"


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
            if version != _VERSION or "\x01" in message_id or "\x02" in message_id:
                raise ValueError(version)
            return cls(topic, broker, int(due), message_id)
        except (ValueError, binascii.Error):
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid") from None

    def encode(self) -> str:
        """The handle as text."""
        text = f"{_VERSION} {self.topic} {self.broker} {self.due_ms} {self.message_id}"
        return base64.urlsafe_b64encode(text.encode()).decode()

    def message(
        self, topic: str, settings: BrokerSettings, group: str, host: str | None
    ) -> Message:
        """Make the message whose put recalls the timer message.

        :param group: the producer group
        :param host: ``address:port`` of the client

        Raises :class:`Refused` if the handle is of another topic or broker, or is too late.
        """
        self._check(topic, settings.name, settings.timer_limit_s * 1000)
        return Message(
            topic,
            b"0",
            properties=self._properties(group),
            queue_id=0,
            born_timestamp_ms=time.time_ns() // 1_000_000,
            born_host=host,
        )

    def _check(self, topic: str, broker: str, limit_ms: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        remark = None
        if self.topic != topic:
            remark = "recall failed, topic not match"
        elif self.broker != broker:
            remark = "recall failed, broker service not available"
        elif not now_ms < self.due_ms <= now_ms + limit_ms:
            remark = "recall failed, timestamp invalid"
        if remark is not None:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, remark)

    def _properties(self, producer_group: str) -> bytes:
        return with_properties(
            b"",
            TAGS="_RECALL_TAG_",
            TIMER_DEL_UNIQKEY=f"{self.topic}+{self.message_id}",
            UNIQ_KEY=self.message_id,
            TIMER_DELIVER_MS=str(self.due_ms),
            BORN_TIMESTAMP=str(time.time_ns() // 1_000_000),
            PGROUP=producer_group,
        )
