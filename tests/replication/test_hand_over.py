"""The services move to ``lakelog serve`` and back while puts wait for a slave of the master."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from lakelog.results import PutStatus
from plugins.replication.tests.masterstores import status_of
from plugins.replication.tests.replica.copies import SEGMENT, bodies, log_of, queued, replica, until
from plugins.tools.tests.daemon.support import serving
from tests.replication.masterbroker import free_ports
from tests.replication.repeating import Repeating

pytestmark = pytest.mark.timeout(300)
PATIENCE_SECONDS: Final = 120.0


def leader(path: Path) -> int:
    """Return the id of the process that sends."""
    found = status_of(path)
    return -1 if found is None else found.pid


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_slaves_follow_the_services(tmp_path: Path, end: signal.Signals) -> None:
    path, (port,) = tmp_path / "store", free_ports(1)
    section: dict[str, Any] = {"port": port, "in_sync_replicas": 2}
    served = ("replicator=rocketmq-ha", *(f"rocketmq-ha.{k}={v}" for k, v in section.items()))
    address = f"127.0.0.1:{port}"
    with lakelog.open(
        path,
        segment_size_bytes=SEGMENT,
        preallocate=False,
        replicator="rocketmq-ha",
        on_late="return",
        rocketmq_ha=section,
    ) as store:
        store.put(lakelog.Message("orders", bytes(160)))
        with replica(tmp_path / "copy", address, learner=False) as copy:

            def put(number: int) -> int | None:
                result = store.put(lakelog.Message("orders", number.to_bytes(8) * 20))
                return number if result.status is PutStatus.PUT_OK else None  # the slave has it

            with Repeating(put, pause_s=0.001) as putting:
                putting.more(20)
                mine = leader(path)
                with serving(tmp_path, settings=served) as serve:
                    until(lambda: leader(path) == serve.process.pid, PATIENCE_SECONDS)
                    putting.more(50)
                    serve.process.send_signal(end)
                    serve.process.wait(60)
                until(lambda: leader(path) == mine, PATIENCE_SECONDS)
                putting.more(50)
            assert putting.error is None
            until(lambda: copy.max_offset == store.max_offset)
            assert bodies(copy) == bodies(store)
            assert copy.wait_dispatched()
            assert store.wait_dispatched()
            assert queued(copy) == queued(store)
            numbers = [int.from_bytes(each[:8]) for each in bodies(copy)[1:]]
            assert numbers == sorted(set(numbers))
            assert set(putting.found) <= set(numbers)
            size = store.max_offset
    assert log_of(tmp_path / "copy", size) == log_of(path, size)
