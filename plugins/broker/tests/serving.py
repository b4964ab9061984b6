"""A broker of lakelog in a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from lakelog import Store
from lakelog_broker.broker import Broker
from lakelog_broker.embedded import running_broker
from lakelog_broker.settings import BrokerSettings

_PATIENCE_S: Final = 120


@contextmanager
def served(store: Store, settings: BrokerSettings) -> Iterator[Broker]:
    """A running broker; its parts belong to the other thread."""
    loop, stop, ready = asyncio.new_event_loop(), asyncio.Event(), threading.Event()
    running: list[Broker] = []

    async def serve() -> None:
        try:
            async with running_broker(store, settings) as broker:
                running.append(broker)
                ready.set()
                await stop.wait()
        finally:
            ready.set()

    thread = threading.Thread(target=loop.run_until_complete, args=[serve()])
    thread.start()
    try:
        assert ready.wait(_PATIENCE_S)
        yield running[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(_PATIENCE_S)
        loop.close()
