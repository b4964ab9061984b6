"""The checks of many records at once, as :mod:`lakelog.ring.checks` has them of one.

All heads are gathered in one go, and all that stands between body and properties in another. Each
check reads only where those before it proved that the record is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from lakelog.codec.dtypes import anywhere, gather, head_dtype
from lakelog.codec.topicblock import topic_block
from lakelog.errors import RingNonsense
from lakelog.hosts import host_bytes
from lakelog.layout import AT_BODY_CRC, AT_QUEUE_ID, AT_SYS_FLAG, RECORD_MIN_BYTES
from lakelog.ring.bits import Bits
from lakelog.ring.bodies import bodies_hold
from lakelog.ring.placing import EncodedTaken
from lakelog.ring.propertycolumns import check_strings
from lakelog.ring.ranking import ranks_of
from lakelog.ring.uniform import uniform_records
from lakelog.sysflag import BORN_HOST_V6, STORE_HOST_V6

if TYPE_CHECKING:
    from lakelog.ring.checks import Checks
    from lakelog.ring.parts import Parts

Ints = NDArray[np.int64]

_FAMILIES: Final = BORN_HOST_V6 | STORE_HOST_V6
_FAMILIES_AT: Final = AT_SYS_FLAG + 3
_SIGN: Final = 0x80
_SHORT_BYTES: Final = 2
_LENGTH: Final = np.dtype(">u2")


def checked_columns(parts: Parts, checks: Checks) -> EncodedTaken | None:
    """The batch of records that are what they must be.

    ``None`` where they have to be looked at one by one: where some feed light queues, or where
    hosts are of both families.

    Raises :class:`~lakelog.errors.RingNonsense`, :class:`~lakelog.errors.IllegalMessage`.
    """
    sizes = np.frombuffer(parts.sizes, np.int32).astype(np.int64)
    ends = sizes.cumsum()
    head = _head_of(parts.records)
    if sizes.min() < head.itemsize + _SHORT_BYTES or ends[-1] != len(parts.records):
        raise RingNonsense("the lengths of records are not those of their bytes")
    starts = ends - sizes
    if (sizes == sizes[0]).all() and parts.topic_index is None:
        uniform = uniform_records(parts, starts, sizes, checks)
        if uniform is not None:
            return uniform
    heads = gather(parts.records, head, starts)
    bits = Bits.of(heads.view(np.uint8).reshape(len(heads), head.itemsize))
    if not bits.alike(_FAMILIES_AT, _FAMILIES):
        return None
    _check_heads(heads, bits, sizes)
    numbers = _topic_numbers(parts)
    body_lengths = heads["body_length"].astype(np.int64)
    property_lengths = _checked_topics(parts, numbers, heads, starts, sizes, body_lengths)
    checks.limits.check(int(body_lengths.max()), int(property_lengths.max()), int(sizes.max()))
    if checks.verify_bodies:
        at = starts + head.itemsize
        if not bodies_hold(parts.records, at, at + body_lengths, heads["body_crc"]):
            raise RingNonsense("a body does not have its checksum")
    if check_strings(parts.records, ends, property_lengths, checks):
        return None
    store_time_at = head.fields["store_timestamp"][1]  # type: ignore[index]  # a head has fields
    return EncodedTaken(parts, starts, sizes, store_time_at, ranks_of(parts, numbers, heads, bits))


def _head_of(records: memoryview) -> np.dtype[Any]:
    """The layout of the first record's head, which all have to share."""
    if len(records) < RECORD_MIN_BYTES:
        raise RingNonsense("the lengths of records are not those of their bytes")
    flags = records[_FAMILIES_AT]
    born, store = bool(flags & BORN_HOST_V6), bool(flags & STORE_HOST_V6)
    return head_dtype(host_bytes(born), host_bytes(store))


def _check_heads(heads: NDArray[Any], bits: Bits, sizes: Ints) -> None:
    if (heads["size"] != sizes).any():
        raise RingNonsense("records do not have the lengths that were announced")
    some = bits.some
    if (some[AT_BODY_CRC] | some[AT_QUEUE_ID] | some[-4]) & _SIGN:
        raise RingNonsense("a checksum, a queue or the length of a body is below zero")
    fields: Any = heads.dtype.fields
    for host in ("born_host", "store_host"):
        behind = fields[host][1] + fields[host][0].itemsize
        if any(some[behind - 4 : behind - 2]):
            raise RingNonsense("a host has a port that none can have")


def _topic_numbers(parts: Parts) -> Ints | None:
    if parts.topic_index is None:
        return None
    numbers = np.frombuffer(parts.topic_index, np.int32).astype(np.int64)
    if numbers.min() < 0 or numbers.max() >= len(parts.topics):
        raise RingNonsense("a record is of a topic that is not in the table")
    return numbers


def _checked_topics(
    parts: Parts,
    numbers: Ints | None,
    heads: NDArray[Any],
    starts: Ints,
    sizes: Ints,
    body_lengths: Ints,
) -> Ints:
    """How long the properties of each record are, which end it."""
    fronts = body_lengths + heads.dtype.itemsize
    at, rest = starts + fronts, sizes - fronts - _SHORT_BYTES
    if numbers is None:
        return _checked_topic(parts.records, parts.topics[0], heads["magic"], at, rest)
    lengths, order = np.empty_like(rest), np.argsort(numbers, kind="stable")
    borders = np.searchsorted(numbers[order], np.arange(len(parts.topics) + 1)).tolist()
    for topic, first, behind in zip(parts.topics, borders, borders[1:], strict=False):
        these = order[first:behind]
        if len(these):
            magics = heads["magic"][these]
            lengths[these] = _checked_topic(parts.records, topic, magics, at[these], rest[these])
    return lengths


def _checked_topic(
    records: memoryview, topic: str, magics: NDArray[Any], at: Ints, rest: Ints
) -> Ints:
    """What is left for properties: records are of ``topic``, which can be one, as they say."""
    block = topic_block(topic)
    lengths = rest - len(block.data)
    if lengths.min() < 0 or (magics != block.magic).any():
        raise RingNonsense(f"a record is not of topic {topic!r}, as was announced")
    found = anywhere(records, np.dtype((np.void, len(block.data))))[at]
    if found.tobytes() != block.data * len(at):
        raise RingNonsense(f"a record is not of topic {topic!r}, as was announced")
    if (anywhere(records, _LENGTH)[at + len(block.data)] != lengths).any():
        raise RingNonsense("the properties of a record do not end it")
    return lengths
