"""Runs masters and slaves of both kinds, each in a separate process; looks for bytes in a slave."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from lakelog_replication.settings import Address
from tests.bench.model import LAKELOG, ROCKETMQ, CannotRunError
from tests.bench.running import await_port, real_store
from tests.replication.broker import SlaveBroker
from tests.replication.masterbroker import broker, free_ports

REAL: Final = ROCKETMQ
OURS: Final = LAKELOG
SEGMENT_BYTES: Final = 256 << 20
_TIMEOUT_SECONDS: Final = 60.0
_HOST: Final = "127.0.0.1"
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_WARM_JVM: Final = ("-Xms512m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m")
_FILES: Final = {
    "mappedFileSizeCommitLog": SEGMENT_BYTES,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
}


@dataclass(frozen=True)
class Side:
    """A running master or slave.

    :ivar clients: the address for clients of a real broker
    :ivar slaves: the address for slaves of a master
    """

    pid: int
    store: Path
    clients: Address | None = None
    slaves: Address | None = None
    send: Callable[[str, bytes], int] | None = None

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").split(") ")[1][0] != "Z"

    def cpu_seconds(self) -> float:
        """The CPU seconds of its threads."""
        stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(") ")[2]
        return sum(map(int, stat.split()[11:13])) / _TICKS


@contextmanager
def real_master(home: Path, **settings: object) -> Iterator[Side]:
    """Run a real broker over ``home/store``."""
    real_store()
    (home / "store" / "abort").unlink(missing_ok=True)  # it was killed, and its log is whole
    with broker(home, java_flags=_WARM_JVM, **_FILES, **settings) as made:
        yield Side(made.pid, made.store, made.client, made.slaves, made.send)


@contextmanager
def real_slave(home: Path, master: Address, **settings: object) -> Iterator[Side]:
    """Run a real slave over ``home/store``."""
    real_store()
    made = SlaveBroker(home, SEGMENT_BYTES, java_flags=_WARM_JVM, **{**_FILES, **settings})
    try:
        made.start(master)
        yield Side(made.pid, made.store, made.address)
    finally:
        made.kill()


@contextmanager
def our_master(home: Path, *settings: str) -> Iterator[Side]:
    """Run ``lakelog serve`` over ``home/store``, as a master."""
    (port,) = free_ports(1)
    wanted = ("replicator=rocketmq-ha", f"rocketmq-ha.port={port}", *settings)
    with _ours(home, "serve", home / "store", *_assigned(wanted)) as pid:
        made = Side(pid, home / "store", slaves=Address(_HOST, port))
        await_port(port, made.is_alive)
        yield made


@contextmanager
def our_slave(
    home: Path, master: Address, *more: str, settings: Sequence[str] = ()
) -> Iterator[Side]:
    """Run ``lakelog replicate`` into ``home/store``."""
    wanted = (
        f"segment_size_bytes={SEGMENT_BYTES}",
        "rocketmq-ha.reconnect_interval_ms=50",  # the master may start later than the slave
        *settings,
    )
    command = ("replicate", home / "store", "--from", str(master), *more, *_assigned(wanted))
    with _ours(home, *command) as pid:
        yield Side(pid, home / "store")


def local(port: int) -> Address:
    """Return the loopback address with ``port``."""
    return Address(_HOST, port)


def _assigned(settings: Sequence[str]) -> list[str]:
    return [word for each in settings for word in ("--set", each)]


@contextmanager
def _ours(home: Path, *words: object) -> Iterator[int]:
    home.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "lakelog", *map(str, words)]
    with (home / "out").open("ab") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.returncode:
            told = (home / "out").read_text(errors="replace")[-300:]
            print(
                f"{' '.join(command[2:4])} ended with {process.returncode}: {told}", file=sys.stderr
            )


def seed(source: Path, slave: Path, length: int) -> None:
    """Copy the first ``length`` bytes of the log to a new real slave, so that it requests the rest.

    A slave without a log gets only the last segment.
    """
    target = slave / "commitlog" / f"{0:020d}"
    target.parent.mkdir(parents=True)
    with (source / "commitlog" / target.name).open("rb") as log, target.open("xb") as made:
        made.write(log.read(length))
        made.truncate(SEGMENT_BYTES)


def copy_of(source: Path, home: Path) -> Path:
    """Copy a closed store to ``home/store``."""
    home.mkdir(parents=True)
    return Path(shutil.copytree(source, home / "store"))


class SlaveLog:
    """The log in a folder to which another process appends.

    A record is present once its first four bytes, its length, are not zero.
    """

    def __init__(self, store: Path, segment_bytes: int, is_alive: Callable[[], bool]) -> None:
        self._folder = store / "commitlog"
        self._segment_bytes = segment_bytes
        self._is_alive = is_alive
        self._files: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._files.values():
            os.close(each)

    def has(self, record: int) -> bool:
        """Whether the record that starts at ``record`` is present."""
        at = record % self._segment_bytes
        start = record - at
        if start not in self._files:
            with suppress(FileNotFoundError):
                self._files[start] = os.open(self._folder / f"{start:020d}", os.O_RDONLY)
        if start not in self._files:
            return False
        return any(os.pread(self._files[start], 4, at))

    def wait(self, record: int, pause_s: float) -> float:
        """Wait until the record is present; return the time by ``time.perf_counter``."""
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while not self.has(record):
            if time.monotonic() > deadline or not self._is_alive():
                raise CannotRunError(f"the record at {record} did not come to the slave")
            time.sleep(pause_s)
        return time.perf_counter()
