"""The way of an owner's plain call through compiled code, from the queue's units to messages.

It gives what :mod:`lakelog.reading.shortway` would, and leaves to it what is not plain: a queue of
batches, of codes that are kept apart or of a repair, units of two files, and all that a log's
damage, a decoder of bodies or somebody else's files ask for.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol, TypeAlias, runtime_checkable

import attrs

from lakelog.accelerate import Accelerator
from lakelog.files.pages import shared_page as sharedpage
from lakelog.format.queue_offsets import Queue
from lakelog.log.reading.log_reader import LogReader
from lakelog.reading.results import GetResult, GetStatus
from lakelog.reading.selection import MOST_BYTES
from lakelog.reading.shortway import MOST_MESSAGES

PlainWay: TypeAlias = Callable[[Any, Any, Any, Any], GetResult | None]
"""Messages by topic, queue id, queue offset and the most of them; ``None`` where Python has to look
at it, be it at the arguments.
"""


@runtime_checkable
class PlainQueues(Protocol):
    """Queues whose units compiled code may read itself."""

    def plain(
        self, queue: Queue, minimum: int, offset: int
    ) -> tuple[int, int, Any, int, int] | None:
        """Where the unit of queue offset ``offset`` stands; see ``PlainUnits``."""


@attrs.frozen
class GetParts:
    """What an owner gets messages from, for compiled code that does the same.

    :ivar memory: the shared page; :ivar layout: where its words stand, by their names
    :ivar plain: see :class:`PlainQueues`
    :ivar view: bytes of the log, not beyond the end of a segment; :ivar segment_bytes: its length
    :ivar most_messages: of one call; :ivar most_bytes: of all their records
    :ivar result: makes the result; :ivar status: of one that has messages
    """

    memory: memoryview
    plain: Callable[[Queue, int, int], tuple[int, int, Any, int, int] | None]
    view: Callable[[int, int], memoryview]
    segment_bytes: int
    layout: ModuleType = sharedpage
    most_messages: int = MOST_MESSAGES
    most_bytes: int = MOST_BYTES
    result: type[GetResult] = GetResult
    status: GetStatus = GetStatus.FOUND


def plain_way(accelerator: Accelerator | None, queues: object, log: LogReader) -> PlainWay | None:
    """The way, where there is one."""
    owned = log.owned()
    if accelerator is None or owned is None or not isinstance(queues, PlainQueues):
        return None
    memory, segments = owned
    return accelerator.getting(GetParts(memory, queues.plain, segments.view, segments.size_bytes))
