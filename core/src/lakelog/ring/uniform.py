"""The check of many records that differ only in content: one topic, one length, IPv4 hosts.

They are the rows of a table, so that nothing has to be gathered. Whatever is not uniform, or is
wrong, is left to :mod:`lakelog.ring.columns`, and so is saying what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from lakelog.codec.dtypes import head_dtype
from lakelog.codec.losttext import SECTOR_BYTES
from lakelog.codec.recordcrc import PLACEHOLDER
from lakelog.codec.topicblock import topic_block
from lakelog.layout import (
    AT_BODY_CRC,
    AT_QUEUE_ID,
    AT_SYS_FLAG,
    HEAD_V4,
    HOST_V4_BYTES,
    PROPERTY_SEPARATOR,
    RECORD_CRC_NAME,
)
from lakelog.properties import INNER_MULTI_DISPATCH
from lakelog.ring.bits import Bits
from lakelog.ring.bodies import bodies_hold
from lakelog.ring.placing import EncodedTaken
from lakelog.ring.ranking import ranks_of
from lakelog.sysflag import BORN_HOST_V6, STORE_HOST_V6

if TYPE_CHECKING:
    from lakelog.ring.checks import Checks
    from lakelog.ring.parts import Parts

Ints = NDArray[np.int64]
Octets = NDArray[np.uint8]

_HEAD: Final = head_dtype(HOST_V4_BYTES, HOST_V4_BYTES)
_BODY_AT: Final = HEAD_V4.size
_STORE_TIME_AT: Final = 56
_PORTS_AT: Final = (52, 53, 68, 69)
"""The upper halves of both ports, which take 32 bits and have 16."""
_ANY_V6: Final = BORN_HOST_V6 | STORE_HOST_V6
_SIGN: Final = 0x80
_DISPATCHED: Final = INNER_MULTI_DISPATCH.encode()
_SEAL: Final = PROPERTY_SEPARATOR + PLACEHOLDER


def uniform_records(parts: Parts, starts: Ints, sizes: Ints, checks: Checks) -> EncodedTaken | None:
    """The batch of records of one length and topic; ``None`` if they are not uniform.

    Raises :class:`~lakelog.errors.IllegalMessage` for what is too large, and for a bad topic.
    """
    size = int(sizes[0])
    rows: Octets = np.frombuffer(parts.records, np.uint8).reshape(len(sizes), size)
    heads = np.ascontiguousarray(rows[:, :_BODY_AT])
    bits = Bits.of(heads)
    body_bytes = _body_bytes(bits, size, topic_block(parts.topics[0]).magic)
    if body_bytes is None:
        return None
    block = topic_block(parts.topics[0]).data
    property_bytes = size - _BODY_AT - body_bytes - len(block) - 2
    if not 0 <= property_bytes < SECTOR_BYTES:
        return None
    checks.limits.check(body_bytes, property_bytes, size)
    tails = np.ascontiguousarray(rows[:, _BODY_AT + body_bytes :])
    if not _are_tails(tails, block + property_bytes.to_bytes(2), checks):
        return None
    fields, at = heads.view(_HEAD).reshape(-1), starts + _BODY_AT
    if checks.verify_bodies and not bodies_hold(
        parts.records, at, at + body_bytes, fields["body_crc"]
    ):
        return None
    ranks = ranks_of(parts, None, fields, bits)
    return EncodedTaken(parts, starts, sizes, _STORE_TIME_AT, ranks)


def _body_bytes(bits: Bits, size: int, magic: int) -> int | None:
    """The length of each body, if the heads are as they must be."""
    some = bits.some
    if bits.only(0, AT_BODY_CRC) != size.to_bytes(4) + magic.to_bytes(4):
        return None
    if (some[AT_BODY_CRC] | some[AT_QUEUE_ID]) & _SIGN or some[AT_SYS_FLAG + 3] & _ANY_V6:
        return None
    if any(some[at] for at in _PORTS_AT):
        return None
    length = bits.only(_BODY_AT - 4, _BODY_AT)
    return None if length is None else int.from_bytes(length)


def _are_tails(tails: Octets, front: bytes, checks: Checks) -> bool:
    """Whether topic and properties of all are as a put writes them; odd ones may be, too."""
    bits, start = Bits.of(tails), len(front)
    if bits.only(0, start) != front:
        return False
    end = tails.shape[1]
    if checks.sealed:
        end -= len(PLACEHOLDER)
        wanted = PLACEHOLDER if end == start else _SEAL
        if end < start or bits.only(tails.shape[1] - len(wanted), tails.shape[1]) != wanted:
            return False
    elif end > start and not tails[:, -1].all():
        return False
    text = tails[:, start:end].tobytes()
    lights = checks.max_light_queues is not None and _DISPATCHED in text
    return not lights and RECORD_CRC_NAME not in text
