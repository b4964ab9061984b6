"""Only requests of clients make the store fill its queues for each message at once."""

from __future__ import annotations

import asyncio

from lakelog.dispatch.arrivals import Arrivals
from lakelog_broker.state.arrivals import ArrivalWaits

QUEUE = ("t", 0)


def test_waits_are_urgent_while_a_request_waits() -> None:
    arrivals, ends = Arrivals(), {QUEUE: 0}
    waits = ArrivalWaits(arrivals, lambda topic, queue_id: ends[(topic, queue_id)])

    def has_grown() -> bool:
        return ends[QUEUE] > 0

    async def main() -> None:
        running = asyncio.create_task(waits.run())
        background = asyncio.create_task(waits.until([QUEUE], 60, has_grown, is_urgent=False))
        await asyncio.sleep(0)
        assert not arrivals.has_waiters
        request = asyncio.create_task(waits.until([QUEUE], 60, has_grown))
        await asyncio.sleep(0)
        assert arrivals.has_waiters
        ends[QUEUE] = 1
        arrivals.notify()
        assert await asyncio.gather(background, request) == [True, True]
        arrivals.close()
        await running

    asyncio.run(main())
