"""A lakelog master and a real slave broker: equal bytes, statuses, and kills of either side."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakelog
import lakelog_flush.plugin
import lakelog_hash_index.plugin
import lakelog_replication.plugin
from lakelog import Message, Store
from lakelog.status import PutStatus
from lakelog_replication.address import Address
from lakelog_replication.status import read_status
from tests.oracle.java import Oracle
from tests.replication import dumps
from tests.replication.broker import SlaveBroker, eventually
from tests.support.rows import by_kind

SEGMENT = 1 << 20
PLUGINS = [lakelog_replication.plugin, lakelog_flush.plugin, lakelog_hash_index.plugin]
ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]


def open_master(path: Path, port: int = 0, **section: Any) -> Store:
    return lakelog.open(
        path,
        plugins=PLUGINS,
        segment_size_bytes=SEGMENT,
        flush="group-commit",
        replicator="rocketmq-ha",
        rocketmq_ha={"port": port, "slave_timeout_ms": 60_000, **section},
    )


def address_of(path: Path) -> Address:
    eventually(lambda: read_status(path))
    found = read_status(path)
    assert found is not None
    return Address.parse(found.listening)


def log_of(store: Path, start: int, end: int) -> bytes:
    """Return the log from ``start``, the first byte of a segment, to ``end``."""
    files = {int(each.name): each for each in (store / "commitlog").iterdir()}
    data = b"".join(files[each].read_bytes() for each in range(start, end, SEGMENT))
    return data[: end - start]


def are_equal(slave: SlaveBroker, master: Path, end: int) -> bool:
    """Whether the slave has the master's bytes up to ``end``, from its first segment on.

    A slave without a log begins with the master's last segment.
    """
    names = [int(each.name) for each in (slave.store / "commitlog").iterdir()]
    if not names or end > max(names) + SEGMENT:
        return False
    start = min(names)
    return log_of(slave.store, start, end) == log_of(master, start, end)


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
    rows = by_kind(oracle.dump(slave.store, dumps.OF_SLAVE))
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
        slave.signal(signal.SIGSTOP)
        try:
            eventually(lambda: store.put(batch(0)[0]).status is PutStatus.FLUSH_SLAVE_TIMEOUT)
            future = store.put_async(Message("Read", b"at once", queue_id=0))
            eventually(lambda: len(store.get("Read", 0, 0).messages) == 1)
            assert future.result(60).status is PutStatus.FLUSH_SLAVE_TIMEOUT
        finally:
            slave.signal(signal.SIGCONT)
        eventually(lambda: store.put(batch(0)[0]).status is PutStatus.PUT_OK)
        end = store.max_offset
        eventually(lambda: are_equal(slave, path, end))


MASTER = """
import sys, time
from pathlib import Path
from tests.replication.test_real_slave import batch, open_master
with open_master(Path(sys.argv[1]), int(sys.argv[2]), in_sync_replicas=2) as store:
    print("open", flush=True)
    number = 0
    while True:
        results = store.put_batch(batch(number))
        print(results[-1].status.name, results[-1].end_offset, flush=True)
        number += 1
        time.sleep(0.02)  # a slave that comes back has to catch up
"""


class Master:
    """A process that puts batches until it is killed."""

    def __init__(self, path: Path, port: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", MASTER, str(path), str(port)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self._read() == ["open"]

    def _read(self) -> list[str]:
        assert self._process.stdout is not None
        return self._process.stdout.readline().split()

    def acknowledged(self, count: int) -> int:
        """Wait for ``count`` acknowledged batches; return the end offset of the last one."""
        end = 0
        while count:
            status, offset = self._read()
            if status == "PUT_OK":
                count, end = count - 1, int(offset)
        return end

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


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
    master = Master(path, port.port)
    try:
        acknowledged = 0
        for _ in range(rounds):
            acknowledged = master.acknowledged(chance.randrange(5, 40))
            slave.kill()
            slave.start(port)
            acknowledged = max(acknowledged, master.acknowledged(chance.randrange(5, 40)))
            master.kill()
            assert are_equal(slave, path, acknowledged)
            master = Master(path, port.port)
        master.acknowledged(5)
    finally:
        master.kill()
    with open_master(path, port.port) as store:
        end = store.max_offset
        assert end >= acknowledged
        eventually(lambda: are_equal(slave, path, end))
    slave.kill()
    rows = dumps.contents(oracle, path, dumps.OF_LAKELOG)
    dumps.check_equal(rows, dumps.contents(oracle, slave.store, dumps.OF_SLAVE), was_killed=True)
