"""The part of a record between body and properties: topic length and topic."""

from __future__ import annotations

from functools import lru_cache

import attrs

from lakelog.codec.limits import encode_topic
from lakelog.format.layout import MAGIC_V1, MAGIC_V2, MAX_TOPIC_V1_BYTES


@attrs.frozen(slots=True)
class TopicBlock:
    """The encoded topic.

    :ivar magic: record magic that matches its length field
    :ivar data: length and topic
    """

    magic: int
    data: bytes


@lru_cache(maxsize=65536)
def topic_block(topic: str) -> TopicBlock:
    """The block for ``topic``; V2 if its length does not fit into a signed byte.

    RocketMQ counts characters to choose V2; this counts bytes. Both agree for ASCII. Otherwise
    RocketMQ's own record could not be read, and this one can.
    """
    data = encode_topic(topic)
    if len(data) > MAX_TOPIC_V1_BYTES:
        return TopicBlock(MAGIC_V2, len(data).to_bytes(2, "big") + data)
    return TopicBlock(MAGIC_V1, len(data).to_bytes(1, "big") + data)
