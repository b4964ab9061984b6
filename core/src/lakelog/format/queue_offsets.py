"""Offsets in queues: the next one of each queue, and the log positions of those that were given.

The topic-queue table is read and changed only inside the append lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from lakelog.format.properties import LIGHT_QUEUE_PREFIX
from lakelog.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Longs: TypeAlias = NDArray[np.int64]
    Ints: TypeAlias = NDArray[np.int32]
    Flags: TypeAlias = NDArray[np.bool_]
else:
    Longs = Ints = Flags = Any

Queue: TypeAlias = tuple[str, int]
"""A topic and a queue id."""


class QueueOffsets:
    """Next queue offset by queue; a missing queue starts at 0."""

    __slots__ = ("_light", "_next")

    def __init__(self, start: Mapping[Queue, int] | None = None) -> None:
        self._next: dict[Queue, int] = dict(start or {})
        self._light = sum(topic.startswith(LIGHT_QUEUE_PREFIX) for topic, _ in self._next)

    def next(self, queue: Queue) -> int:
        """The offset for the next message of ``queue``."""
        return self._next.get(queue, 0)

    def advance(self, queue: Queue, count: int) -> None:
        """Advance ``queue`` by ``count`` messages."""
        before = self._next.get(queue)
        if before is None:
            before = 0
            self._light += queue[0].startswith(LIGHT_QUEUE_PREFIX)
        self._next[queue] = before + count

    def new_light_queues(self, topics: Iterable[str]) -> int:
        """The number of light queues if ``topics`` were added."""
        return self._light + sum((topic, 0) not in self._next for topic in topics)

    def snapshot(self) -> dict[Queue, int]:
        """A copy of the whole table."""
        return dict(self._next)


@attrs.frozen(eq=False, repr=False)
class Units:
    """A run of units; arrays with one element per unit, integers in the machine's byte order.

    :ivar queue_offsets: ``int64``, queue offset of each unit; for a batch, of its first message
    :ivar offsets: ``int64``, physical offset of the record, in bytes
    :ivar sizes: ``int32``, length of the record, in bytes
    :ivar tags_codes: ``int64``, Java's hash of the tags; for a delayed message, its delivery time
        in ms
    :ivar counts: ``int32``, messages in the record: 1 except for batches
    """

    queue_offsets: Longs
    offsets: Longs
    sizes: Ints
    tags_codes: Longs
    counts: Ints

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, part: slice | Longs | Flags) -> Units:
        """A selection of the units."""
        return Units(*(column[part] for column in attrs.astuple(self, recurse=False)))
