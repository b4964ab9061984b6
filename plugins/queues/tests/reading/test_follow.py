"""Following a queue and long polling: in threads, in an event loop, and without a signal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Timer

import pytest

from core.tests.store.support import open_small
from lakelog import Message, Store
from lakelog.dispatch.arrivals import Arrivals
from lakelog_queues.finding.follow import GetRequest, QueueFollower
from lakelog_queues.finding.results import GetStatus
from lakelog_queues.readers.arrivals import PolledArrivals
from plugins.queues.tests.reading.support import QueuesInMemory, getter_of

pytestmark = pytest.mark.both_ways


class Live:
    """A store whose queues are dispatched on request of a test."""

    def __init__(self, store: Store, *, polled: bool) -> None:
        self.queues, self.store, self.count = QueuesInMemory(), store, 0
        self.told = Arrivals()
        self.arrivals = PolledArrivals(lambda: self.count) if polled else self.told
        self.follower = QueueFollower(getter_of(store, self.queues), self.arrivals)

    def put(self, count: int = 1, tags: str | None = None) -> None:
        for _ in range(count):
            self.store.put(Message("t", b"%d" % self.count, queue_id=0, tags=tags))
            later = QueuesInMemory()
            later.take_in(self.store)
            self.queues.of = later.of
            self.count += 1
            self.told.notify()

    def close(self) -> None:
        self.arrivals.close()


@pytest.fixture(params=["told", "polled"])
def live(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Live]:
    with open_small(tmp_path / "s") as store:
        yield Live(store, polled=request.param == "polled")


def after(seconds: float, call: Callable[[], None]) -> None:
    timer = Timer(seconds, call)
    timer.daemon = True
    timer.start()


def test_read_to_the_end(live: Live) -> None:
    assert list(live.follower.read("t", 0)) == []
    live.put(5)
    assert [each.queue_offset for each in live.follower.read("t", 0, batch=2)] == [0, 1, 2, 3, 4]
    assert [each.queue_offset for each in live.follower.read("t", 0, 3)] == [3, 4]
    assert list(live.follower.read("t", 0, 9)) == []
    assert list(live.follower.read("t", 0, tags="none")) == []


def test_follow_in_a_thread_from_before_the_queue_is_there(live: Live) -> None:
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(
            lambda: [each.queue_offset for each in live.follower.read("t", 0, 1, follow=True)]
        )
        for _ in range(10):
            live.put()
            time.sleep(0.002)
        live.close()
        assert read.result(5) == list(range(1, 10))


def test_a_follower_that_starts_behind_the_end_waits_for_its_place(live: Live) -> None:
    live.put(1)
    follow = live.follower.read("t", 0, 3, follow=True)
    after(0.02, lambda: live.put(4))
    assert next(follow).queue_offset == 3


def test_an_event_loop_reads_to_the_end_and_sees_the_close(live: Live) -> None:
    async def read(*, follow: bool) -> list[int]:
        reader = live.follower.read_async("t", 0, follow=follow)
        return [each.queue_offset async for each in reader]

    live.put(3)
    assert asyncio.run(read(follow=False)) == [0, 1, 2]
    after(0.03, live.close)
    assert asyncio.run(read(follow=True)) == [0, 1, 2]


def test_long_polling_returns_at_the_arrival(live: Live) -> None:
    after(0.03, live.put)
    begin = time.monotonic()
    result = live.follower.get(GetRequest("t", 0, 0), wait_ms=60_000)
    assert [each.queue_offset for each in result.messages] == [0]
    assert time.monotonic() - begin < 20


def test_long_polling_gives_up_in_time(live: Live) -> None:
    live.put()
    begin = time.monotonic()
    result = live.follower.get(GetRequest("t", 0, 1), wait_ms=30)
    assert result.status is GetStatus.OFFSET_OVERFLOW_ONE
    assert 0.03 <= time.monotonic() - begin < 20
    assert live.follower.get(GetRequest("t", 0, 1)).status is GetStatus.OFFSET_OVERFLOW_ONE
    far = live.follower.get(GetRequest("t", 0, 7), wait_ms=60_000)
    assert far.status is GetStatus.OFFSET_OVERFLOW_BADLY


def test_long_polling_looks_on_behind_other_tags(live: Live) -> None:
    live.put(3, "x")
    after(0.03, lambda: live.put(1, "y"))
    result = live.follower.get(GetRequest("t", 0, 0, tags="y"), wait_ms=60_000)
    assert [each.queue_offset for each in result.messages] == [3]
    assert live.follower.get(GetRequest("t", 0, 0, tags="z"), wait_ms=20).next_offset == 4


def test_long_polling_in_an_event_loop(live: Live) -> None:
    after(0.03, live.put)
    result = asyncio.run(live.follower.get_async(GetRequest("t", 0, 0), wait_ms=60_000))
    assert [each.queue_offset for each in result.messages] == [0]
    late = asyncio.run(live.follower.get_async(GetRequest("t", 0, 1), wait_ms=20))
    assert late.status is GetStatus.OFFSET_OVERFLOW_ONE


def test_a_close_ends_long_polling(live: Live) -> None:
    after(0.03, live.close)
    begin = time.monotonic()
    live.follower.get(GetRequest("t", 0, 0), wait_ms=60_000)
    assert time.monotonic() - begin < 20


def test_listeners_hear_until_they_unsubscribe() -> None:
    arrivals, heard = Arrivals(), list[int]()
    unsubscribe = arrivals.subscribe(lambda: heard.append(arrivals.version))
    arrivals.notify()
    unsubscribe()
    unsubscribe()
    arrivals.notify()
    assert heard == [1]
    assert arrivals.wait(0, 60) == 2


def test_arrivals_say_whether_and_when_somebody_waits() -> None:
    arrivals, begun = Arrivals(), list[bool]()
    arrivals.on_wait = lambda: begun.append(arrivals.has_waiters)
    assert not arrivals.has_waiters
    arrivals.wait(arrivals.version, 0.0)
    assert begun == [True]
    assert not arrivals.has_waiters
    unsubscribe = arrivals.subscribe(lambda: None)
    assert begun == [True, True]
    assert arrivals.has_waiters
    unsubscribe()
    assert not arrivals.has_waiters


def test_a_listener_that_is_not_urgent_hears_but_nobody_hurries() -> None:
    arrivals, heard, urgent = Arrivals(), list[int](), list[bool]()
    unsubscribe = arrivals.subscribe(lambda: heard.append(1), lambda: bool(urgent))
    assert not arrivals.has_waiters
    arrivals.notify()
    assert heard == [1]
    urgent.append(True)
    assert arrivals.has_waiters
    unsubscribe()
    assert not arrivals.has_waiters
