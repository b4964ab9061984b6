"""The part of a record between body and properties: topic length and topic."""

from __future__ import annotations

from functools import lru_cache

import attrs

from lakelog.codec.limits import encode_topic
from lakelog.format.layout import MAGIC_V1, MAGIC_V2, MAX_TOPIC_V1_BYTES


@attrs.frozen(slots=True)
class TopicBlock:
    """:ivar magic: of the records of this topic; :ivar data: length and topic."""

    magic: int
    data: bytes


@lru_cache(maxsize=65536)
def topic_block(topic: str) -> TopicBlock:
    """The block for ``topic``: V2 where its length does not fit a signed byte.

    RocketMQ counts characters to choose V2; counting bytes gives the same for ASCII, and a
    record that can be read where RocketMQ's own would not be.
    """
    data = encode_topic(topic)
    if len(data) > MAX_TOPIC_V1_BYTES:
        return TopicBlock(MAGIC_V2, len(data).to_bytes(2, "big") + data)
    return TopicBlock(MAGIC_V1, len(data).to_bytes(1, "big") + data)
