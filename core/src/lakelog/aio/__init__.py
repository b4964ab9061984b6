"""lakelog for event loops: the verbs of a store, none of which blocks the loop.

>>> async with lakelog.aio.open("/tmp/events") as store:             # doctest: +SKIP
...     result = await store.put(lakelog.Message("orders", b"hello"))
...     async for message in store.read("orders", 0, follow=True):
...         print(message.body)

What is put from one loop is appended in the order of the calls. Files are read, and strategies are
asked, in threads.
"""

from __future__ import annotations

from lakelog.aio.consumer import AsyncConsumer
from lakelog.aio.opening import Opened, open_async
from lakelog.aio.store import AsyncStore

open = open_async  # noqa: A001  # lakelog.aio.open, like lakelog.open

__all__ = ["AsyncConsumer", "AsyncStore", "Opened", "open"]
