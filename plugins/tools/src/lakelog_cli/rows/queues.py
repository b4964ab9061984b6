"""Objects of the commands for messages, topics, groups and pins."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class MessageRow(TypedDict):
    """A stored message.

    :ivar queue_offset: its number in its queue
    :ivar physical_offset: start of its record
    :ivar size: length of its record, in bytes
    :ivar message_id: RocketMQ's offset message id
    :ivar body: the body, if it is UTF-8
    :ivar body_base64: the body in base64, if it is not UTF-8
    :ivar reconsume_times: number of redeliveries
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    message_id: str
    body: NotRequired[str]
    body_base64: NotRequired[str]
    properties: dict[str, str]
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: str
    store_timestamp_ms: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int


class PutRow(TypedDict):
    """A message that was put.

    :ivar status: PUT_OK, or the status for a guarantee that was not met in time
    :ivar size: length of its record, in bytes
    """

    status: str
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    store_timestamp_ms: int
    store_host: str
    message_id: str


class CountRow(TypedDict):
    """The number of matching messages of a store, with ``--count``."""

    store: str
    messages: int


class InitRow(TypedDict):
    """A store.

    :ivar is_new: whether the command made it
    """

    path: str
    is_new: bool


class TopicRow(TypedDict):
    """A topic with the numbers of its queues and messages."""

    topic: str
    queues: int
    messages: int


class TopicQueueRow(TypedDict):
    """A queue of a topic.

    :ivar permission: r, w, rw or none; null if the topic is not in config/topics.json
    :ivar min_offset: queue offset of its first message
    :ivar max_offset: queue offset of the next message
    """

    topic: str
    permission: str | None
    queue_id: int
    min_offset: int
    max_offset: int


class CreatedTopicRow(TypedDict):
    """A topic in config/topics.json."""

    topic: str
    queues: int
    permission: str


class DeletedTopicRow(TypedDict):
    """A topic that was removed."""

    topic: str


class GroupRow(TypedDict):
    """The progress of a consumer group in a queue.

    :ivar offset: queue offset of its next message
    :ivar min_offset: queue offset of the first message; null if the queue was removed
    :ivar max_offset: queue offset of the next message that is put
    :ivar lag: number of messages that the group has not consumed
    """

    group: str
    topic: str
    queue_id: int
    offset: int
    min_offset: int | None
    max_offset: int | None
    lag: int | None


class CreatedGroupRow(TypedDict):
    """A consumer group in config/subscriptionGroup.json."""

    group: str
    max_retries: int


class ResetRow(TypedDict):
    """A committed queue offset."""

    group: str
    topic: str
    queue_id: int
    offset: int


class ForgottenRow(TypedDict):
    """A consumer group whose offsets were removed.

    :ivar topics: topics with removed offsets
    :ivar is_configured: whether its entry in config/subscriptionGroup.json was removed
    """

    group: str
    topics: list[str]
    is_configured: bool


class ResentRow(TypedDict):
    """The number of dead letters that were put again."""

    group: str
    messages: int


class PinRow(TypedDict):
    """A pin of a follower.

    :ivar position: offset of the follower; null if the pin cannot be read
    :ivar held_bytes: length of the part of the log that it holds
    :ivar time: time of the pin, in ISO 8601
    :ivar problem: reason for ignoring the pin
    """

    name: str
    position: int | None
    held_bytes: int
    time: str | None
    destination: str | None
    problem: str | None


class RemovedPinRow(TypedDict):
    """A pin that was removed."""

    name: str
