"""The short way of a plain call: messages that are all there, and whole.

Whatever is not plain, from a damaged record to the end of a file, is left to
:mod:`~lakelog_queues.finding.selection`, which knows RocketMQ's result for it; so nothing is
decided here but that there is nothing to decide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import attrs

from lakelog.format.units import Ints, Longs
from lakelog.interfaces import QueueReader
from lakelog.message import StoredMessage
from lakelog_queues.finding.results import GetResult, GetStatus
from lakelog_queues.finding.selection import GetSelection

MOST_MESSAGES: Final = 4096
"""For more, units are not read at one go."""


class FewLog(Protocol):
    """The part of :class:`~lakelog.log.reading.log_reader.LogReader` that is needed here."""

    def few(
        self, offsets: Longs, sizes: Ints, *, verify: bool = True
    ) -> list[StoredMessage] | None:
        """Whole messages that stand close together."""


@attrs.frozen
class FewMessagesGetter:
    """Gets messages.

    :ivar minimum: gives the log's first byte
    """

    queues: QueueReader
    log: FewLog
    minimum: Callable[[], int]

    def get(self, want: GetSelection) -> GetResult | None:
        """What ``want`` asks for; ``None`` if it has to go the long way."""
        if want.tags is not None or want.max_messages > MOST_MESSAGES:
            return None
        bounds = self.queues.bounds(want.queue, self.minimum())
        if bounds is None or not bounds[0] <= want.offset < bounds[1]:
            return None
        messages = self._messages(want, min(want.max_messages, bounds[1] - want.offset))
        if messages is None:
            return None
        return GetResult(GetStatus.FOUND, messages, want.offset + len(messages), *bounds)

    def _messages(self, want: GetSelection, count: int) -> list[StoredMessage] | None:
        units = self.queues.units(want.queue, want.offset, count)
        if len(units) != count or int(units.queue_offsets[-1]) != want.offset + count - 1:
            return None
        # of a few numbers, lists are faster than arrays
        is_too_much = sum(units.sizes.tolist()) > want.max_bytes
        if is_too_much or units.counts.tolist().count(1) != count:
            return None
        return self.log.few(units.offsets, units.sizes, verify=want.verify)
