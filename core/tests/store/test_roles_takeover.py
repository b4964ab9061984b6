"""Take-over: an attached store becomes the owner when it has something to put and nobody owns."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from core.tests.store.support import a_store, open_small, read_small
from core.tests.store.workers import Worker, a_worker
from lakelog import Consumer, Message, PutRefused, Store
from lakelog.appender import Appender
from lakelog.coalesce import Burst
from lakelog.dispatchwait import ReaderWait
from lakelog.errors import OutcomeUnknown, StoreClosed
from lakelog.files import RealFileSystem
from lakelog.ownership import is_owned
from lakelog.putfuture import BatchFuture
from lakelog.reading.arrivals import Arrivals, CurrentArrivals
from lakelog.testing.signals import hold

FILES = RealFileSystem()


def bodies(store: Store) -> list[str]:
    return [bytes(each.body).decode() for each in store.scan()]


@contextmanager
def an_owner(path: Path, **settings: Any) -> Iterator[Worker]:
    with a_worker(path, "owner", **settings) as worker:
        assert worker.hear() == {"role": "owner"}
        yield worker


@pytest.mark.parametrize("ended", ["killed", "closed"])
def test_a_put_takes_over(tmp_path: Path, ended: str) -> None:
    with an_owner(tmp_path) as owner, open_small(tmp_path) as store:
        owner.ask("put", "a", 3)
        store.put(Message("t", b"b 0", queue_id=0))
        if ended == "killed":
            owner.kill()
        else:
            owner.ask("close")
        assert not store.recovery
        result = store.put(Message("t", b"b 1", queue_id=0))
        assert store.role == "owner"
        assert result.queue_offset == 4
        assert store.put(Message("t", b"b 2", queue_id=0)).queue_offset == 5
        assert bodies(store) == ["a 0", "a 1", "a 2", "b 0", "b 1", "b 2"]
        assert store.recovery is not None
        assert store.recovery.clean == (ended == "closed")
        store.wait_dispatched()
        store.delete_topic("t")
    assert not is_owned(FILES, tmp_path)
    assert not (tmp_path / "abort").exists()


def test_puts_in_the_background_keep_their_order_over_a_take_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was queued beside the dead owner is handed over before what is put by now."""
    moving = Appender.put_burst

    def put_burst(appender: Appender, burst: Burst) -> None:
        time.sleep(0.05)  # a thread that has to wait for its turn
        moving(appender, burst)

    monkeypatch.setattr(Appender, "put_burst", put_burst)
    with an_owner(tmp_path) as owner, open_small(tmp_path) as store:
        futures = [store.put_async(Message("t", b"%d" % n, queue_id=0)) for n in range(100)]
        owner.kill()
        number = len(futures)
        while store.role != "owner" or number < 500:
            futures.append(store.put_async(Message("t", b"%d" % number, queue_id=0)))
            number += 1
            if number > 200:
                time.sleep(0.001)
        for future in futures:
            assert future.result(60).size > 0
        assert bodies(store) == [str(n) for n in range(number)]


def test_readers_go_on_over_a_take_over(tmp_path: Path) -> None:
    with an_owner(tmp_path) as owner, open_small(tmp_path) as store:
        owner.ask("put", "a", 2)
        following = store.read("t", 0, follow=True)
        assert [next(following).body, next(following).body] == [b"a 0", b"a 1"]
        consumer = store.consumer("g", "t", [0], start="earliest")
        owner.kill()
        store.put(Message("t", b"b", queue_id=0))
        assert bytes(next(following).body) == b"b"
        assert store.wait_dispatched()  # the iterator was quicker: it completes for itself
        assert [bytes(each.body) for each in consumer.poll(10)] == [b"a 0", b"a 1", b"b"]
        consumer.commit()
        assert store.groups() == {"g": {"t": {0: 3}}}


def test_a_consumer_of_before_is_woken_by_the_new_owner(tmp_path: Path) -> None:
    """What it waited for when it was attached knows nothing of the owner's queues."""
    with an_owner(tmp_path) as owner, open_small(tmp_path) as store, ThreadPoolExecutor() as pool:
        owner.ask("put", "a", 1)
        consumer = a_reader(store)
        assert [bytes(each.body) for each in consumer.poll(10, wait_ms=5000)] == [b"a 0"]
        owner.kill()
        store.flush()
        arrivals = store._current.parts.waits.arrivals
        assert isinstance(arrivals, Arrivals)
        polled = pool.submit(consumer.poll, 10, 15_000)
        while not (arrivals._waiting or polled.done()):
            time.sleep(0.001)
        assert not polled.done()
        store.put(Message("t", b"b", queue_id=0))
        assert [bytes(each.body) for each in polled.result(10)] == [b"b"]


@pytest.mark.parametrize("round_", range(4))
def test_an_iterator_of_before_goes_over_to_the_new_owner(tmp_path: Path, round_: int) -> None:
    """It does not depend on what it was made with, even where that sees nothing new any more."""
    with an_owner(tmp_path) as owner, open_small(tmp_path) as store, ThreadPoolExecutor() as pool:
        owner.ask("put", "a", 1)
        following = store.read("t", 0, follow=True)
        assert bytes(next(following).body) == b"a 0"
        former = store._current.parts.waits
        assert isinstance(former, ReaderWait)
        found = pool.submit(next, following)
        polled = pool.submit(store.get, "t", 0, 1, wait_ms=20_000)
        time.sleep(0.005 * round_)
        owner.kill()
        at = former.completion.reach_now()
        former.arrivals._look = former.arrivals._refresh = lambda: at  # blind from now on
        store.put(Message("t", b"b", queue_id=0))
        assert bytes(found.result(10).body) == b"b"
        assert [bytes(each.body) for each in polled.result(10).messages] == [b"b"]


def test_versions_of_two_roles_are_never_the_same() -> None:
    one, other = Arrivals(), Arrivals()
    now = [one]
    arrivals = CurrentArrivals(lambda: now[0])
    seen, now[0] = arrivals.version, other
    assert one.version == other.version
    begun = time.monotonic()
    assert arrivals.wait(seen, 60) != seen
    asyncio.run(asyncio.wait_for(arrivals.wait_async(seen), 60))
    assert time.monotonic() - begun < 20


def a_reader(store: Store) -> Consumer:
    return store.consumer("g", "t", [0], start="earliest")


def test_the_others_attach_to_who_took_over(tmp_path: Path) -> None:
    with an_owner(tmp_path) as owner, a_worker(tmp_path) as one, a_worker(tmp_path) as other:
        assert (one.hear(), other.hear()) == ({"role": "attach"}, {"role": "attach"})
        owner.ask("put", "a", 2)
        owner.kill()
        one.say("put", "one", 50)
        other.say("put", "other", 50)
        roles = sorted(each.hear()["role"] for each in (one, other))
        assert roles == ["attach", "owner"]
        with read_small(tmp_path) as store:
            found = bodies(store)
    assert len(found) == 102
    assert [each for each in found if each.startswith("one ")] == [f"one {n}" for n in range(50)]
    assert [each for each in found if each.startswith("other ")] == [
        f"other {n}" for n in range(50)
    ]


def test_what_is_under_way_when_the_owner_dies_is_there_once_and_in_order(tmp_path: Path) -> None:
    with an_owner(tmp_path, segment_size_bytes=1 << 20) as owner:
        store = open_small(tmp_path, segment_size_bytes=1 << 20)
        killer = threading.Timer(0.2, owner.kill)
        killer.start()
        begun, futures = time.monotonic(), list[BatchFuture]()
        while store.role == "attach" and time.monotonic() < begun + 20:
            futures.append(
                store.put_batch_async([Message("t", b"%d" % len(futures), queue_id=0)] * 3)
            )
        futures.append(store.put_batch_async([Message("t", b"%d" % len(futures), queue_id=0)] * 3))
        offsets = [each.physical_offset for one in futures for each in one.result(20)]
        assert store.role == "owner"
        assert offsets == sorted(set(offsets))
        expected = [str(number) for number in range(len(futures)) for _ in range(3)]
        assert bodies(store) == expected
        killer.join()
        store.close()


@pytest.mark.parametrize("how", [{"mode": "attach"}, {"attach": {"take_over": False}}])
def test_who_may_not_take_over_waits_for_a_successor(tmp_path: Path, how: dict[str, Any]) -> None:
    attach = {"reconnect_timeout_ms": 20_000, **how.pop("attach", {})}
    with an_owner(tmp_path) as owner, open_small(tmp_path, **how, attach=attach) as store:
        store.put(Message("t", b"0", queue_id=0))
        owner.kill()
        future = store.put_async(Message("t", b"1", queue_id=0))
        time.sleep(0.1)
        assert not future.done()
        assert not is_owned(FILES, tmp_path)
        with an_owner(tmp_path):
            assert future.result(20).queue_offset == 1
            assert store.put(Message("t", b"2", queue_id=0)).queue_offset == 2
            assert store.role == "attach"


def test_without_a_successor_puts_fail(tmp_path: Path) -> None:
    attach = {"reconnect_timeout_ms": 200}
    with an_owner(tmp_path) as owner, open_small(tmp_path, mode="attach", attach=attach) as store:
        owner.kill()
        with pytest.raises((PutRefused, OutcomeUnknown), match="no other one came in 200 ms"):
            store.put(Message("t", b"1", queue_id=0))
        with an_owner(tmp_path):
            assert store.put(Message("t", b"2", queue_id=0)).queue_offset == 0


def test_a_take_over_that_cannot_be_is_told_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    a_store(tmp_path, 3)
    with an_owner(tmp_path) as owner, open_small(tmp_path) as store:
        owner.kill()
        stray = tmp_path / "commitlog" / "stray"
        stray.write_bytes(b"no segment")
        future = store.put_async(Message("t", b"later", queue_id=0))
        while "taking over failed" not in caplog.text:
            time.sleep(0.01)
        stray.unlink()
        assert future.result(20).queue_offset == 3
        assert store.role == "owner"
        assert caplog.text.count("taking over failed") == 1


def test_a_close_settles_what_was_put_even_by_a_take_over(tmp_path: Path) -> None:
    with an_owner(tmp_path) as owner:
        store = open_small(tmp_path)
        hold(owner.process.pid)
        futures = [store.put_async(Message("t", b"%d" % n, queue_id=0)) for n in range(5)]
        owner.kill()
        store.close()
        assert [each.result(0).queue_offset for each in futures] == [0, 1, 2, 3, 4]
    assert not is_owned(FILES, tmp_path)
    assert not (tmp_path / "abort").exists()
    with pytest.raises(StoreClosed):
        store.look_up(0)
