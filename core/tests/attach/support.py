"""Owners with a hub, in this process and in processes of their own, and what attaches to them."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

import lakelog
from lakelog import Store
from lakelog.appender import Appender
from lakelog.attach.hub import Hub
from lakelog.attach.packets import receive, send
from lakelog.attach.place import connect as connect_socket
from lakelog.consumers.offsettable import OffsetTable
from lakelog.settings.model import AttachSettings

SEGMENT = 1 << 20

OWNER = """
import os, sys
from core.tests.attach.support import an_owned_hub
from pathlib import Path
with an_owned_hub(Path(sys.argv[1]), flush=sys.argv[2]) as (store, hub):
    print("open", os.getpid(), flush=True)
    sys.stdin.read()
"""


def open_alone(path: Path, **more: Any) -> Store:
    """An owner's store that nobody can attach to by itself."""
    given = {
        "plugins": [],
        "flush": "none",
        "segment_size_bytes": SEGMENT,
        "preallocate": False,
        "max_message_size_bytes": 16 << 10,
        "attach": {"listen": False},
        **more,
    }
    return lakelog.open(path, mode="owner", **given)


def offsets_of(store: Store) -> OffsetTable:
    """Where an owner's store keeps what groups commit."""
    table = store._current.parts.offsets
    assert isinstance(table, OffsetTable)
    return table


def hub_of(store: Store, **attach: Any) -> Hub:
    """A hub for an owner's store, not started yet."""
    owned = store._owned
    assert owned is not None
    settings = AttachSettings(**{"ring_bytes": 1 << 16, **attach})
    return Hub(
        store.path,
        owned.appender,
        owned.log,
        offsets_of(store),
        store.settings.core,
        settings,
    )


@contextmanager
def an_owned_hub(
    path: Path, attach: dict[str, Any] | None = None, **more: Any
) -> Iterator[tuple[Store, Hub]]:
    """An owner that lets others attach."""
    with open_alone(path, **more) as store:
        hub = hub_of(store, **(attach or {}))
        hub.start()
        try:
            yield store, hub
        finally:
            hub.close()


@attrs.frozen
class AnHeir:
    """What a store gives its producer."""

    link: socket.socket
    appender: Appender
    offsets: OffsetTable
    settled: Callable[[], None]


@attrs.frozen
class Process:
    """A Python program that says what it does on its output."""

    process: subprocess.Popen[str]

    def line(self, seconds: float = 30) -> str:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        assert ready, "the process says nothing"
        return self.process.stdout.readline()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def end(self) -> str:
        """Close its input, and wait for it; what it said last."""
        said, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, said
        return said


@contextmanager
def a_program(program: str, *arguments: object, wrap: tuple[str, ...] = ()) -> Iterator[Process]:
    root = Path(__file__).parents[3]
    places = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    with subprocess.Popen(
        [*wrap, sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
    ) as process:
        try:
            yield Process(process)
        finally:
            process.kill()


@contextmanager
def an_owner(path: Path, flush: str = "none", *, wrap: tuple[str, ...] = ()) -> Iterator[Process]:
    """An owner in a process of its own, until its input ends."""
    with a_program(OWNER, path, flush, wrap=wrap) as owner:
        assert owner.line().startswith("open")
        yield owner


def until(true: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for something that another thread or process does."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.002)


def a_peer(path: Path) -> socket.socket:
    """A connection that has said nothing yet."""
    return connect_socket(path, 10)


def told(peer: socket.socket) -> dict[str, Any] | None:
    """The next thing that the owner says; ``None`` for the end."""
    while True:
        packet = receive(peer, descriptors=True)
        if packet is None:
            return None
        for each in packet[1]:
            os.close(each)
        if packet[0] is not None:
            return packet[0]


def refusal(path: Path, said: dict[str, Any] | bytes) -> str:
    """Why the owner refuses whoever says that first."""
    with a_peer(path) as peer:
        if isinstance(said, bytes):
            peer.send(said)
        else:
            send(peer, said)
        answer = told(peer)
        assert answer is not None
        assert told(peer) is None
        return str(answer["refused"])


def a_hello(**more: Any) -> dict[str, Any]:
    return {
        "protocol": 1,
        "lakelog": "0",
        "role": "producer",
        "pid": 1,
        "producer": "0" * 32,
        **more,
    }
