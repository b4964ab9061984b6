"""Many slaves that break off, lie, or say nothing: a master neither stops nor grows."""

from __future__ import annotations

import gc
import logging
import resource
import socket
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

import pytest

from lakelog_replication.master.link import SlaveLink
from lakelog_replication.master.replicator import HaMaster
from lakelog_testing import FakeReplicatedLog, ScriptedSlave
from lakelog_testing.contracts.writer import open_files
from plugins.replication.tests.masters import eventually, serving, slave

GROWN_BYTES: Final = 200
"""The most that is left for each connection."""
HUGE: Final = (1 << 63) - 1


@pytest.fixture
def log(tmp_path: Path) -> FakeReplicatedLog:
    made = FakeReplicatedLog(tmp_path / "commitlog", segment_size_bytes=1 << 16)
    made.append(100_000)
    return made


@pytest.fixture
def traced() -> Iterator[None]:
    """Many descriptors, and a count of the bytes that objects take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4000), hard))
    logging.disable(logging.CRITICAL)  # pytest keeps what is logged
    tracemalloc.start()
    yield
    tracemalloc.stop()
    logging.disable(logging.NOTSET)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def send_invalid(peer: ScriptedSlave, number: int) -> None:
    """Another kind of wrong behaviour for each number."""
    whole = struct.pack(">q", 1 + number)
    match number % 6:
        case 0:
            peer.send(whole[: number % 8])
        case 1:
            peer.report(-1, -HUGE)
        case 2:
            peer.report(HUGE)
        case 3:
            peer.report(1 + number, HUGE)
        case 4:
            peer.send(b"GET / HTTP/1.1\r\n\r\n")
        case _:
            peer.report(1 + number)  # reads nothing of what comes


def round_of_slaves(master: HaMaster, count: int) -> None:
    """Connect them all, let each misbehave, and break all connections off."""
    with ExitStack() as stack:
        for number in range(count):
            with suppress(EOFError, ConnectionError):  # closed already, as one too many
                send_invalid(stack.enter_context(slave(master)), number)


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> WeakSet[SlaveLink]:
    """The connections that exist.

    ``gc.get_objects`` would find them, too. It refers to the tuples that another thread makes at
    that time, and ``tuple`` of an iterator then raises SystemError there.
    """
    found = WeakSet[SlaveLink]()
    make = SlaveLink.__init__

    def made(self: SlaveLink, *args: Any, **more: Any) -> None:
        make(self, *args, **more)
        found.add(self)

    monkeypatch.setattr(SlaveLink, "__init__", made)
    return found


def are_gone(links: WeakSet[SlaveLink]) -> bool:
    gc.collect()
    return not len(links)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("connections", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_connections_leave_nothing(
    log: FakeReplicatedLog,
    tmp_path: Path,
    traced: None,
    links: WeakSet[SlaveLink],
    connections: int,
) -> None:
    most = connections * GROWN_BYTES
    with serving(log, tmp_path, in_sync_replicas=2) as master:
        round_of_slaves(master, connections)  # the first ones fill caches
        eventually(lambda: are_gone(links))
        descriptors, memory = len(open_files()), tracemalloc.get_traced_memory()[0]
        round_of_slaves(master, connections)
        eventually(lambda: are_gone(links))
        eventually(lambda: len(open_files()) <= descriptors)
        eventually(lambda: tracemalloc.get_traced_memory()[0] < memory + most)
        assert log.copies.end <= connections, "nobody counts for more than it began with"
        with slave(master) as peer:
            peer.report(1)
            assert peer.bytes_up_to(log.appended) == log.bytes[1:]
            eventually(lambda: log.copies.end == log.appended)


def test_a_slave_may_break_off_at_each_byte_of_a_frame(
    log: FakeReplicatedLog, tmp_path: Path
) -> None:
    with serving(log, tmp_path, batch_bytes=20) as master:
        assert master.port is not None
        descriptors = len(open_files())
        for cut in range(40):
            with socket.create_connection(("127.0.0.1", master.port)) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.sendall(struct.pack(">q", 1))
                if cut:
                    assert len(sock.recv(cut, socket.MSG_WAITALL)) == cut
        eventually(lambda: len(open_files()) <= descriptors)
        with slave(master) as peer:
            peer.report(99_000)
            assert peer.bytes_up_to(log.appended) == log.bytes[99_000:]
