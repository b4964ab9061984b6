"""A coalescer that hands over: what was queued before comes before what its successor gets."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import pytest

from lakelog import Message, PutResult, PutStatus
from lakelog.errors import PutRefused
from lakelog.log import async_puts as module
from lakelog.log.async_puts import Burst, Coalescer
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

    def successor(self, message: Message) -> PutFuture:
        self.came.append(f"then {bytes(message.body).decode()}")
        return PutFuture()

    def note(self, message: Message) -> None:
        self.came.append(bytes(message.body).decode())


RESULT = PutResult(PutStatus.PUT_OK, "t", 0, 0, 0, 100, 0, "")


def put(coalescer: Coalescer, *numbers: int) -> list[PutFuture]:
    return [coalescer.put(Message("t", b"%d" % number)) for number in numbers]


def swapped(log: Log) -> Callable[[], None]:
    return lambda: log.came.append("swapped")


@pytest.fixture(params=[False, True], ids=["by its thread", "by its callers"])
def direct(request: pytest.FixtureRequest) -> bool:
    found: bool = request.param
    return found


def test_at_once_where_nothing_waits(direct: bool) -> None:
    log = Log()
    coalescer = Coalescer(log.put_burst, direct=direct)
    for future in put(coalescer, 1):
        future.result(60)
    coalescer.hand_over(log.successor, swapped(log))
    put(coalescer, 2, 3)
    coalescer.close()
    assert log.came == ["1", "swapped", "then 2", "then 3"]


def test_behind_what_waits(direct: bool) -> None:
    log = Log()
    coalescer = Coalescer(log.put_burst, direct=direct)
    log.may_go_on.clear()
    with ThreadPoolExecutor(2) as pool:
        pool.submit(put, coalescer, 1)
        assert log.begun.wait(60)
        put(coalescer, 2)
        coalescer.hand_over(log.successor, swapped(log))
        behind = pool.submit(put, coalescer, 3)
        assert log.came == []
        log.may_go_on.set()
        behind.result(60)
    put(coalescer, 4)
    coalescer.close()
    assert log.came == ["1", "2", "swapped", "then 3", "then 4"]


def test_who_waits_for_room_goes_to_the_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 1)
    log = Log()
    coalescer = Coalescer(log.put_burst)
    log.may_go_on.clear()
    put(coalescer, 1)
    assert log.begun.wait(60)
    put(coalescer, 2)
    coalescer.hand_over(log.successor, swapped(log))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(put, coalescer, 3, 4)
        log.may_go_on.set()
        waiting.result(60)
    coalescer.close()
    assert [each.removeprefix("then ") for each in log.came if each != "swapped"] == list("1234")
    assert log.came.count("swapped") == 1


def test_a_callback_waits_for_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs in the thread that would make room."""
    monkeypatch.setattr(module, "MAX_WAITING", 1)
    log = Log()
    coalescer = Coalescer(log.put_burst)
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


def test_nor_does_a_thread_that_others_results_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 1)
    log, answering = Log(), threading.get_ident()
    coalescer = Coalescer(log.put_burst, answers=lambda: threading.get_ident() == answering)
    log.may_go_on.clear()
    put(coalescer, 1)
    assert log.begun.wait(60)
    put(coalescer, 2, 3)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(put, coalescer, 4)
        with pytest.raises(TimeoutError):
            other.result(0.1)
        log.may_go_on.set()
        other.result(60)
    coalescer.close()
    assert log.came == ["1", "2", "3", "4"]


class Calling(Log):
    """Whoever hears of the first message puts another one."""

    coalescer: Coalescer

    def note(self, message: Message) -> None:
        super().note(message)
        if message.body == b"1":
            put(self.coalescer, 2)


def test_a_callback_of_what_is_appended_does_not_wait_for_itself() -> None:
    log = Calling()
    log.coalescer = Coalescer(log.put_burst)
    log.may_go_on.clear()
    (first,) = put(log.coalescer, 1)
    assert log.begun.wait(60)
    log.coalescer.hand_over(log.successor, swapped(log))
    log.may_go_on.set()
    first.result(60)
    log.coalescer.close()
    assert log.came == ["1", "2", "swapped"]


def test_what_is_closed_refuses_unless_it_has_handed_over() -> None:
    log = Log()
    coalescer = Coalescer(log.put_burst)
    coalescer.close()
    with pytest.raises(PutRefused):
        put(coalescer, 1)
    coalescer.hand_over(log.successor, swapped(log))
    put(coalescer, 2)
    assert log.came == ["swapped", "then 2"]


def test_many_threads_keep_each_their_order() -> None:
    log, other = Log(), Log()

    def successor(message: Message) -> PutFuture:
        log.note(message)  # into the same log, as an heir's appender does
        return PutFuture()

    coalescer = Coalescer(log.put_burst, direct=True)

    def work(name: int) -> None:
        for number in range(2_000):
            coalescer.put(Message("t", b"%d %d" % (name, number)))
            if name == 0 and number == 1_000:
                coalescer.hand_over(successor, swapped(other))

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(work, name) for name in range(4)]:
            each.result(60)
    coalescer.close()
    assert other.came == ["swapped"]
    for name in range(4):
        numbers = [int(each.split()[1]) for each in log.came if each.split()[0] == str(name)]
        assert numbers == list(range(2_000))
