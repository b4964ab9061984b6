"""Measures the time from a put's acknowledgement to its bytes in the slave, or its row in a table.

`python -m` measures one pair: it puts single messages at random moments, and polls the slave.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import lakelog
from lakelog import Message
from tests.bench.content import TOPIC, body
from tests.bench.lake.increments import sample
from tests.bench.lake.job import call
from tests.bench.model import Sample
from tests.bench.replication import sides
from tests.bench.replication.sides import SlaveLog
from tests.bench.running import real_store
from tests.replication.masterbroker import free_ports

_BODY_BYTES: Final = 1024
_WARM: Final = 3
_LONGEST_PAUSE_SECONDS: Final = 0.06
_PAUSE_S: Final = 0.0002
_TABLE_PAUSE_S: Final = 0.005
_TIMEOUT_SECONDS: Final = 60.0
_TABLE: Final = "rocketmq.messages"


@dataclass(frozen=True)
class Delays:
    """The parameters of a measurement.

    :ivar count: number of messages, after some to warm up
    :ivar to_table: whether the slave lands in an Iceberg table, whose rows are measured
    """

    master: str
    slave: str
    count: int
    to_table: bool
    folder: str = ""


def run(what: Delays, directory: Path) -> Sample:
    """Measure in a separate process."""
    if sides.REAL in (what.master, what.slave):
        real_store()
    return call(__name__, json.dumps(asdict(what) | {"folder": str(directory)}), directory)


def _measured(what: Delays) -> Sample:
    home = Path(what.folder)
    with ExitStack() as stack:
        put, master = _master(what, home, stack)
        assert master.slaves is not None  # a master's
        first = put()
        if what.slave == sides.REAL:
            slave = stack.enter_context(sides.real_slave(home / "slave", master.slaves))
        else:
            more = ["--vouch", "received"]
            if what.to_table:
                more += ["--to", f"iceberg:{home / 'lake'}", "--table", _TABLE]
            if what.to_table and what.master == sides.REAL:
                more += ["--vouch", "flushed", "--broker", str(master.clients)]
            slave = stack.enter_context(sides.our_slave(home / "slave", master.slaves, *more))
        log = stack.enter_context(SlaveLog(slave.store, sides.SEGMENT_BYTES, slave.is_alive))
        log.wait(first, _PAUSE_S)
        wait = _landing(home, slave) if what.to_table else lambda at: log.wait(at, _PAUSE_S)
        took = []
        for _ in range(_WARM + what.count):
            time.sleep(random.uniform(0, _LONGEST_PAUSE_SECONDS))
            at, begun = put(), time.perf_counter()
            took.append(max(0.0, wait(at) - begun))
        return sample(took[_WARM:])


def _master(what: Delays, home: Path, stack: ExitStack) -> tuple[Callable[[], int], sides.Side]:
    """Return a function that puts a message and returns its physical offset; and the master."""
    content = body(_BODY_BYTES)
    if what.master == sides.REAL:
        flush = "SYNC_FLUSH" if what.to_table else "ASYNC_FLUSH"  # only synced messages land
        real = stack.enter_context(sides.real_master(home / "master", flushDiskType=flush))
        send = real.send
        assert send is not None  # a broker's
        return lambda: send(TOPIC, content), real
    (port,) = free_ports(1)
    store = stack.enter_context(
        lakelog.open(
            home / "master",
            segment_size_bytes=sides.SEGMENT_BYTES,
            flush="group-commit",
            replicator="rocketmq-ha",
            rocketmq_ha={"port": port},
        )
    )
    side = sides.Side(0, home / "master", slaves=sides.local(port))
    return lambda: store.put(Message(TOPIC, content)).physical_offset, side


def _landing(home: Path, slave: sides.Side) -> Callable[[int], float]:
    from lakelog_lake.landing.targets import identity_of
    from plugins.lake.tests.landing.passes import sink_for

    sink = sink_for(f"iceberg:{home / 'lake'}", table=_TABLE)
    identity = identity_of(slave.store, None)
    sink.prepare()

    def wait(record: int) -> float:
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while time.monotonic() < deadline and slave.is_alive():
            position = sink.head(identity).position
            if position is not None and position.end > record:
                return time.perf_counter()
            time.sleep(_TABLE_PAUSE_S)
        raise RuntimeError(f"the record at {record} is not in the table")

    return wait


if __name__ == "__main__":
    print(json.dumps(_measured(Delays(**json.loads(sys.argv[1])))))
