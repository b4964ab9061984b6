"""A lakelog master and a real slave broker: equal bytes, statuses, and kills of either side."""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import lakelog
import lakelog_flush.plugin
import lakelog_hash_index.plugin
import lakelog_replication.plugin
from lakelog import Message, Store
from lakelog.results import PutStatus
from lakelog_replication.settings import Address
from plugins.replication.tests.masterstores import status_of
from plugins.replication.tests.replica.copies import log_of
from tests.oracle.java import Oracle
from tests.replication import dumps
from tests.replication.broker import SlaveBroker
from tests.replication.masterbroker import eventually
from tests.support import forked
from tests.support.rows import by_kind

SEGMENT = 1 << 20
PLUGINS = [lakelog_replication.plugin, lakelog_flush.plugin, lakelog_hash_index.plugin]

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]


def open_master(path: Path, port: int = 0, **section: Any) -> Store:
    return lakelog.open(
        path,
        plugins=PLUGINS,
        segment_size_bytes=SEGMENT,
        flush="group-commit",
        replicator="rocketmq-ha",
        on_late="return",
        rocketmq_ha={"port": port, "slave_timeout_ms": 60_000, **section},
    )


def address_of(path: Path) -> Address:
    eventually(lambda: status_of(path))
    found = status_of(path)
    assert found is not None
    return Address.parse(found.listening)


def are_equal(slave: SlaveBroker, master: Path, end: int) -> bool:
    """Whether the slave has the master's bytes up to ``end``, from its first segment on.

    A slave without a log begins with the master's last segment.
    """
    names = [int(each.name) for each in (slave.store / "commitlog").iterdir()]
    if not names or end > max(names) + SEGMENT:
        return False
    return log_of(slave.store, end) == log_of(master, end)[min(names) :]


@pytest.fixture
def slave(oracle: Oracle, tmp_path: Path) -> Iterator[SlaveBroker]:
    made = SlaveBroker(tmp_path / "slave", SEGMENT)
    yield made
    made.kill()


def batch(number: int) -> list[Message]:
    return [
        Message("Copies", os.urandom(900), keys=f"k{number}-{each}", queue_id=each % 4)
        for each in range(20)
    ]


@pytest.mark.parametrize("send", ["flushed", "written"])
def test_a_real_slave_has_each_byte_of_each_acknowledged_put(
    slave: SlaveBroker, oracle: Oracle, tmp_path: Path, send: str
) -> None:
    path = tmp_path / "master"
    with open_master(path, in_sync_replicas=2, send=send) as store:
        assert {each.status for each in store.put_batch(batch(0))} == {
            PutStatus.SLAVE_NOT_AVAILABLE
        }
        slave.start(address_of(path))
        eventually(lambda: store.put(batch(0)[0]).status is PutStatus.PUT_OK)
        for number in range(200):  # over several segments
            statuses = {each.status for each in store.put_batch(batch(number))}
            assert statuses == {PutStatus.PUT_OK}
            if number % 50 == 0:
                end = store.max_offset
                assert are_equal(slave, path, end)
        end = store.max_offset
        assert end > 3 * SEGMENT
    assert are_equal(slave, path, end)
    slave.kill()
    rows = by_kind(oracle.dump(slave.store, dumps.OF_BROKER))
    ends = [row["maxOffset"] for row in rows["queue"] if row["topic"] == "Copies"]
    assert len(ends) == 4
    assert sum(ends) > 4000, "the slave has built queues from it"
    assert not rows["badrec"]


def test_a_stopped_slave_times_puts_out_and_holds_nothing_else(
    slave: SlaveBroker, tmp_path: Path
) -> None:
    path = tmp_path / "master"
    with open_master(path, in_sync_replicas=2, slave_timeout_ms=300) as store:
        store.put(batch(0)[0])
        slave.start(address_of(path))
        eventually(lambda: store.put(batch(0)[0]).status is PutStatus.PUT_OK)
        slave.process.send_signal(signal.SIGSTOP)
        try:
            eventually(lambda: store.put(batch(0)[0]).status is PutStatus.FLUSH_SLAVE_TIMEOUT)
            future = store.put_async(Message("Read", b"at once", queue_id=0))
            eventually(lambda: len(store.get("Read", 0, 0).messages) == 1)
            assert future.result(60).status is PutStatus.FLUSH_SLAVE_TIMEOUT
        finally:
            slave.process.send_signal(signal.SIGCONT)
        eventually(lambda: store.put(batch(0)[0]).status is PutStatus.PUT_OK)
        end = store.max_offset
        eventually(lambda: are_equal(slave, path, end))


def main() -> None:
    path, port = sys.argv[1:]
    with open_master(Path(path), int(port), in_sync_replicas=2) as store:
        for number in itertools.count():
            results = store.put_batch(batch(number))
            last = results[-1]
            print(last.status.name, last.end_offset, flush=True)  # noqa: T201  # what the test reads
            time.sleep(0.05)  # a slave that comes back has to catch up


@contextmanager
def master_process(path: Path, port: int) -> Iterator[Callable[[int], int]]:
    """Run :func:`main`, and kill it at the end.

    Yields a function that waits for acknowledged batches, and returns the end offset of the last.
    """
    with forked.start(__name__, [str(path), str(port)]) as process:
        assert process.stdout is not None
        lines = process.stdout

        def acknowledged(count: int) -> int:
            end = 0
            while count:
                status, offset = lines.readline().split()
                if status == "PUT_OK":
                    count, end = count - 1, int(offset)
            return end

        try:
            yield acknowledged
        finally:
            process.kill()


@pytest.mark.parametrize(
    "rounds", [1, pytest.param(10, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]
)
def test_killed_masters_and_slaves_leave_equal_stores(
    slave: SlaveBroker, oracle: Oracle, tmp_path: Path, rounds: int
) -> None:
    path, chance = tmp_path / "master", random.Random(7)
    with open_master(path) as store:
        end = store.put(batch(0)[0]).end_offset
        port = address_of(path)
        slave.start(port)
        eventually(lambda: are_equal(slave, path, end))  # the slave has the log from 0 on
    for _ in range(rounds):
        with master_process(path, port.port) as acknowledged:
            known = acknowledged(chance.randrange(5, 40))
            slave.kill()
            slave.start(port)
            known = max(known, acknowledged(chance.randrange(5, 40)))
        assert are_equal(slave, path, known)
    with master_process(path, port.port) as acknowledged:
        known = acknowledged(5)
    with open_master(path, port.port) as store:
        end = store.max_offset
        assert end >= known
        eventually(lambda: are_equal(slave, path, end))
    slave.kill()
    rows = dumps.contents(oracle, path, dumps.OF_LAKELOG)
    dumps.check_equal(rows, dumps.contents(oracle, slave.store, dumps.OF_BROKER), was_killed=True)
