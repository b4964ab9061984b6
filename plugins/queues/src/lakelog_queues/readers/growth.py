"""Reports in an event loop which queues have new messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import attrs

from lakelog.errors import StoreClosed
from lakelog.format.queue_offsets import Queue
from lakelog.runtime.threads import in_thread
from lakelog_queues.arrivals import ArrivalSignal
from lakelog_queues.finding.results import QueueInfo


@attrs.frozen
class QueueGrowth:
    """Compares the ends of queues after each arrival.

    :ivar queues: lists the queues of a topic, or all
    """

    arrivals: ArrivalSignal
    queues: Callable[[str | None], Sequence[QueueInfo]]

    async def watch(
        self, topic: str | None, since: Mapping[Queue, int] | None
    ) -> AsyncIterator[dict[Queue, int]]:
        """Yield the queues that have grown, each with its end, until the store is closed."""
        seen = self.arrivals.version
        known = dict(await in_thread(self._ends, topic) if since is None else since)
        while True:
            try:
                now = await in_thread(self._ends, topic)
            except StoreClosed:
                return
            grown = {queue: end for queue, end in now.items() if end > known.get(queue, 0)}
            known.update(now)
            if grown:
                yield grown
            await self.arrivals.wait_async(seen)
            if self.arrivals.closed:
                return
            seen = self.arrivals.version

    def _ends(self, topic: str | None) -> dict[Queue, int]:
        return {(each.topic, each.queue_id): each.max_offset for each in self.queues(topic)}
