"""Objects of ``lakelog dump``, with the names and values of RocketMQ's own dump."""

from __future__ import annotations

from typing import Literal, TypedDict


class StoreLine(TypedDict):
    """The store."""

    kind: Literal["store"]
    loaded: bool
    abortFilePresent: bool
    minPhyOffset: int
    maxPhyOffset: int
    confirmOffset: int
    maxPhyOffsetInConsumeQueue: int


class QueueLine(TypedDict):
    """A queue."""

    kind: Literal["queue"]
    topic: str
    queueId: int
    cqType: str
    minOffset: int
    maxOffset: int
    maxPhysicOffset: int


class RecordFields(TypedDict):
    """The fields of every line of a record.

    :ivar magic: eight hexadecimal digits
    :ivar bornHost: ``address|port``, in the format of Java
    :ivar rawCrc32: CRC-32 of the whole record
    """

    topic: str
    queueId: int
    queueOffset: int
    physOffset: int
    storeSize: int
    magic: str
    sysFlag: int
    flag: int
    bodyCRC: int
    bornTimestamp: int
    bornHost: str
    storeTimestamp: int
    storeHost: str
    reconsumeTimes: int
    preparedTransactionOffset: int
    rawCrc32: int


class MessageLine(RecordFields):
    """A message of a queue, with its unit in the queue.

    :ivar body: the body in base64; null if it is empty
    :ivar cqPos: the physical offset in the unit
    """

    kind: Literal["msg"]
    msgId: str
    tags: str | None
    keys: str | None
    properties: dict[str, str]
    body: str | None
    cqTopic: str
    cqQueueId: int
    cqOffset: int
    cqPos: int
    cqSize: int
    tagsCode: int
    batchNum: int


class RecordLine(RecordFields):
    """A record of the log.

    :ivar pos: its physical offset
    """

    kind: Literal["rec"]
    pos: int


class BlankLine(TypedDict):
    """The blank record at the end of a segment."""

    kind: Literal["blank"]
    physOffset: int
    size: int


class QueryLine(TypedDict):
    """A key with its offsets in the index."""

    kind: Literal["query"]
    topic: str
    key: str
    physOffsets: list[int]
