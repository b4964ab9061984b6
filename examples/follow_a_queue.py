"""How is a queue followed as messages arrive, in a thread and with asyncio?"""

from __future__ import annotations

import asyncio
import tempfile
import threading

import lakelog


def put_slowly(store: lakelog.Store) -> None:
    """Put ten messages, one after the other."""
    for number in range(10):
        store.put(lakelog.Message("orders", b"order %d" % number, queue_id=0))


async def follow(store: lakelog.Store, count: int) -> None:
    """Await messages without blocking the loop."""
    async for message in store.read_async("orders", 0, follow=True):
        print("asyncio got", bytes(message.body))
        if message.queue_offset == count - 1:
            break


def main(folder: str) -> None:
    """One thread puts, this one follows; then a coroutine reads the same."""
    with lakelog.open(folder, segment_size_bytes="1MiB") as store:
        putter = threading.Thread(target=put_slowly, args=(store,))
        putter.start()
        for message in store.read("orders", 0, follow=True):
            print("got", bytes(message.body))
            if message.queue_offset == 9:
                break
        putter.join()
        asyncio.run(follow(store, 10))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(f"{temporary}/store")
