"""A fast path for the common call: all messages exist, are whole and stand close together.

For any other call, such as one that meets a damaged record or the end of a file, it returns
``None``. Then :mod:`~lakelog_queues.finding.selection` determines the result and its status.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from lakelog.interfaces import QueueReader
from lakelog.message import StoredMessage
from lakelog_queues.finding.records import PlacedRecords
from lakelog_queues.finding.results import GetResult, GetStatus
from lakelog_queues.finding.selection import GetSelection

MOST_MESSAGES: Final = 4096
"""Largest number of messages whose units are read at once."""


@attrs.frozen
class FewMessagesGetter:
    """Gets messages through the fast path.

    :ivar minimum: returns the physical offset of the first byte still in the log
    """

    queues: QueueReader
    log: PlacedRecords
    minimum: Callable[[], int]

    def get(self, want: GetSelection) -> GetResult | None:
        """The result of ``want``; ``None`` if the fast path does not apply."""
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
        # for a few numbers, lists are faster than arrays
        is_too_much = sum(units.sizes.tolist()) > want.max_bytes
        if is_too_much or units.counts.tolist().count(1) != count:
            return None
        return self.log.few(units.offsets, units.sizes, verify=want.verify)
