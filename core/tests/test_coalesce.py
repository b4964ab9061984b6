"""A coalescer appends in the order of the calls, and lets nobody wait for itself."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import pytest

from lakelog import Message, PutResult, PutStatus
from lakelog.log import async_puts as module
from lakelog.log.async_puts import AsyncPutQueue, Burst
from lakelog.log.put_future import PutFuture, settle


class Log:
    """What came, in its order; each burst waits until it may go on."""

    def __init__(self) -> None:
        self.came: list[str] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.begun = threading.Event()

    def put_burst(self, burst: Burst) -> None:
        self.begun.set()
        assert self.may_go_on.wait(60)
        for message, future in burst:
            self.note(message)
            settle([future], [RESULT])

    def note(self, message: Message) -> None:
        self.came.append(bytes(message.body).decode())


RESULT = PutResult(PutStatus.PUT_OK, "t", 0, 0, 0, 100, 0, "")


def put(coalescer: AsyncPutQueue, *numbers: int) -> list[PutFuture]:
    return [coalescer.put(Message("t", b"%d" % number)) for number in numbers]


def test_who_finds_very_many_before_waits_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 1)
    log = Log()
    coalescer = AsyncPutQueue(log.put_burst)
    log.may_go_on.clear()
    put(coalescer, 1)
    assert log.begun.wait(60)
    put(coalescer, 2)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(put, coalescer, 3, 4)
        with pytest.raises(TimeoutError):
            waiting.result(0.1)
        log.may_go_on.set()
        waiting.result(60)
    coalescer.close()
    assert log.came == ["1", "2", "3", "4"]


def test_a_callback_waits_for_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs in the thread that would make room."""
    monkeypatch.setattr(module, "MAX_WAITING", 1)
    log = Log()
    coalescer = AsyncPutQueue(log.put_burst)
    log.may_go_on.clear()
    (first,) = put(coalescer, 1)
    assert log.begun.wait(60)
    again = Queue[PutFuture]()
    first.add_done_callback(lambda _: again.put(put(coalescer, 3)[0]))
    put(coalescer, 2)
    log.may_go_on.set()
    assert again.get(timeout=10).result(10) is RESULT
    coalescer.close()
    assert log.came == ["1", "2", "3"]


class Calling(Log):
    """Whoever hears of the first message puts another one."""

    coalescer: AsyncPutQueue

    def note(self, message: Message) -> None:
        super().note(message)
        if message.body == b"1":
            put(self.coalescer, 2)


def test_a_callback_of_what_is_appended_does_not_wait_for_itself() -> None:
    log = Calling()
    log.coalescer = AsyncPutQueue(log.put_burst)
    log.may_go_on.clear()
    (first,) = put(log.coalescer, 1)
    assert log.begun.wait(60)
    log.may_go_on.set()
    first.result(60)
    log.coalescer.close()
    assert log.came == ["1", "2"]


@pytest.mark.parametrize("direct", [False, True], ids=["by its thread", "by its callers"])
def test_many_threads_keep_each_their_order(direct: bool) -> None:
    log = Log()
    coalescer = AsyncPutQueue(log.put_burst, direct=direct)

    def work(name: int) -> None:
        for number in range(2_000):
            coalescer.put(Message("t", b"%d %d" % (name, number)))

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(work, name) for name in range(4)]:
            each.result(60)
    coalescer.close()
    for name in range(4):
        numbers = [int(each.split()[1]) for each in log.came if each.split()[0] == str(name)]
        assert numbers == list(range(2_000))
