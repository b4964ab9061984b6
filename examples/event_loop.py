"""How is a store used in an event loop?"""

from __future__ import annotations

import asyncio
import tempfile

import lakelog
import lakelog.aio


async def produce(store: lakelog.aio.AsyncStore, name: str) -> None:
    """One of many tasks; concurrent puts share one sync."""
    for number in range(5):
        await store.put(lakelog.Message("orders", f"{name} {number}".encode(), queue_id=0))


async def consume(store: lakelog.aio.AsyncStore, count: int) -> None:
    """Follow a queue as it grows."""
    async for message in store.read("orders", 0, follow=True):
        if message.queue_offset % 10 == 0:
            print(message.queue_offset, bytes(message.body).decode())
        if message.queue_offset == count - 1:
            return


async def main(path: str) -> None:
    """Run ten producers and a consumer in one loop."""
    async with lakelog.aio.open(path, segment_size_bytes="4MiB", flush="inline") as store:
        consumer = asyncio.create_task(consume(store, 50))
        await asyncio.gather(*(produce(store, f"task {name}") for name in range(10)))
        await asyncio.wait_for(consumer, 20)
        print("durable up to byte", await store.flush())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(main(f"{temporary}/store"))
