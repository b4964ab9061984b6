"""Copies a message that failed to ``%RETRY%group`` or ``%DLQ%group``, as RocketMQ's broker does.

Source: RocketMQ 5.3.3, ``AbstractSendMessageProcessor.consumerSendMsgBack``. RocketMQ lets a retry
wait in ``SCHEDULE_TOPIC_XXXX``; here it waits as a message that is handed out.
"""

from __future__ import annotations

from typing import Final

from lakelog.errors import StoreError
from lakelog.format.layout import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from lakelog.format.properties import (
    DELAY,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    REAL_QUEUE,
    REAL_TOPIC,
    encode_properties,
)
from lakelog.message import Message, StoredMessage
from lakelog_queues.units.properties import with_properties
from lakelog_queues.units.tags import DELAYS_MS

RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
RETRY_TOPIC: Final = "RETRY_TOPIC"
"""Property of a retried message: the topic from which it came."""
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
_ADDED: Final = {RETRY_TOPIC, ORIGIN_MESSAGE_ID, DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID}
_OF_A_DELAY: Final = {REAL_TOPIC, REAL_QUEUE, DELAY, "WAIT"}
"""Properties that RocketMQ sets in a retry in ``SCHEDULE_TOPIC_XXXX``, and does not remove."""
_OF_LIGHT_QUEUES: Final = (INNER_MULTI_DISPATCH.encode(), INNER_MULTI_QUEUE_OFFSET.encode())
_FIRST_LEVEL: Final = 3
"""The delay level of a first retry."""


def retry_delay_ms(attempt: int) -> int:
    """RocketMQ's delay before the next hand-out of a message that failed ``attempt`` times.

    >>> retry_delay_ms(1), retry_delay_ms(2), retry_delay_ms(99)
    (10000, 30000, 7200000)
    """
    return DELAYS_MS[min(_FIRST_LEVEL + attempt - 1, len(DELAYS_MS)) - 1]


def retry_of(stored: StoredMessage, group: str, attempts: int) -> Message:
    """The message for ``%RETRY%group``, after ``attempts`` hand-outs."""
    return _failed(stored, f"{RETRY_PREFIX}{group}", _origin(stored), attempts)


def dead_letter_of(stored: StoredMessage, group: str, attempts: int) -> Message:
    """The message for ``%DLQ%group``, after ``attempts`` hand-outs."""
    origin = _origin(stored)
    known = {**stored.properties, **origin}
    more = {
        DLQ_ORIGIN_TOPIC: known[RETRY_TOPIC],
        DLQ_ORIGIN_MESSAGE_ID: known[ORIGIN_MESSAGE_ID],
    }
    return _failed(stored, f"{DEAD_LETTER_PREFIX}{group}", {**origin, **more}, attempts)


def resent(dead: StoredMessage) -> Message:
    """The original message of a dead letter, for its original topic.

    Raises :class:`~lakelog.errors.StoreError` if no property names that topic.
    """
    known = dead.properties
    topic = known.get(DLQ_ORIGIN_TOPIC) or known.get(RETRY_TOPIC)
    if topic is None:
        raise StoreError(
            f"the dead letter at offset {dead.physical_offset} does not say from which topic it "
            f"came: it has no property {DLQ_ORIGIN_TOPIC}"
        )
    removed = _ADDED | (_OF_A_DELAY if REAL_TOPIC in known else set())
    kept = [
        each + PROPERTY_SEPARATOR
        for each in dead.properties_bytes.split(PROPERTY_SEPARATOR)
        if each and each.partition(NAME_VALUE_SEPARATOR)[0].decode(errors="replace") not in removed
    ]
    return _copy(dead, topic, b"".join(kept))


def _origin(stored: StoredMessage) -> dict[str, str]:
    """The properties about its origin that a message lacks; a second retry keeps the first ones."""
    origin = {RETRY_TOPIC: stored.topic, ORIGIN_MESSAGE_ID: stored.message_id}
    return {name: value for name, value in origin.items() if name not in stored.properties}


def _failed(stored: StoredMessage, topic: str, more: dict[str, str], attempts: int) -> Message:
    properties = stored.properties_bytes
    if INNER_MULTI_DISPATCH.encode() in properties:  # the copy must not feed the light queues again
        properties = with_properties(properties, _OF_LIGHT_QUEUES)
    if properties and not properties.endswith(PROPERTY_SEPARATOR):
        properties += PROPERTY_SEPARATOR
    return _copy(stored, topic, properties + encode_properties(more), attempts)


def _copy(
    stored: StoredMessage, topic: str, properties: bytes, attempts: int | None = None
) -> Message:
    """A copy for ``topic``; for its queue 0 if ``attempts`` to handle the message have failed."""
    return Message(
        topic,
        stored.body,
        properties=properties,
        queue_id=None if attempts is None else 0,
        flag=stored.flag,
        sys_flag=stored.sys_flag,
        born_timestamp_ms=stored.born_timestamp_ms,
        born_host=stored.born_host,
        reconsume_times=attempts or 0,
    )
