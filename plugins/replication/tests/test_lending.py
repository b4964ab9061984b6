"""Puts that wait one by one send and take reports themselves: also if that is cut short."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread, get_ident, main_thread
from types import FrameType

import pytest

from lakelog.hooks import Pending
from lakelog.results import PutStatus
from lakelog_replication.master.link import SlaveLink
from lakelog_replication.master.replicator import HaMaster
from lakelog_testing import FakeReplicatedLog
from lakelog_testing.threads import beside, settle
from plugins.replication.tests.masters import SLOW_MS, Replica, eventually, serving


def replica(master: HaMaster, log: FakeReplicatedLog, source: str = "127.0.0.1") -> Replica:
    """A slave that has the whole log."""
    assert master.port is not None
    return Replica(master.port, log.appended, source)


class Lent:
    """A master whose connections are lent, its log, and a slave."""

    def __init__(self, master: HaMaster, log: FakeReplicatedLog) -> None:
        self.master, self.log = master, log
        self.slave = replica(master, log)
        eventually(lambda: log.copies.reachable_end == log.appended)

    @property
    def is_lent(self) -> bool:
        server = self.master._server
        return server is not None and server.lending.is_lent

    def put(self) -> PutStatus:
        """A put that waits in this thread, as the appender makes it."""
        outcome = self.master.submit(self.log.append(), wait=True)
        return outcome if isinstance(outcome, PutStatus) else outcome.result()

    def waiting(self, end_offset: int) -> Pending:
        """The outcome of a put that has to wait."""
        outcome = self.master.submit(end_offset, wait=True)
        assert not isinstance(outcome, PutStatus)
        return outcome

    def lend(self) -> None:
        """Put one by one until the connections are lent."""

        def puts() -> bool:
            assert self.put() is PutStatus.PUT_OK
            return self.is_lent

        eventually(puts)


@contextmanager
def lent(tmp_path: Path, **more: object) -> Iterator[Lent]:
    log = FakeReplicatedLog(tmp_path / "commitlog")
    settings = {"in_sync_replicas": 2, "slave_timeout_ms": SLOW_MS, **more}
    with serving(log, tmp_path, **settings) as master:
        made = Lent(master, log)
        try:
            made.lend()
            yield made
        finally:
            made.slave.close()
            assert made.slave.bytes == bytes(log.bytes[: len(made.slave.bytes)])


@contextmanager
def calling(
    monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], object]
) -> Iterator[list[int]]:
    """Call ``act`` once behind a method of the link; yields the threads that called it."""
    threads, former = list[int](), getattr(SlaveLink, name)

    def method(self: SlaveLink, *args: object) -> object:
        result = former(self, *args)
        threads.append(get_ident())
        if len(threads) == 1:
            act()
        return result

    with monkeypatch.context() as patch:
        patch.setattr(SlaveLink, name, method)
        yield threads


@pytest.mark.parametrize("name", ["turn", "receive"])
def test_a_lone_put_sends_and_takes_the_report_in_its_own_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def own() -> bool:
        made.lend()
        with calling(monkeypatch, name, lambda: None) as threads:
            assert made.put() is PutStatus.PUT_OK
        return threads == [get_ident()]

    with lent(tmp_path) as made:
        eventually(own)  # the machine may stand still, and the connections are taken back


def test_a_slow_slave_is_waited_for_while_others_come(tmp_path: Path) -> None:
    with lent(tmp_path) as made:
        made.slave.reports.clear()
        end = made.log.append()
        with beside(made.waiting(end).result) as put:
            eventually(lambda: not made.is_lent)
            other = replica(made.master, made.log, "127.0.0.2")  # it has these bytes
            assert put.result() is PutStatus.PUT_OK
            other.close()


def test_a_driving_put_ends_in_time(tmp_path: Path) -> None:
    with lent(tmp_path, slave_timeout_ms=2_000) as made:
        made.slave.reports.clear()
        assert made.put() is PutStatus.FLUSH_SLAVE_TIMEOUT
        end = made.log.appended
        made.slave.reports.set()
        eventually(lambda: made.log.copies.end == end)


def test_puts_that_wait_beside_are_answered(tmp_path: Path) -> None:
    with lent(tmp_path) as made:
        made.slave.reports.clear()
        outcomes = [made.waiting(made.log.append()) for _ in range(3)]
        called = Event()
        outcomes[0].add_done_callback(lambda _: called.set())
        assert not outcomes[1].done()
        made.slave.reports.set()
        assert outcomes[2].result() is PutStatus.PUT_OK
        assert called.wait(60)
        assert [settle(each) for each in outcomes] == [PutStatus.PUT_OK] * 3


def test_a_put_that_does_not_wait_is_sent(tmp_path: Path) -> None:
    with lent(tmp_path) as made:
        end = made.log.append()
        assert made.master.submit(end, wait=False) is PutStatus.PUT_OK
        eventually(lambda: made.log.copies.end == end)


def test_a_slave_that_goes_ends_no_other_thing(tmp_path: Path) -> None:
    with lent(tmp_path) as made:
        made.slave.close()
        eventually(lambda: made.log.copies.reachable_end < 0)
        assert made.put() is PutStatus.SLAVE_NOT_AVAILABLE
        made.slave = replica(made.master, made.log)
        made.slave.bytes = bytes(made.log.bytes)
        eventually(lambda: made.log.copies.reachable_end == made.log.appended)
        made.lend()


def test_closing_ends_a_put_that_drives(tmp_path: Path) -> None:
    with lent(tmp_path) as made:
        made.slave.reports.clear()
        end = made.log.append()
        with beside(made.waiting(end).result) as put:
            eventually(lambda: len(made.slave.bytes) == end)
            made.master.close()
            assert put.result() is PutStatus.FLUSH_SLAVE_TIMEOUT


class Interrupted(OSError):
    """Raised by a handler: an error that the connection might raise, too."""


def _raise(number: int, frame: FrameType | None) -> None:
    raise Interrupted


@pytest.fixture
def handled() -> Iterator[None]:
    former = signal.signal(signal.SIGUSR1, _raise)
    yield
    signal.signal(signal.SIGUSR1, former)


@pytest.mark.usefixtures("handled")
@pytest.mark.parametrize("name", ["turn", "receive", "_unsent", "_send_part", "_begin_frame"])
def test_a_driving_put_that_is_interrupted_harms_no_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def interrupt() -> None:
        signal.raise_signal(signal.SIGUSR1)

    def raised() -> bool:
        made.lend()
        with calling(monkeypatch, name, interrupt if _is_main() else lambda: None):
            try:
                made.put()
            except Interrupted:
                return True
        return False

    with lent(tmp_path) as made:
        eventually(raised)
        for _ in range(20):
            assert made.put() is PutStatus.PUT_OK
        assert not made.slave.ended.is_set()  # by the connection it began with
    assert made.slave.bytes == bytes(made.log.bytes)


def _is_main() -> bool:
    return get_ident() == main_thread().ident


def test_a_handler_may_put_while_a_put_drives(tmp_path: Path) -> None:
    statuses = list[PutStatus]()

    def put(number: int, frame: FrameType | None) -> None:
        statuses.append(made.put())
        made.slave.reports.set()

    with lent(tmp_path) as made:
        former = signal.signal(signal.SIGUSR1, put)
        try:
            made.slave.reports.clear()
            end = made.log.appended + 100

            def tell() -> None:
                eventually(lambda: len(made.slave.bytes) == end)
                made.slave.reports.set()
                signal.pthread_kill(main, signal.SIGUSR1)

            main = get_ident()
            thread = Thread(target=tell)
            thread.start()
            assert made.put() is PutStatus.PUT_OK
            thread.join()
            eventually(lambda: statuses == [PutStatus.PUT_OK])
        finally:
            signal.signal(signal.SIGUSR1, former)
