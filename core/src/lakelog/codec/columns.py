"""The fields of many messages, column by column, and what their records are made of.

A comprehension per field is the fastest way to its column. A column of equal values is passed on
as one value, which NumPy spreads.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from lakelog.checksum import CRC31_MASK, crc32
from lakelog.codec.dtypes import SHORT, head_dtype
from lakelog.codec.hostpair import HostPair
from lakelog.codec.limits import as_body
from lakelog.codec.messageproperties import column_properties, ended
from lakelog.codec.one import GIVEN_BITS
from lakelog.codec.recordcrc import PLACEHOLDER
from lakelog.codec.topicblock import topic_block
from lakelog.message import Body, Message
from lakelog.properties import INNER_MULTI_DISPATCH

if TYPE_CHECKING:
    from lakelog.codec.encoder import Encoder

DISPATCHED: Final = INNER_MULTI_DISPATCH.encode()
_NO_LENGTH: Final = bytes(SHORT.itemsize)
INT: Final = "i"
_LONG: Final = "q"


class UnlikeError(Exception):
    """The messages do not fit one layout."""


def bodies_of(messages: Sequence[Message]) -> Sequence[Body]:
    """All bodies."""
    bodies = [each.body for each in messages]
    return bodies if set(map(type, bodies)) == {bytes} else [as_body(body) for body in bodies]


def properties_of(messages: Sequence[Message], encoder: Encoder) -> list[bytes]:
    """All property strings, with room for the record checksum where there is one."""
    properties = column_properties(
        [each.tags for each in messages],
        [each.keys for each in messages],
        [each.properties for each in messages],
    )
    if encoder.max_light_queues is not None and any(DISPATCHED in each for each in properties):
        raise UnlikeError
    if encoder.record_crc:
        return [ended(each) + PLACEHOLDER for each in properties]
    return properties


def hosts_of(messages: Sequence[Message], encoder: Encoder) -> Sequence[HostPair]:
    """The hosts of all messages, or of the first one where they are the same."""
    alike = _are_equal([each.born_host for each in messages])
    if alike and _are_equal([each.store_host for each in messages]):
        return [encoder.hosts_of(messages[0])]
    hosts = [encoder.hosts_of(each) for each in messages]
    if len({each.sys_flag for each in hosts}) != 1:
        raise UnlikeError
    return hosts


def queue_ids_of(messages: Sequence[Message], encoder: Encoder) -> NDArray[np.int32]:
    """All queue ids, those chosen that are not given."""
    given = [each.queue_id for each in messages]
    if None in given:
        given = [encoder.queue_of(each) for each in messages]
    return np.broadcast_to(queue_column(given), len(messages))


def queue_column(given: list[Any]) -> NDArray[Any]:
    """Queue ids as an array; of equal ones, one."""
    ids = as_column(given, INT)
    if ids.min() < 0 or bool in set(map(type, given[:1] if len(ids) == 1 else given)):
        raise UnlikeError
    return ids


class Topics:
    """The topics of a batch, each different one looked at once."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.names = [each.topic for each in messages]
        self._blocks = {topic: topic_block(topic) for topic in dict.fromkeys(self.names)}

    def fronts(self) -> list[bytes]:
        """What stands between body and properties, the length of these being zero."""
        fronts = {name: block.data + _NO_LENGTH for name, block in self._blocks.items()}
        return [fronts[name] for name in self.names]

    def magics(self) -> Any:
        """The magic number of each record."""
        return self._column({name: block.magic for name, block in self._blocks.items()})

    def lengths(self) -> Any:
        """How much stands between body and properties of each record."""
        return self._column(
            {name: len(block.data) + SHORT.itemsize for name, block in self._blocks.items()}
        )

    def numbers(self) -> Any:
        """A number for the topic of each record."""
        return self._column({name: number for number, name in enumerate(self._blocks)})

    def _column(self, values: Mapping[str, int]) -> Any:
        if len(values) == 1:
            return values[self.names[0]]
        return np.array([values[name] for name in self.names], np.int64)


def heads_of(
    messages: Sequence[Message],
    topics: Topics,
    bodies: Sequence[Body],
    hosts: Sequence[HostPair],
) -> NDArray[Any]:
    """All fields before the body, but for sizes, queues and what an append fills in."""
    first = hosts[0]
    heads = np.zeros(len(messages), head_dtype(len(first.born), len(first.store)))
    heads["magic"] = topics.magics()
    heads["body_crc"] = np.array([crc32(body) for body in bodies], np.uint32) & CRC31_MASK
    heads["flag"] = as_column([each.flag for each in messages], INT)
    flags = as_column([each.sys_flag for each in messages], INT)
    heads["sys_flag"] = flags & GIVEN_BITS | first.sys_flag
    heads["born_timestamp"] = _born([each.born_timestamp_ms for each in messages])
    heads["born_host"] = _joined([each.born for each in hosts])
    heads["store_host"] = _joined([each.store for each in hosts])
    heads["reconsume_times"] = as_column([each.reconsume_times for each in messages], INT)
    prepared = [each.prepared_transaction_offset for each in messages]
    heads["prepared_transaction_offset"] = as_column(prepared, _LONG)
    return heads


def joined_records(
    head_bytes: int, topics: Topics, bodies: Sequence[Body], properties: Sequence[bytes]
) -> bytearray:
    """The records back to back, with zeros for their heads and for the properties' lengths."""
    pieces: list[Any] = [bytes(head_bytes)] * (4 * len(bodies))
    pieces[1::4] = bodies
    pieces[2::4] = topics.fronts()
    pieces[3::4] = properties
    return bytearray().join(pieces)


def _born(given: list[int | None]) -> Any:
    now = time.time_ns() // 1_000_000
    if None in given:
        given = [now if born is None else born for born in given]
    return as_column(given, _LONG)


def as_column(values: list[Any], code: str) -> NDArray[Any]:
    """``values`` as an array; of equal values, one.

    By way of the standard library's array, which takes whole numbers in range and nothing else.
    """
    numbers = array(code, values[:1] if _are_equal(values) else values)
    return np.frombuffer(numbers, code)


def _are_equal(values: list[Any]) -> bool:
    return values.count(values[0]) == len(values)


def _joined(hosts: Sequence[bytes]) -> NDArray[np.void]:
    return np.frombuffer(b"".join(hosts), np.dtype((np.void, len(hosts[0]))))
