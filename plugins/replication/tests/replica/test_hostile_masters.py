"""Masters that break off at each byte, or send nonsense: a copy goes on, and does not grow."""

from __future__ import annotations

import logging
import socket
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from lakelog_replication.wire import FRAME_HEADER, MAX_BODY_BYTES, FrameStream
from lakelog_testing.contracts.writer import open_files
from lakelog_testing.scripted import FRAME, ScriptedMaster
from plugins.replication.tests.replica.copies import (
    SEGMENT,
    bodies,
    log_of,
    make_log,
    replica,
    until,
)
from tests.support import sampling

PATIENCE_SECONDS: Final = 300.0
GROWN_BYTES: Final = 100 << 10
FRAME_BYTES: Final = 90

NONSENSE: Final = (
    b"",
    b"\xff" * 100,
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    FRAME.pack(-1, 10),
    FRAME.pack(1 << 62, 10) + b"0123456789",  # ahead
    FRAME.pack(1, 10) + b"0123456789",  # behind
    FRAME.pack(0, -(1 << 31)),
    FRAME.pack(0, (1 << 31) - 1),
    FRAME.pack(0, (4 << 20) - 12) + b"x" * 100_000,  # and breaks off
    FRAME.pack(0, 0) * 1000,
)


def frames(log: bytes, start: int) -> bytes:
    """Three records or more from ``start`` on, as small frames."""
    pieces = ((at, log[at : at + FRAME_BYTES]) for at in range(start, start + 2600, FRAME_BYTES))
    return b"".join(FRAME.pack(at, len(piece)) + piece for at, piece in pieces if piece)


def breaking_off(
    master: ScriptedMaster, data: Callable[[int, int], bytes], numbers: Sequence[int]
) -> None:
    """Let a connection for each number get ``data(asked, number)``, and then its end."""
    rest = iter(numbers)

    def script(sock: socket.socket, asked: int) -> bool:
        number = next(rest, None)
        if number is not None:
            sock.sendall(data(asked, number))
        return number is None

    before = len(master.asked)
    master.script = script
    master.disconnect()
    master.await_connections(before + len(numbers) + 1, PATIENCE_SECONDS)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("most", [15, pytest.param(2600, marks=pytest.mark.slow)])
def test_frames_may_break_off_at_each_byte(tmp_path: Path, most: int) -> None:
    log = make_log(tmp_path / "master", 50)
    with ScriptedMaster(log, segment_bytes=SEGMENT) as master:
        with replica(tmp_path / "copy", master.address) as store:
            until(lambda: store.max_offset == master.end)
        log = make_log(tmp_path / "master", 150, first=50)
        cuts = sampling.chance().sample(range(2600), most)
        master.append(log[master.end :])
        master.script = lambda _sock, _asked: False
        with replica(tmp_path / "copy", master.address, reconnect_interval_ms=1) as store:
            breaking_off(master, lambda asked, cut: frames(log, asked)[:cut], cuts)
            until(lambda: store.max_offset == master.end)
            assert len(bodies(store)) == 200
    assert log_of(tmp_path / "copy", len(log)) == log


@pytest.fixture
def traced() -> Iterator[None]:
    """A count of the bytes that objects take."""
    logging.disable(logging.CRITICAL)  # pytest keeps what is logged
    tracemalloc.start()
    yield
    tracemalloc.stop()
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(300)
def test_nonsense_leaves_nothing(tmp_path: Path, traced: None) -> None:
    first, second, log = (make_log(tmp_path / "master", count) for count in (99, 1, 1))
    many = [*range(len(NONSENSE))] * 6
    with (
        ScriptedMaster(first, segment_bytes=SEGMENT) as master,
        replica(tmp_path / "copy", master.address, reconnect_interval_ms=1) as store,
    ):
        until(lambda: len(bodies(store)) == 99)
        breaking_off(master, lambda _asked, number: NONSENSE[number], many)
        master.append(second[len(first) :])
        until(lambda: len(bodies(store)) == 100)  # so it is connected
        descriptors, memory = len(open_files()), tracemalloc.get_traced_memory()[0]
        breaking_off(master, lambda _asked, number: NONSENSE[number], many)
        master.append(log[len(second) :])
        until(lambda: len(bodies(store)) == 101)
        until(lambda: len(open_files()) <= descriptors)
        until(lambda: tracemalloc.get_traced_memory()[0] < memory + GROWN_BYTES)
    assert log_of(tmp_path / "copy", len(log)) == log


def test_the_largest_frame_fits_wherever_the_one_before_it_ended() -> None:
    stream, body = FrameStream(), bytes(MAX_BODY_BYTES)
    data = FRAME_HEADER.pack(0, 5) + b"small" + FRAME_HEADER.pack(5, len(body)) + body
    found = []
    while data:
        count = min(len(stream.room()), len(data))
        stream.room()[:count] = data[:count]
        found += [(each.offset, len(each.body)) for each in stream.received(count)]
        data = data[count:]
    assert found == [(0, 5), (5, MAX_BODY_BYTES)]
