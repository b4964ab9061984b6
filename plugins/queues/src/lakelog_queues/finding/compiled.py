"""The way of plain calls through compiled code, from the key index or a queue's units to messages.

It gives what :mod:`lakelog.reading` would, and leaves to it what is not plain: a queue of batches,
of codes that are kept apart or of a repair, units of two files, and all that damage of the log or
the index, a decoder of bodies or an archive ask for.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

import attrs

from lakelog.accelerate import current
from lakelog.files.pages import shared_page as sharedpage
from lakelog.format.queue_offsets import Queue
from lakelog.interfaces import HashChains, HashFiles
from lakelog.log.reading.log_reader import LogReader, ReadLog
from lakelog_queues.finding.results import GetResult, GetStatus
from lakelog_queues.finding.selection import FILTERED_UNITS, MOST_BYTES
from lakelog_queues.finding.shortway import MOST_MESSAGES
from lakelog_queues.lookups import NO_LOOKUPS, Lookups


@runtime_checkable
class PlainQueues(Protocol):
    """Queues whose units compiled code may read itself."""

    def plain(
        self, queue: Queue, minimum: int, offset: int | None
    ) -> tuple[int, int, Any, int, int] | None:
        """Where the unit of queue offset ``offset`` stands; see ``PlainUnits``."""


@attrs.frozen(kw_only=True)
class LookupParts:
    """What a store looks messages up by, for compiled code that does the same.

    :ivar log: where its bytes are; :ivar layout: where words of the shared page stand, by name
    :ivar plain: see :class:`PlainQueues`; :ivar hash_files: see
        :class:`~lakelog.interfaces.HashFiles`; each ``None`` where there is none
    :ivar buried: the offset below which records of a topic do not count: it was removed
    :ivar refresh: brings queues and index up to date, where nobody else does
    :ivar most_messages: of one call; :ivar most_bytes: of all their records
    :ivar filtered_units: at least so many are looked at for tags
    :ivar result: makes the result; :ivar status: of one that has messages; :ivar no_match: of one
        without
    """

    log: ReadLog
    plain: Callable[[Queue, int, int | None], object] | None
    hash_files: Callable[[], HashChains | None] | None
    buried: Callable[[str], int]
    refresh: Callable[[], None] | None = None
    layout: ModuleType = sharedpage
    most_messages: int = MOST_MESSAGES
    most_bytes: int = MOST_BYTES
    filtered_units: int = FILTERED_UNITS
    result: type[GetResult] = GetResult
    status: GetStatus = GetStatus.FOUND
    no_match: GetStatus = GetStatus.NO_MATCHED_MESSAGE


def lookups(
    queues: object,
    index: object,
    log: LogReader,
    buried: Callable[[str], int],
    refresh: Callable[[], None] | None,
) -> Lookups:
    """Those of the accelerator of this process, as far as they can serve."""
    accelerator, readable = current(), log.readable()
    if accelerator is None or readable is None:
        return NO_LOOKUPS
    parts = LookupParts(
        log=readable,
        plain=queues.plain if isinstance(queues, PlainQueues) else None,
        hash_files=index.hash_files if isinstance(index, HashFiles) else None,
        buried=buried,
        refresh=refresh,
    )
    return accelerator.lookups(parts) or NO_LOOKUPS
