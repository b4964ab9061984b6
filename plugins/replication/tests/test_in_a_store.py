"""The master in real stores: statuses of every kind of put, readers, closing, processes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from lakelog import Message, Store
from lakelog.errors import PutRefused, SettingsError, StoreError
from lakelog.results import PutStatus
from lakelog_replication.master import server
from lakelog_replication.master.server import HaServer
from lakelog_testing import ScriptedSlave
from plugins.replication.tests.masters import PATIENCE_SECONDS, Replica, eventually
from plugins.replication.tests.masterstores import (
    BEATLESS,
    SEGMENT,
    SLOW_MS,
    message,
    open_master,
    status_of,
)
from tests.support import forked


def port_of(path: Path, pid: int) -> int:
    """The port of the process that leads."""

    def led() -> bool:
        found = status_of(path)
        return found is not None and found.pid == pid

    eventually(led)
    found = status_of(path)
    assert found is not None
    return int(found.listening.rpartition(":")[2])


@contextmanager
def replica(path: Path, pid: int | None = None) -> Iterator[Replica]:
    """A slave of the store, which has its whole log; the store must not be empty."""
    made = Replica(port_of(path, pid or os.getpid()))
    try:
        assert made.begun.wait(20)
        yield made
    finally:
        made.close()


class Producer:
    """A process that puts a message for each line that it gets."""

    def __init__(self, path: Path, **section: Any) -> None:
        words = [str(path), json.dumps(section)]
        self.process = forked.start("plugins.replication.tests.masterstores", words)
        self.role = self._read()[1]

    @property
    def pid(self) -> int:
        return self.process.pid

    def put(self) -> str:
        """The status of another message."""
        self.begin()
        return self.end()

    def begin(self) -> None:
        """Let it put another message."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> str:
        """The status of that."""
        status, self.role = self._read()
        return status

    def _read(self) -> list[str]:
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()

    def kill(self) -> None:
        self.process.kill()
        self.close()

    def close(self) -> int:
        """Wait until it has ended, by the end of its input; return its exit code."""
        with self.process:
            pass
        return self.process.wait()


@pytest.fixture
def producers() -> Iterator[Callable[..., Producer]]:
    with ExitStack() as stack:

        def start(path: Path, **section: Any) -> Producer:
            made = Producer(path, **section)
            stack.callback(made.kill)
            return made

        yield start


def log_of(path: Path) -> bytes:
    return b"".join(each.read_bytes() for each in sorted((path / "commitlog").iterdir()))


PUTS: dict[str, Callable[[Store], list[PutStatus]]] = {
    "put": lambda store: [store.put(message()).status],
    "put_batch": lambda store: [each.status for each in store.put_batch([message()] * 300)],
    "put_async": lambda store: [store.put_async(message()).result(30).status],
    "put_batch_async": lambda store: [
        each.status for each in store.put_batch_async([message()] * 300).result(30)
    ],
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("put", PUTS)
@pytest.mark.parametrize("flush", ["none", "timed", "group-commit", "inline"])
@pytest.mark.parametrize("send", ["written", "flushed"])
def test_every_kind_of_put_waits_for_copies(
    tmp_path: Path, put: str, flush: str, send: str
) -> None:
    with open_master(tmp_path / "s", flush=flush, send=send, in_sync_replicas=2) as store:
        assert store.put(message()).status is PutStatus.SLAVE_NOT_AVAILABLE
        store.flush()
        with replica(tmp_path / "s") as copy:
            eventually(lambda: store.put(message()).status is PutStatus.PUT_OK)
            for _ in range(20 if put == "put" else 2):
                assert set(PUTS[put](store)) == {PutStatus.PUT_OK}
                assert len(copy.bytes) == store.max_offset - 1
            assert log_of(tmp_path / "s")[1 : store.max_offset] == copy.bytes


@pytest.mark.parametrize("put", PUTS)
def test_a_put_is_refused_before_its_append_while_too_few_copies_are_in_sync(
    tmp_path: Path, put: str
) -> None:
    section: dict[str, Any] = {"send": "written", "in_sync_replicas": 2, "requires_in_sync": True}
    with open_master(tmp_path / "s", **section) as store:
        store.put(Message("t", b"x", queue_id=0, wait_store_ok=False))
        end = store.max_offset
        with pytest.raises(PutRefused, match="fewer than 2 copies are in sync") as refused:
            PUTS[put](store)
        assert refused.value.status is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
        assert not refused.value.status.in_log
        assert store.max_offset == end
        with replica(tmp_path / "s"):
            eventually(lambda: copies(store) >= end)
            assert set(PUTS[put](store)) == {PutStatus.PUT_OK}
        eventually(lambda: copies(store) < 0)
        with pytest.raises(PutRefused, match="IN_SYNC_REPLICAS_NOT_ENOUGH"):
            store.producer("t").put(b"x")


def copies(store: Store) -> int:
    """The end that enough connected slaves have."""
    assert store._owned is not None
    return store._owned.log.copies.reachable_end


def test_a_sync_of_the_store_wakes_the_sender(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other thread looks at the log, and no heartbeat is due."""
    monkeypatch.setattr(server, "_TURN_SECONDS", float(SLOW_MS))
    monkeypatch.setattr(HaServer, "_watch", lambda server, log: server._look(log, -SLOW_MS))
    section: dict[str, Any] = {"in_sync_replicas": 2, **BEATLESS}
    with open_master(tmp_path / "s", flush="group-commit", **section) as store:
        store.put(message())
        with replica(tmp_path / "s") as copy:
            for _ in range(20):
                eventually(lambda: copies(store) == store.max_offset)
                put = store.put_async(message())
                assert put.result(PATIENCE_SECONDS).status is PutStatus.PUT_OK
            assert len(copy.bytes) == store.max_offset - 1


def test_a_put_of_another_process_wakes_the_sender_after_a_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, producers: Callable[..., Producer]
) -> None:
    """No look at an interval happens meanwhile."""
    monkeypatch.setattr(server, "_TURN_SECONDS", float(SLOW_MS))
    monkeypatch.setattr(server, "_REST_SECONDS", 0.1)
    monkeypatch.setattr(HaServer, "_poll", lambda server, _log: server._over.wait(0.01))
    section: dict[str, Any] = {"in_sync_replicas": 2, **BEATLESS}
    with open_master(tmp_path / "s", flush="group-commit", **section) as store:
        store.put(message())
        with replica(tmp_path / "s"):
            other = producers(tmp_path / "s", flush="group-commit", **section)
            for _ in range(3):
                eventually(lambda: copies(store) == store.max_offset)
                assert other.put() == "PUT_OK"
                Event().wait(0.5)  # a rest, so that the next put is not expected


def test_refusing_without_a_wait_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="requires_in_sync needs in_sync_replicas of 2"):
        open_master(tmp_path, requires_in_sync=True)


def test_a_slave_that_stands_still_holds_up_the_put_alone(tmp_path: Path) -> None:
    with (
        open_master(tmp_path / "s", in_sync_replicas=2, send="written") as store,
        ScriptedSlave(port_of(tmp_path / "s", os.getpid())) as still,
    ):
        store.put(message())
        still.report(1)
        still.frame()
        future = store.put_async(message())
        eventually(lambda: len(store.get("t", 0, 0).messages) == 2)
        eventually(lambda: len(store.query("t", "k")) == 2)
        assert not future.done()
        still.bytes_up_to(store.max_offset)
        assert future.result(20).status is PutStatus.PUT_OK


@pytest.mark.parametrize("flush", ["none", "group-commit"])
def test_close_flushes_then_lets_slaves_have_the_log(tmp_path: Path, flush: str) -> None:
    with open_master(tmp_path / "s", flush=flush, close_timeout_ms=SLOW_MS) as store:
        store.put(message())
        store.flush()
        with replica(tmp_path / "s") as copy:
            store.put_batch([message()] * 1000)
            end = store.max_offset
            store.close()
            assert copy.ended.wait(20)
            assert len(copy.bytes) == end - 1
            assert log_of(tmp_path / "s")[1:end] == copy.bytes


def test_a_slave_that_stands_still_does_not_hold_up_the_close(tmp_path: Path) -> None:
    with open_master(tmp_path / "s", send="written", close_timeout_ms=50) as store:
        store.put(message())
        with ScriptedSlave(port_of(tmp_path / "s", os.getpid())) as still:
            still.report(1)
            still.frame()
            store.close()
            with pytest.raises(EOFError):
                still.bytes_up_to(SEGMENT)


def test_a_port_that_is_taken_leaves_no_store(tmp_path: Path) -> None:
    with open_master(tmp_path / "s"):
        port = port_of(tmp_path / "s", os.getpid())
        with pytest.raises(StoreError, match="in use"):
            open_master(tmp_path / "other", port=port)
    assert not (tmp_path / "other" / "commitlog").exists()
    open_master(tmp_path / "other", port=port).close()


# --- processes ---


@pytest.mark.parametrize("flush", ["none", "group-commit"])
def test_puts_of_every_process_wait_for_copies(
    tmp_path: Path, producers: Callable[..., Producer], flush: str
) -> None:
    path = tmp_path / "s"
    first, second = (producers(path, in_sync_replicas=2, flush=flush) for _ in range(2))
    assert (first.role, second.role) == ("owner", "attach")
    assert (first.put(), second.put()) == ("SLAVE_NOT_AVAILABLE",) * 2
    with replica(path, first.pid) as copy:
        eventually(lambda: second.put() == "PUT_OK")
        for _ in range(20):
            assert (first.put(), second.put()) == ("PUT_OK", "PUT_OK")
        assert log_of(path)[1 : 1 + len(copy.bytes)] == copy.bytes
        assert len(copy.bytes) > 40 * 500


@pytest.mark.parametrize("how", ["kill", "close"])
def test_the_lease_moves_and_slaves_connect_anew(
    tmp_path: Path, producers: Callable[..., Producer], how: str
) -> None:
    path = tmp_path / "s"
    first, second = (producers(path, in_sync_replicas=2) for _ in range(2))
    second.put()
    with replica(path, first.pid) as copy:
        eventually(lambda: second.put() == "PUT_OK")
        if how == "kill":
            first.kill()
        else:
            assert first.close() == 0
        assert copy.ended.wait(20), "the port is closed with its process"
        had = len(copy.bytes)
    again = Replica(port_of(path, second.pid), begin=1 + had)
    try:
        eventually(lambda: second.put() == "PUT_OK" and second.role == "owner")
        assert log_of(path)[1 : 1 + had + len(again.bytes)] == copy.bytes + again.bytes
    finally:
        again.close()


def test_a_put_of_another_process_outlives_the_process_whose_put_sent_it(
    tmp_path: Path, producers: Callable[..., Producer]
) -> None:
    path = tmp_path / "s"
    section = {"in_sync_replicas": 2, "send": "written", **BEATLESS}
    first, second = (producers(path, **section) for _ in range(2))
    first.put()
    with replica(path, first.pid) as copy:
        eventually(lambda: first.put() == "PUT_OK")
        for _ in range(50):
            assert first.put() == "PUT_OK"
        copy.reports.clear()
        first.begin()  # its thread sends, and waits for the report
        had = len(copy.bytes)
        eventually(lambda: len(copy.bytes) > had)
        second.begin()
        first.kill()
        copy.reports.set()
        assert copy.ended.wait(20)
        had = len(copy.bytes)
    again = Replica(port_of(path, second.pid), begin=1 + had)
    try:
        assert second.end() == "PUT_OK"
        assert log_of(path)[1 : 1 + had + len(again.bytes)] == copy.bytes + again.bytes
    finally:
        again.close()


def test_a_forked_child_keeps_no_port_and_no_connection(
    tmp_path: Path, producers: Callable[..., Producer]
) -> None:
    with open_master(tmp_path / "s", close_timeout_ms=0) as store:
        store.put(message())
        store.flush()
        with replica(tmp_path / "s") as copy:
            waits, wakes = os.pipe()
            child = os.fork()
            if not child:
                os.close(wakes)
                os.read(waits, 1)  # until the parent has looked
                os._exit(0)
            os.close(waits)
            try:
                port = port_of(tmp_path / "s", os.getpid())
                store.close()
                assert copy.ended.wait(20)
                open_master(tmp_path / "other", port=port).close()
            finally:
                os.close(wakes)
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
