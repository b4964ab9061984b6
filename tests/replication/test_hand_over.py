"""The services move to ``lakelog serve`` and back while puts wait for a slave of the master."""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import pytest

import lakelog
from lakelog.errors import LakelogError
from lakelog.status import PutStatus
from lakelog_replication.status import read_status
from plugins.daemon.tests.support import serving
from plugins.replication.tests.replica.copies import SEGMENT, bodies, log_of, queued, replica, until

pytestmark = pytest.mark.timeout(300)
PATIENCE_SECONDS: Final = 120.0


class Putting:
    """Puts numbered messages in a thread until it is stopped.

    :ivar acknowledged: numbers of the messages that the slave has too
    """

    def __init__(self, store: lakelog.Store) -> None:
        self.acknowledged: list[int] = []
        self.errors: list[LakelogError] = []
        self._store = store
        self._over = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._over.wait(0.001):
            try:
                result = self._store.put(lakelog.Message("orders", number.to_bytes(8) * 20))
            except LakelogError as error:
                self.errors.append(error)
            else:
                if result.status is PutStatus.PUT_OK:
                    self.acknowledged.append(number)
            number += 1

    def await_more(self, count: int) -> None:
        """Wait until ``count`` further puts are acknowledged."""
        due = len(self.acknowledged) + count
        until(lambda: len(self.acknowledged) >= due, PATIENCE_SECONDS)

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


def leader(path: Path) -> int:
    """Return the id of the process that sends."""
    found = read_status(path)
    return -1 if found is None else found.pid


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_slaves_follow_the_services(tmp_path: Path, end: signal.Signals) -> None:
    path, port = tmp_path / "store", free_port()
    section: dict[str, Any] = {"port": port, "in_sync_replicas": 2}
    served = ("replicator=rocketmq-ha", *(f"rocketmq-ha.{k}={v}" for k, v in section.items()))
    address = f"127.0.0.1:{port}"
    with lakelog.open(
        path,
        segment_size_bytes=SEGMENT,
        preallocate=False,
        replicator="rocketmq-ha",
        rocketmq_ha=section,
    ) as store:
        store.put(lakelog.Message("orders", bytes(160)))
        with replica(tmp_path / "copy", address, learner=False) as copy:
            putting = Putting(store)
            try:
                putting.await_more(20)
                mine = leader(path)
                with serving(tmp_path, settings=served) as serve:
                    until(lambda: leader(path) == serve.process.pid, PATIENCE_SECONDS)
                    putting.await_more(50)
                    serve.process.send_signal(end)
                    serve.process.wait(60)
                until(lambda: leader(path) == mine, PATIENCE_SECONDS)
                putting.await_more(50)
            finally:
                putting.stop()
            assert not putting.errors
            until(lambda: copy.max_offset == store.max_offset)
            assert bodies(copy) == bodies(store)
            assert copy.wait_dispatched()
            assert store.wait_dispatched()
            assert queued(copy) == queued(store)
            numbers = [int.from_bytes(each[:8]) for each in bodies(copy)[1:]]
            assert numbers == sorted(set(numbers))
            assert set(putting.acknowledged) <= set(numbers)
            size = store.max_offset
    assert log_of(tmp_path / "copy", size) == log_of(path, size)
