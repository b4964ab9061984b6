"""Runs brokers of lakelog and RocketMQ, and a Java client that sends delayed messages."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Condition, Thread
from typing import Any, Final

import attrs

import lakelog
from lakelog_replication.remoting import call
from lakelog_replication.settings import Address
from tests.replication.masterbroker import SEGMENT, broker, eventually, jars, name_server, quick
from tests.support.javaprogram import java_program

PATIENCE_SECONDS: Final = 60.0
_HERE: Final = Path(__file__).parent
_SETTINGS: Final[dict[str, Any]] = {
    "enablePropertyFilter": "true",
    "timerWheelEnable": "true",
    "recallMessageEnable": "true",
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 1_000,
    "transactionCheckMax": 1_000,  # checks go on without a client
    "transactionOpBatchInterval": 10,  # else an end of the last 3 s before a stop is not noted
    "flushDelayOffsetInterval": 500,
    # the defaults of both
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
}

_SET_MODE: Final = 401
_JAVA_FLAGS: Final = ("-Xmx512m", "-XX:MaxDirectMemorySize=1g")
"""Each thread of the broker that puts messages has a direct buffer of 4 MiB."""


def set_pop_mode(address: Address, topic: str, group: str) -> None:
    mode = {"topic": topic, "consumerGroup": group, "mode": "POP", "popShareQueueNum": 0}
    call(address, _SET_MODE, {}, json.dumps(mode).encode())


@attrs.frozen
class Serving:
    """A running broker.

    :ivar server: the address of its name server
    :ivar process: the process of ``lakelog broker``, or RocketMQ's
        :class:`~tests.replication.masterbroker.Broker`
    """

    server: Address
    process: Any

    def end(self, *, killed: bool) -> None:
        """End the broker by SIGKILL or SIGTERM."""
        if isinstance(self.process, subprocess.Popen):
            self.process.send_signal(signal.SIGKILL if killed else signal.SIGTERM)
            assert self.process.wait(PATIENCE_SECONDS) == (-9 if killed else 0)
        elif killed:
            self.process.kill()
        else:
            self.process.stop()


@contextmanager
def lakelogs_broker(
    home: Path, port: int = 0, options: Sequence[str] = (), *, said: Path | None = None
) -> Iterator[Serving]:
    """Run ``lakelog broker`` on ``home/store``, which is created if it does not exist.

    :param said: the file of its errors: a full pipe without a reader would lose lines
    """
    said = said or home / "lakelog.out"
    path = home / "store"
    if not path.exists():
        lakelog.open(path, mode="exclusive", segment_size_bytes=SEGMENT).close()
    program = (sys.executable, "-m", "lakelog_cli.main", "broker")
    command = [*program, str(path), "--port", str(port), *options]
    with (
        said.open("ab") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, said.read_text()[-2000:]
            yield Serving(Address("127.0.0.1", int(line.rpartition(":")[2])), process)
        finally:
            process.kill()


@contextmanager
def rocketmqs_broker(
    home: Path, *, java_flags: Sequence[str] | None = None, **more: object
) -> Iterator[Serving]:
    names = home / f"names-{len(list(home.glob('names-*')))}"
    settings, flags = {**_SETTINGS, **more}, java_flags or (*_JAVA_FLAGS, *quick())
    with (
        name_server(names) as server,
        broker(home, java_flags=flags, namesrvAddr=str(server), **settings) as made,
    ):
        yield Serving(server, made)


_CHECKS: Final = {"transaction_check_interval_s": 1, "transaction_check_limit": 1_000}
"""As of RocketMQ's broker; by default a client that registers late is asked after half a minute."""
BROKERS: Final[dict[str, Callable[[Path], Any]]] = {
    "lakelog": partial(
        lakelogs_broker,
        options=[f"--set=broker.{name}={value}" for name, value in _CHECKS.items()],
    ),
    "rocketmq": rocketmqs_broker,
}


class Client:
    """A running Java client; a thread collects its events."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.events: list[dict[str, Any]] = []
        self._process, self._changed = process, Condition()
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # RocketMQ's client prints log lines too; the last line of a killed process is torn.
            if line.startswith('{"event"') and line.endswith("\n"):
                with self._changed:
                    self.events.append(json.loads(line))
                    self._changed.notify_all()

    def of(self, event: str) -> list[dict[str, Any]]:
        with self._changed:
            return [each for each in self.events if each["event"] == event]

    def write(self, *lines: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{line}\n" for line in lines))
        self._process.stdin.flush()

    def do(self, line: str) -> dict[str, Any]:
        """Send a command to the client; return the event with its result."""
        body = "" if line == "consume" else line.rsplit(maxsplit=1)[-1]
        answers = {"sent", "refused", "recalled", "consuming"}
        known = len(self.events)
        self.write(line)

        def found() -> list[dict[str, Any]]:
            new = self.events[known:]
            return [each for each in new if each["event"] in answers and each["body"] == body]

        self.wait_for(found)
        return found()[0]

    def create_topic(self, body: str) -> None:
        """Send a message repeatedly until the topic exists; a broker registers after a delay."""
        eventually(lambda: self.do(f"delay 0 {body}")["event"] == "sent")

    def wait_for(self, is_so: Any) -> None:
        with self._changed:
            assert self._changed.wait_for(is_so, PATIENCE_SECONDS), self.events

    def got(self, bodies: set[str]) -> None:
        self.wait_for(lambda: bodies <= {e["body"] for e in self.events if e["event"] == "got"})

    def join(self) -> None:
        self._reader.join()


def java(program: str, *arguments: str, home: Path, flags: Sequence[str] = ()) -> list[str]:
    """Return the command that runs a program of ``java/``; skips without a JDK or Maven."""
    sources = sorted((_HERE / "java").glob("*.java"))
    main = f"lakelog.broker.{program}"
    return java_program(jars(), sources, main, *arguments, home=home, flags=(*quick(), *flags))


@contextmanager
def java_client(server: Address, topic: str, home: Path) -> Iterator[Client]:
    """Run a Java client, killed at the end."""
    command = java("Later", str(server), topic, home=home)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        client = Client(process)
        try:
            yield client
        finally:
            process.kill()
            client.join()
