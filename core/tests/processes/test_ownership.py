"""The services of a store: one process has them, and after its end another one."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from core.tests.store.support import SEGMENT, a_store, open_small
from core.tests.store.workers import PATIENCE_SECONDS, SERVE, Worker, a_worker
from lakelog import Message, Store
from lakelog.dispatch import Arrivals
from lakelog.errors import StoreClosed
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.layout import ABORT_FILE
from lakelog.log.put_future import BatchFuture
from lakelog.processes import membership
from lakelog.processes.ownership import is_followed, is_owned, is_served, write_abort
from lakelog.runtime.threads import started
from lakelog.store import joining
from lakelog.store.open import open_to_serve
from lakelog.store.parts import RoleParts
from lakelog_queues.readers import CurrentArrivals, ReaderWait
from lakelog_testing.crash import SimFileSystem, images
from lakelog_testing.threads import hold
from tests.support.waiting import until

FILES = RealFileSystem()


def bodies(store: Store) -> list[str]:
    return [bytes(each.body).decode() for each in store.scan()]


@contextmanager
def an_owner(path: Path, mode: str = "write", **settings: Any) -> Iterator[Worker]:
    with a_worker(path, mode, **settings) as worker:
        assert worker.hear() == {"role": "owner"}
        yield worker


def has_services(store: Store) -> bool:
    return store.role == "owner"


@pytest.mark.parametrize("ended", ["killed", "closed"])
def test_another_process_has_them_next(tmp_path: Path, ended: str) -> None:
    with an_owner(tmp_path) as owner, open_small(tmp_path) as store:
        owner.ask("put", "a", 3)
        store.put(Message("t", b"b 0", queue_id=0))
        if ended == "killed":
            owner.kill()
        else:
            owner.ask("close")
        assert store.put(Message("t", b"b 1", queue_id=0)).queue_offset == 4
        until(lambda: has_services(store))
        assert store.put(Message("t", b"b 2", queue_id=0)).queue_offset == 5
        assert bodies(store) == ["a 0", "a 1", "a 2", "b 0", "b 1", "b 2"]
        assert store.wait_dispatched()
        assert is_followed(FILES, tmp_path)
        store.delete_topic("t")
    assert not is_owned(FILES, tmp_path)
    assert not (tmp_path / "abort").exists()


def test_who_holds_them_still_keeps_them(tmp_path: Path) -> None:
    """A process that was stopped by a signal and continues finds no second writer of queues."""
    with an_owner(tmp_path) as owner, open_small(tmp_path) as store:
        hold(owner.process.pid)
        for n in range(20):
            store.put(Message("t", b"b %d" % n, queue_id=0))
        time.sleep(1.2)  # two rounds of the thread that would take them
        assert not has_services(store)
        assert len(bodies(store)) == 20
        owner.process.send_signal(signal.SIGCONT)
        assert store.wait_dispatched(timeout_ms=20_000)


def test_readers_go_on(tmp_path: Path) -> None:
    with an_owner(tmp_path) as owner, open_small(tmp_path) as store:
        owner.ask("put", "a", 2)
        following = store.read("t", 0, follow=True)
        assert [next(following).body, next(following).body] == [b"a 0", b"a 1"]
        consumer = store.consumer("g", "t", [0], start="earliest")
        owner.kill()
        store.put(Message("t", b"b", queue_id=0))
        assert bytes(next(following).body) == b"b"
        until(lambda: has_services(store))
        assert store.wait_dispatched()  # the iterator may be faster: it dispatches for itself
        assert [bytes(each.body) for each in consumer.poll(10)] == [b"a 0", b"a 1", b"b"]
        consumer.commit()
        assert store.groups() == {"g": {"t": {0: 3}}}


def test_an_iterator_and_a_consumer_of_before_go_over(tmp_path: Path) -> None:
    """They do not depend on the parts they were made with, which find no new messages any more."""
    with an_owner(tmp_path) as owner, open_small(tmp_path) as store, ThreadPoolExecutor() as pool:
        owner.ask("put", "a", 1)
        consumer = store.consumer("g", "t", [0], start="earliest")
        assert [bytes(each.body) for each in consumer.poll(10, wait_ms=5000)] == [b"a 0"]
        following = store.read("t", 0, follow=True)
        assert bytes(next(following).body) == b"a 0"
        former = store._current.parts.waits
        assert isinstance(former, ReaderWait)
        found = pool.submit(next, following)
        polled = pool.submit(store.get, "t", 0, 1, wait_ms=20_000)
        consumed = pool.submit(consumer.poll, 10, 15_000)
        owner.kill()
        at = former.completion.reach(now=True)
        blind: Any = SimpleNamespace(reach=lambda **_: at)
        former.arrivals._completion = blind
        store.put(Message("t", b"b", queue_id=0))
        assert bytes(found.result(10).body) == b"b"
        assert [bytes(each.body) for each in polled.result(10).messages] == [b"b"]
        assert [bytes(each.body) for each in consumed.result(10)] == [b"b"]


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


def test_what_is_under_way_meanwhile_is_there_once_and_in_order(tmp_path: Path) -> None:
    with an_owner(tmp_path, segment_size_bytes=1 << 20) as owner:
        store = open_small(tmp_path, segment_size_bytes=1 << 20)
        killer = threading.Timer(0.2, owner.kill)
        killer.start()
        begun, futures = time.monotonic(), list[BatchFuture]()
        while not has_services(store) and time.monotonic() < begun + 20:
            futures.append(
                store.put_batch_async([Message("t", b"%d" % len(futures), queue_id=0)] * 3)
            )
        offsets = [each.physical_offset for one in futures for each in one.result(20)]
        assert has_services(store)
        assert offsets == sorted(set(offsets))
        expected = [str(number) for number in range(len(futures)) for _ in range(3)]
        assert bodies(store) == expected
        killer.join()
        store.close()


def test_who_may_not_have_them_appends_all_the_same(tmp_path: Path) -> None:
    with an_owner(tmp_path) as owner, open_small(tmp_path, attach={"take_over": False}) as store:
        store.put(Message("t", b"0", queue_id=0))
        owner.kill()
        assert store.put(Message("t", b"1", queue_id=0)).queue_offset == 1
        with a_worker(tmp_path) as other:
            assert other.hear() == {"role": "attach"}
            until(lambda: other.ask("store.role")["is_"] == "owner")
            assert store.put(Message("t", b"2", queue_id=0)).queue_offset == 2
            assert [bytes(each.body) for each in store.read("t", 0)] == [b"0", b"1", b"2"]
            assert store.role == "attach"


def test_an_owner_comes_back_beside_those_who_go_on(tmp_path: Path) -> None:
    """As a restarted daemon does."""
    with an_owner(tmp_path) as owner, open_small(tmp_path, attach={"take_over": False}) as store:
        owner.kill()
        store.put(Message("t", b"0", queue_id=0))
        with an_owner(tmp_path, SERVE) as again:
            assert again.ask("put", "a", 1)["offsets"]
            assert store.wait_dispatched()
            assert is_followed(FILES, tmp_path)
            with a_worker(tmp_path, SERVE) as third:
                assert third.hear()["error"] == "StoreLocked"
        assert bodies(store) == ["0", "a 0"]


def test_services_that_cannot_be_had_are_told_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged file keeps the queues from being built."""
    a_store(tmp_path, 3)
    tombstones = tmp_path / "lakelog" / "tombstones.json"
    monkeypatch.setattr(membership.MemberWatch, "_sleep", lambda _, __: time.sleep(0.01))
    with an_owner(tmp_path) as owner, open_small(tmp_path) as store:
        tombstones.write_text("damaged")
        owner.kill()
        until(lambda: "taking its services over failed" in caplog.text)
        assert store.put(Message("t", b"later", queue_id=0)).queue_offset == 3
        tombstones.unlink()
        until(lambda: has_services(store))
        assert caplog.text.count("taking its services over failed") == 1


def test_the_last_one_closes_the_store(tmp_path: Path) -> None:
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
    with open_small(tmp_path) as again:
        assert again.recovery is not None
        assert again.recovery.clean
        assert [each.body for each in again.read("t", 0)] == [b"%d" % n for n in range(5)]


# --- a process that serves gets them from their present owner ---


def put(store: Store, body: str) -> int:
    return store.put(Message("t", body.encode(), keys=body, queue_id=0)).queue_offset


def queued(store: Store) -> list[str]:
    return [bytes(each.body).decode() for each in store.read("t", 0)]


def test_it_has_them_until_it_ends(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        assert (put(store, "first"), store.role) == (0, "owner")
        for number in range(2):
            with an_owner(tmp_path, SERVE) as serve:
                assert store.role == "attach"
                put(store, f"beside-{number}")
                assert serve.ask("store.wait_dispatched()") == {"is_": True}
                assert store.wait_dispatched()
                assert queued(store)[-1] == f"beside-{number}"
            until(lambda: store.role == "owner")
            put(store, f"behind-{number}")
        assert store.wait_dispatched()
        assert queued(store) == ["first", "beside-0", "behind-0", "beside-1", "behind-1"]
    with open_small(tmp_path) as again:
        assert again.recovery is not None
        assert again.recovery.clean
        assert len(queued(again)) == 5


def test_it_gets_them_from_one_that_took_them_over(tmp_path: Path) -> None:
    with a_worker(tmp_path, "write") as first:
        assert first.hear() == {"role": "owner"}
        with open_small(tmp_path) as store:
            first.kill()
            until(lambda: store.role == "owner")
            with an_owner(tmp_path, SERVE) as serve:
                assert store.role == "attach"
                serve.kill()
            until(lambda: store.role == "owner")
            put(store, "last")
            assert store.wait_dispatched()
            assert queued(store) == ["last"]


def test_one_that_serves_keeps_them(tmp_path: Path) -> None:
    with an_owner(tmp_path, SERVE) as serve, open_small(tmp_path) as store:
        with a_worker(tmp_path, SERVE) as other:
            said = other.hear()
        assert said["error"] == "StoreLocked"
        assert f"process {serve.process.pid} has the services" in said["text"]
        assert serve.ask("store.role") == {"is_": "owner"}
        assert (put(store, "x"), store.role) == (0, "attach")


def test_puts_and_reads_go_on_meanwhile(tmp_path: Path) -> None:
    """Readers and waiters in the process that releases the services are not disturbed."""
    over, failures, puts = threading.Event(), list[BaseException](), [0]

    def again_and_again(work: Any) -> None:
        try:
            while not over.is_set():
                work()
        except BaseException as error:  # noqa: BLE001  # it is raised in the test's thread
            failures.append(error)

    with open_small(tmp_path) as store:

        def puts_one() -> None:
            assert put(store, f"{puts[0]}") == puts[0]
            puts[0] += 1
            over.wait(0.002)  # or there would be very many segments

        def reached(number: int) -> bool:
            return puts[0] >= number or bool(failures)

        def reads() -> None:
            assert store.wait_dispatched()
            found = queued(store)
            assert found == [str(number) for number in range(len(found))]

        threads = [
            threading.Thread(target=again_and_again, args=(work,)) for work in (puts_one, reads)
        ]
        for each in threads:
            each.start()
        try:
            for _ in range(2):
                with an_owner(tmp_path, SERVE):
                    enough = puts[0] + 20
                    until(partial(reached, enough))
                until(lambda: store.role == "owner" or bool(failures))
        finally:
            over.set()
            for each in threads:
                each.join()
        assert failures == []
        assert store.wait_dispatched()
        assert queued(store) == [str(number) for number in range(puts[0])]


def test_a_store_that_is_closed_when_it_is_asked(tmp_path: Path) -> None:
    """It releases the services by closing, or before; either way the next process gets them."""
    a_store(tmp_path, 3)
    for _ in range(2):
        store = open_small(tmp_path)
        with a_worker(tmp_path, SERVE) as serve:
            store.close()
            assert serve.hear() == {"role": "owner"}
            assert is_served(FILES, tmp_path)


def test_an_owner_that_closes_just_before_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, closed = joining._joined, list[int]()

    def closes_first(request: Any) -> Any:
        if not closed:
            closed.append(0)
            other.kill()
        return real(request)

    monkeypatch.setattr(joining, "_joined", closes_first)
    with an_owner(tmp_path) as other:
        settings = {"flush": "none", "segment_size_bytes": SEGMENT, "preallocate": False}
        with open_to_serve(tmp_path, plugins=[], arguments=settings) as store:
            assert closed
            assert store.role == "owner"


def test_one_that_cannot_give_them_up_keeps_them_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, calls = joining.reader_parts, list[int]()

    def fails_once(*arguments: Any) -> RoleParts:
        calls.append(0)
        if len(calls) == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(*arguments)

    with open_small(tmp_path) as store:
        monkeypatch.setattr("lakelog.store.joining.reader_parts", fails_once)
        with an_owner(tmp_path, SERVE):
            assert store.role == "attach"
            assert put(store, "x") == 0
    assert len(calls) == 2
    assert "its services cannot be given up" in caplog.text


def test_a_close_waits_for_a_take_over_that_is_just_being_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else both would close the store as its last owner, and the second finds no ``abort``."""
    real, begins, made = started, threading.Event(), list[threading.Thread]()

    def late(thread: threading.Thread) -> threading.Thread:
        made.append(thread)
        begins.set()
        time.sleep(0.3)  # the close begins
        return real(thread)

    with an_owner(tmp_path) as owner:
        store = open_small(tmp_path)
        monkeypatch.setattr(joining, "started", late)
        owner.kill()
        assert begins.wait(PATIENCE_SECONDS)
        store.close()
    (thread,) = made
    assert thread.ident is not None, "closed before it was started"
    assert not thread.is_alive()
    assert not (tmp_path / "abort").exists()
    with open_small(tmp_path) as again:
        assert again.recovery is not None
        assert again.recovery.clean


def test_abort_has_its_process_after_a_power_cut(tmp_path: Path) -> None:
    system, store = SimFileSystem(tmp_path), tmp_path / "store"
    try:
        system.make_dir(store)
        write_abort(system, store)
        system.make_dir(store / "next")  # a point behind the last call
        point = system.points[-1]
    finally:
        system.close()
    found = {each.files.get(f"store/{ABORT_FILE}") for each in images(point, Random(1), 32)}
    assert found == {str(os.getpid()).encode()}
