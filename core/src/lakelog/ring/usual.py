"""The check of one record of the usual shape, in as few steps as Python can.

Usual are records from and to IPv4 hosts, of lengths that need no closer look. Whatever is not, or
is wrong, is left to :mod:`lakelog.ring.checks`, and so is saying what is wrong.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

from lakelog.checksum import CRC31_MASK, crc32
from lakelog.codec.hostpair import HostPair, host_pair
from lakelog.codec.one import EncodedOne
from lakelog.codec.recordcrc import PLACEHOLDER
from lakelog.codec.topicblock import topic_block
from lakelog.hosts import decode_host
from lakelog.layout import HEAD_V4, PROPERTY_SEPARATOR, RECORD_CRC_NAME
from lakelog.sysflag import BORN_HOST_V6, PREPARED, STORE_HOST_V6

_LENGTH: Final = Struct(">H")
_BODY_AT: Final = HEAD_V4.size
_ANY_V6: Final = BORN_HOST_V6 | STORE_HOST_V6
_ENDED: Final = PROPERTY_SEPARATOR[0]


def usual_one(
    records: memoryview, topic: str, safe_bytes: int, *, wait: bool, sealed: bool, verify: bool
) -> tuple[EncodedOne, bytes] | None:
    """The one record that ``records`` are, and its properties; ``None`` if it is not usual.

    :param verify: whether the body is held against its checksum
    :param safe_bytes: a record of at most this length has no part that is too large
    Raises :class:`~lakelog.errors.IllegalMessage` for a topic or a host that cannot be.
    """
    size = len(records)
    if not _BODY_AT + _LENGTH.size < size <= safe_bytes:
        return None
    (
        stated, magic, crc, queue_id, _, _, _, flags, _, born, _, store, _, _, body_bytes,
    ) = HEAD_V4.unpack_from(records)  # fmt: skip  # in the order of the format
    block = topic_block(topic)
    fits = stated == size and magic == block.magic and 0 <= body_bytes <= size - _BODY_AT
    if not fits or queue_id < 0 or flags & _ANY_V6:
        return None
    end = _BODY_AT + body_bytes
    properties = _properties(bytes(records[end:]), block.data)
    if properties is None or not _are_usual(properties, sealed):
        return None
    if crc > CRC31_MASK or (verify and crc32(records[_BODY_AT:end]) & CRC31_MASK != crc):
        return None
    pair, queue = _hosts(born, store), (topic, queue_id)
    one = EncodedOne(records, queue, not flags & PREPARED, wait, pair, sealed)  # type: ignore[arg-type]  # patched in place, as a bytearray is
    return one, properties


def _properties(behind: bytes, block: bytes) -> bytes | None:
    """What follows topic and length; ``None`` if these are not right."""
    at = len(block) + _LENGTH.size
    if len(behind) < at or not behind.startswith(block):
        return None
    length = _LENGTH.unpack_from(behind, len(block))[0]
    return behind[at:] if length == len(behind) - at else None


def _are_usual(properties: bytes, sealed: bool) -> bool:
    """Whether they end as they must, and hold nothing that needs a closer look."""
    if sealed:
        own = properties.removesuffix(PLACEHOLDER)
        if len(own) == len(properties) or (own and own[-1] != _ENDED):
            return False
        properties = own
    return RECORD_CRC_NAME not in properties and 0 not in properties


@lru_cache(maxsize=4096)
def _hosts(born: bytes, store: bytes) -> HostPair:
    return host_pair(decode_host(born), decode_host(store))
