"""A pair of lakelogs whose processes are killed, again and again, and masters that are lost."""

from __future__ import annotations

import random
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Final

import attrs
import pytest

import lakelog
from plugins.replication.tests.replica.copies import SEGMENT, log_of, queued, until
from tests.support import forked, sampling

PATIENCE_SECONDS: Final = 120.0
GAP: Final = 1000
"""More numbers than a killed process may have used without a word."""


@attrs.define
class Pair:
    """A master in one process, its copy in another.

    :ivar batch: how many messages a put of the master has; :ivar flush: its strategy
    :ivar acknowledged: numbers of the messages whose puts had both copies
    """

    folder: Path
    port: int
    batch: int = 5
    flush: str = "timed"
    acknowledged: list[int] = attrs.field(factory=list)
    _next: int = 0
    _lost: int = 0
    _master: forked.Forked | None = None
    _reader: Thread = attrs.field(factory=Thread)
    _slave: forked.Forked | None = None

    @property
    def master(self) -> Path:
        """The directory of the present master."""
        return self.folder / f"store-{self._lost}"

    @property
    def copy(self) -> Path:
        """The directory of its copy."""
        return self.folder / f"store-{self._lost + 1}"

    def start_master(self) -> None:
        given = (self.master, self.flush, self.port, self._next, self.batch)
        self._master = forked.start("plugins.replication.tests.replica.putting", [*map(str, given)])
        self._reader = Thread(target=self._read, args=(self._master,))
        self._reader.start()
        before = self._next
        until(lambda: self._next > before, PATIENCE_SECONDS)  # a new copy needs it at its start

    def _read(self, process: forked.Forked) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                if line.endswith("\n"):
                    number, status = line.split()
                    self._next = int(number) + GAP
                    if status == "PUT_OK":
                        self.acknowledged.append(int(number))

    def start_slave(self) -> None:
        """Start it if it does not run."""
        if self._slave is not None:
            return
        command = [
            *("replicate", str(self.copy), "--counts"),
            *("--from", f"127.0.0.1:{self.port}", "--vouch", "received"),
            *("--set", f"segment_size_bytes={SEGMENT}"),
            *("--set", "rocketmq-ha.reconnect_interval_ms=20"),
        ]
        self._slave = forked.start("tests.support.program", command, errors=self.folder / "out")

    def kill_master(self) -> None:
        if self._master is not None:
            self._master.kill()
            with self._master:
                self._reader.join()
            self._master = None

    def kill_slave(self) -> None:
        if self._slave is not None:
            self._slave.kill()
            self._slave.wait()
            self._slave = None

    def await_puts(self, count: int) -> None:
        """Wait until so many further puts are acknowledged."""
        due = len(self.acknowledged) + count
        until(self._is_at(due), PATIENCE_SECONDS)

    def _is_at(self, due: int) -> Callable[[], bool]:
        def is_at() -> bool:
            for each in (self._master, self._slave):
                assert each is None or each.poll() is None, (self.folder / "out").read_text()[
                    -3000:
                ]
            return len(self.acknowledged) >= due

        return is_at

    def lose_master(self) -> None:
        """Throw the directory of the dead master away; its copy is the next master."""
        shutil.rmtree(self.master)
        lakelog.promote(self.copy)
        self._lost += 1
        self.check(self.master)

    def check(self, path: Path, acknowledged: Sequence[int] | None = None) -> None:
        """Each acknowledged message is there once, and no other one twice."""
        with lakelog.open(path, mode="read") as store:
            found = [int.from_bytes(each.body[:8]) for each in store.scan()]
            assert len(found) == len(set(found))
            assert not {*(acknowledged or self.acknowledged)} - set(found)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        made = Pair(tmp_path, free.getsockname()[1])
    with ExitStack() as stack:
        stack.callback(made.kill_master)
        stack.callback(made.kill_slave)
        yield made


def some_puts(pair: Pair, chance: random.Random) -> None:
    """Go on at once, or when some puts are acknowledged."""
    pair.await_puts(chance.choice((0, 1, chance.randrange(100))))


@pytest.mark.parametrize(
    ("batch", "flush"),
    [(5, "timed"), pytest.param(1, "group-commit", id="its own thread takes the reports")],
)
@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(1, marks=pytest.mark.timeout(300)),
        pytest.param(100, marks=[pytest.mark.soak, pytest.mark.timeout(7200)]),
    ],
)
def test_no_acknowledged_put_is_lost_by_kills_and_lost_masters(
    pair: Pair, rounds: int, batch: int, flush: str
) -> None:
    pair.batch, pair.flush = batch, flush
    chance = sampling.chance()
    pair.start_master()
    pair.start_slave()
    for number in range(rounds):
        some_puts(pair, chance)
        pair.kill_slave()
        pair.start_slave()
        some_puts(pair, chance)
        pair.await_puts(1)  # the copy is there, so that it could take over
        pair.kill_master()
        if number % 3 == 0:
            pair.kill_slave()
            pair.lose_master()
        pair.start_master()
        pair.start_slave()
    pair.await_puts(20)
    pair.kill_master()
    pair.kill_slave()
    end = min(size_of(pair.master), size_of(pair.copy))
    assert log_of(pair.copy, end) == log_of(pair.master, end)
    pair.check(pair.master)
    pair.lose_master()
    with lakelog.open(pair.master) as store:
        assert store.wait_dispatched()
        count = sum(1 for _ in store.scan())
        assert sum(map(len, queued(store).values())) == count


def size_of(path: Path) -> int:
    with lakelog.open(path, mode="read") as store:
        return store.max_offset
