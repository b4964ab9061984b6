"""Encoded records on their way to another process, which places them.

What a batch has before :meth:`~lakelog.codec.encoded.EncodedBatch.place`, ready to be copied.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import attrs

from lakelog.message import Body

if TYPE_CHECKING:
    from lakelog.queueoffsets import Queue


@attrs.frozen(slots=True, eq=False)
class Offer:
    """Records that lack only what depends on their place.

    :ivar records: back to back; queue offsets, physical offsets and store times are zero
    :ivar sizes: length of each in bytes: 32-bit, in the machine's order
    :ivar queues: topic and queue of each
    :ivar topics: the different topics, in the order in which they first come
    :ivar topic_index: of each record, which of ``topics`` is its own, as ``sizes``; empty if there
        is but one
    :ivar store_hosts: of each, for its message id
    :ivar wait: whether the put waits for what the flush strategy promises
    :ivar sealed: whether records end with room for their checksum
    :ivar in_columns: whether results are wanted as columns
    """

    records: Body
    sizes: Body
    queues: Sequence[Queue]
    topics: Sequence[str]
    topic_index: Body
    store_hosts: Sequence[str]
    wait: bool
    sealed: bool
    in_columns: bool

    @property
    def count(self) -> int:
        """How many records there are."""
        return len(self.queues)


def topic_columns(queues: Iterable[Queue]) -> tuple[Sequence[str], Body]:
    """The different topics of ``queues``, and the number of each one's topic."""
    names = [topic for topic, _ in queues]
    if names.count(names[0]) == len(names):
        return names[:1], b""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return list(numbers), as_ints([numbers[name] for name in names])


def as_ints(values: Iterable[int]) -> Body:
    """32-bit integers in the machine's order."""
    return array("i", values).tobytes()
