"""Parts that many records share: the pair of hosts, and the topic with its length."""

from __future__ import annotations

from functools import lru_cache
from struct import Struct

import attrs

from lakelog_format.codec.limits import encode_topic, illegal
from lakelog_format.fields.hosts import encode_host
from lakelog_format.fields.layout import (
    AT_BORN_HOST,
    HOST_V4_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC_V1_BYTES,
    PREFIX,
    SUFFIX,
)
from lakelog_format.fields.sysflag import BORN_HOST_V6, STORE_HOST_V6


@attrs.frozen(slots=True)
class HostPair:
    """Born host and store host, with the layout of the head that follows from their lengths.

    :ivar born: the encoded born host, 8 or 20 bytes
    :ivar store: the encoded store host, 8 or 20 bytes
    :ivar store_host: the store host as text
    :ivar sys_flag: the bits for IPv6 hosts
    :ivar head: layout of all fields before the body
    :ivar fixed_bytes: length of the head and of the properties' length field, in bytes
    :ivar store_time_at: position of the store time in a record, in bytes
    """

    born: bytes
    store: bytes
    store_host: str
    sys_flag: int
    head: Struct
    fixed_bytes: int
    store_time_at: int


@lru_cache(maxsize=4096)
def host_pair(born_host: str, store_host: str) -> HostPair:
    """The pair of two hosts given as ``address:port``.

    Raises :class:`~lakelog_format.errors.IllegalMessage` if either is not a valid host.
    """
    born, store = _encoded("born_host", born_host), _encoded("store_host", store_host)
    flags = BORN_HOST_V6 if len(born) != HOST_V4_BYTES else 0
    if len(store) != HOST_V4_BYTES:
        flags |= STORE_HOST_V6
    head = Struct(f"{PREFIX.format}{len(born)}sq{len(store)}s{SUFFIX.format.removeprefix('>')}")
    return HostPair(born, store, store_host, flags, head, head.size + 2, AT_BORN_HOST + len(born))


def _encoded(name: str, host: str) -> bytes:
    try:
        return encode_host(host)
    except ValueError as error:
        raise illegal(f"{name}: {error}") from None


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

    RocketMQ counts characters to choose V2; this function counts bytes. Both agree for ASCII. If
    only the bytes exceed the limit, RocketMQ writes a V1 record that cannot be read.

    Raises :class:`~lakelog_format.errors.IllegalMessage` for an invalid topic.
    """
    data = encode_topic(topic)
    if len(data) > MAX_TOPIC_V1_BYTES:
        return TopicBlock(MAGIC_V2, len(data).to_bytes(2, "big") + data)
    return TopicBlock(MAGIC_V1, len(data).to_bytes(1, "big") + data)
