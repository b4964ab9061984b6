"""Members of groups in an event loop, and being told which queues have new messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeVar

from lakelog import Delivery, Message
from lakelog.aio import AsyncGroupConsumer, AsyncStore
from lakelog.aio import open as open_async
from plugins.queues.tests.groups.support import bodies, fill, open_store

T = TypeVar("T")
SETTINGS = {"flush": "none", "segment_size_bytes": 1 << 20, "preallocate": False}


async def after(iterator: AsyncIterator[T]) -> T:
    return await asyncio.wait_for(anext(iterator), 60)


def test_members_of_one_loop_share(tmp_path: Path) -> None:
    seen: list[int] = []

    async def work(member: AsyncGroupConsumer) -> None:
        async for each in member:
            seen.append(int(bytes(each.message.body)))
            await member.ack(each)

    async def main() -> None:
        async with open_async(tmp_path, **SETTINGS) as store:
            async with (
                await store.subscribe("g", "t", start="earliest") as one,
                await store.subscribe("g", "t", start="earliest") as two,
            ):
                tasks = [asyncio.create_task(work(each)) for each in (one, two)]
                async with asyncio.timeout(60):
                    while len(seen) < 100:
                        await asyncio.sleep(0.01)
                    while sorted(one.assigned() + two.assigned()) != [("t", n) for n in range(4)]:
                        await asyncio.sleep(0.01)
                for each in tasks:
                    each.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            assert sum((await store.groups())["g"]["t"].values()) == 100

    with open_store(tmp_path) as store:
        fill(store, 100)
    asyncio.run(main())
    assert sorted(seen) == list(range(100))


def test_outcomes_and_a_cancelled_poll(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            open_async(tmp_path, **SETTINGS) as store,
            await store.subscribe("g", "t", start="earliest") as member,
        ):
            polling = asyncio.create_task(member.poll(4))
            await asyncio.sleep(0)  # its thread runs by now, and cannot be stopped
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
            found: list[Delivery] = []
            async with asyncio.timeout(30):  # less than the invisible time
                while len(found) < 4:
                    found += await member.poll(4, wait_ms=100)
            assert sorted(bodies(found)) == [0, 1, 2, 3]
            assert await member.renew(found[0])
            assert await member.ack(*found[1:])
            assert await member.nack(found[0], 0)
            (again,) = await member.poll(wait_ms=60_000)
            assert (again.topic, again.attempt, again.origin_topic) == ("%RETRY%g", 2, "t")
            assert await member.ack(again)
            await member.commit()
            assert (await store.groups())["g"]["%RETRY%g"] == {0: 1}

    with open_store(tmp_path) as store:
        fill(store, 4)
    asyncio.run(main())


def test_being_told_which_queues_have_new_messages(tmp_path: Path) -> None:
    async def main(store: AsyncStore) -> None:
        told = store.watch("t", since={("t", 0): 1})
        assert await after(told) == {("t", 0): 3, ("t", 1): 2}
        waiting = asyncio.create_task(after(told))
        await store.put(Message("other", b"", queue_id=0))
        await store.put(Message("t", b"", queue_id=7))
        assert await waiting == {("t", 7): 1}
        await store.put_batch([Message("t", b"", queue_id=n % 2) for n in range(4)])
        grown: dict[tuple[str, int], int] = {}
        while grown != {("t", 0): 5, ("t", 1): 4}:
            grown |= await after(told)
        ends = asyncio.create_task(anext(told, None))
        await store.close()
        assert await asyncio.wait_for(ends, 60) is None

    async def opened() -> None:
        await main(await open_async(tmp_path, **SETTINGS))

    with open_store(tmp_path) as store:
        fill(store, 5, queues=2)
    asyncio.run(opened())
