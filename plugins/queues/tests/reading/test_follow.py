"""Following a queue and long polling: in threads, in an event loop, and without a signal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Timer
from typing import Any

import attrs
import pytest

import lakelog
from core.tests.store.support import open_small, read_small
from lakelog import GetStatus, Message, Store
from lakelog.dispatch import Arrivals
from lakelog.errors import StoreClosed
from lakelog.processes.shared_page import PAGE_FILE

pytestmark = pytest.mark.both_ways


@attrs.frozen
class Live:
    """A store, and the one that reads its queues: the same, or a reader that is told nothing."""

    owner: Store
    reader: Store

    def put(self, count: int = 1, tags: str | None = None) -> None:
        for _ in range(count):
            self.owner.put(Message("t", b"x", queue_id=0, tags=tags))

    def put_now(self, count: int = 1, tags: str | None = None) -> None:
        self.put(count, tags)
        self.owner.wait_dispatched()
        self.reader.wait_dispatched()


@pytest.fixture(params=["told", "told by a page", "polled"])
def live(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Live]:
    with open_small(tmp_path / "s") as store:
        if request.param == "told":
            yield Live(store, store)
        else:
            if request.param == "polled":  # as beside RocketMQ, which has no such page
                (tmp_path / "s" / "lakelog" / PAGE_FILE).unlink()
            with read_small(tmp_path / "s") as reader:
                yield Live(store, reader)


def after(seconds: float, call: Callable[[], None]) -> Timer:
    timer = Timer(seconds, call)
    timer.daemon = True
    timer.start()
    return timer


def test_read_to_the_end(live: Live) -> None:
    assert list(live.reader.read("t", 0)) == []
    live.put_now(5)
    assert [each.queue_offset for each in live.reader.read("t", 0)] == [0, 1, 2, 3, 4]
    assert [each.queue_offset for each in live.reader.read("t", 0, 3)] == [3, 4]
    assert list(live.reader.read("t", 0, 9)) == []
    assert list(live.reader.read("t", 0, tags="none")) == []


def test_follow_in_a_thread_from_before_the_queue_is_there(live: Live) -> None:
    def follow() -> list[int]:
        found: list[int] = []
        for each in live.reader.read("t", 0, 1, follow=True):
            found.append(each.queue_offset)
            if len(found) == 9:
                break
        return found

    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(follow)
        for _ in range(10):
            live.put()
        assert read.result(60) == list(range(1, 10))


def test_a_follower_that_starts_behind_the_end_waits_for_its_place(live: Live) -> None:
    live.put_now(1)
    follow = live.reader.read("t", 0, 3, follow=True)
    after(0.02, lambda: live.put(4))
    assert next(follow).queue_offset == 3


def test_an_event_loop_reads_to_the_end_and_sees_the_close(live: Live) -> None:
    async def read(*, follow: bool) -> list[int]:
        found = live.reader.read_async("t", 0, follow=follow)
        return [each.queue_offset async for each in found]

    live.put_now(3)
    assert asyncio.run(read(follow=False)) == [0, 1, 2]
    closing = after(0.03, live.reader.close)
    assert asyncio.run(read(follow=True)) == [0, 1, 2]
    closing.join()


def test_long_polling_looks_on_behind_other_tags(live: Live) -> None:
    live.put_now(3, "x")
    after(0.03, lambda: live.put(1, "y"))
    result = live.reader.get("t", 0, 0, tags="y", wait_ms=60_000)
    assert [each.queue_offset for each in result.messages] == [3]
    assert live.reader.get("t", 0, 0, tags="z", wait_ms=20).next_offset == 4


def test_long_polling_gives_up(live: Live) -> None:
    live.put_now()
    for wait_ms in (0, 30):
        late = live.reader.get("t", 0, 1, wait_ms=wait_ms)
        assert late.status is GetStatus.OFFSET_OVERFLOW_ONE
    far = live.reader.get("t", 0, 7, wait_ms=60_000)
    assert far.status is GetStatus.OFFSET_OVERFLOW_BADLY


def test_long_polling_in_an_event_loop(live: Live) -> None:
    after(0.03, live.put)
    result = asyncio.run(live.reader.get_async("t", 0, 0, wait_ms=60_000))
    assert [each.queue_offset for each in result.messages] == [0]
    late = asyncio.run(live.reader.get_async("t", 0, 1, wait_ms=20))
    assert late.status is GetStatus.OFFSET_OVERFLOW_ONE


def test_a_close_ends_long_polling(live: Live) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(live.reader.get, "t", 0, 0, wait_ms=600_000)
        closing = after(0.03, live.reader.close)
        waiting.exception(60)
        closing.join()


def test_arrivals_are_heard_and_hurried_only_by_those_who_wait() -> None:
    arrivals, heard, urgent, begun = Arrivals(), list[int](), list[bool](), list[bool]()
    unsubscribe = arrivals.subscribe(lambda: heard.append(arrivals.version), lambda: bool(urgent))
    assert not arrivals.has_waiters
    arrivals.notify()
    assert heard == [1]
    urgent.append(True)
    assert arrivals.has_waiters
    unsubscribe()
    unsubscribe()
    arrivals.notify()
    assert heard == [1]
    assert not arrivals.has_waiters
    arrivals.on_wait = lambda: begun.append(arrivals.has_waiters)
    assert arrivals.wait(0, 60) == 2
    arrivals.wait(arrivals.version, 0.0)
    assert begun[-1]
    assert not arrivals.has_waiters


@pytest.mark.parametrize("mode", ["write", "read"])
def test_no_read_of_a_closed_store_waits_or_goes_on(mode: Any, tmp_path: Path) -> None:
    open_small(tmp_path).close()
    with open_small(tmp_path) as store:
        store.put(Message("t", b"x", queue_id=0))
    store = lakelog.open(tmp_path, mode=mode)
    assert store.get("t", 0, 0, wait_ms=1).messages
    followed = store.read("t", 0, follow=True)
    assert next(followed).queue_offset == 0
    store.close()
    assert list(followed) == []  # its signal has ended the wait
    for call in (
        lambda: store.get("t", 0, 0),
        lambda: store.get("t", 0, 1, wait_ms=60_000),
        lambda: next(store.read("t", 0)),
        lambda: next(store.read("t", 0, follow=True)),
    ):
        with pytest.raises(StoreClosed):
            call()
