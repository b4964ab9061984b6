"""lakelog for event loops: the methods of a store as coroutines that never block the loop.

::

    async with lakelog.aio.open("/tmp/events") as store:
        result = await store.put(lakelog.Message("orders", b"hello"))
        async for message in store.read("orders", 0, follow=True):
            print(message.body)

Puts from one loop are appended in the order of the calls. Files are read, and strategies are
called, in threads.
"""

from __future__ import annotations

from lakelog_queues.aio.consumer import AsyncConsumer, AsyncGroupConsumer
from lakelog_queues.aio.store import AsyncOpening, AsyncStore, open_async

open = open_async  # noqa: A001  # lakelog.aio.open, like lakelog.open

__all__ = ["AsyncConsumer", "AsyncGroupConsumer", "AsyncOpening", "AsyncStore", "open"]
