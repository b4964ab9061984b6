"""Runs real brokers and name servers of RocketMQ 5.3.3, and sends messages to a broker."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import SystemRandom
from typing import Final

import attrs
import psutil

from lakelog_replication.remoting import BrokerRefused, Response, call
from lakelog_replication.settings import Address
from tests.support import maven, required
from tests.support.javaprogram import QUICK

SEGMENT: Final = 1 << 20
SEND_MESSAGE: Final = 10
UPDATE_CONSUMER_OFFSET: Final = 15
CREATE_TOPIC: Final = 17
GET_MAX_OFFSET: Final = 30
GET_ROUTE: Final = 105
CREATE_GROUP: Final = 200
_SMALL: Final = ("-Xmx512m", "-XX:MaxDirectMemorySize=256m")
_NO_TLS: Final = "-Dtls.server.mode=disabled"
"""Else a broker makes two RSA keys at its start, by classes of a signed jar: 3 s of CPU time."""
_POM: Final = Path(__file__).parent / "pom.xml"
_ARCHIVE: Final = "classes.jsa"
_CHANCE: Final = SystemRandom()  # the workers of pytest share a seed
_ORACLE: Final = Path(__file__).parents[1] / "oracle"


def jars() -> Path:
    """Return the folder of the broker's jars; skips the test without a JDK or Maven."""
    absent = [each for each in ("java", "mvn") if shutil.which(each) is None]
    if absent:
        required.missing(f"a real broker needs {' and '.join(absent)}")
    return maven.jars(_POM)


def quick() -> tuple[str, ...]:
    """Return flags of Java with which a program of the broker's jars starts at the least cost.

    Its classes, parsed and verified, are mapped from the archive that a broker left once.
    """
    java, library = shutil.which("java"), jars()
    assert java is not None  # jars() needs it too
    state = f"{library.name}-{Path(java).stat().st_mtime_ns}"  # another Java refuses the archive
    folder = maven.once(maven.CACHE / f"shared-{state}", _archive_classes)
    return (*QUICK, _NO_TLS, f"-XX:SharedArchiveFile={folder / _ARCHIVE}")


def _archive_classes(folder: Path) -> None:
    archiving = (*_SMALL, *QUICK, _NO_TLS, f"-XX:ArchiveClassesAtExit={folder / _ARCHIVE}")
    with tempfile.TemporaryDirectory() as home, broker(Path(home), java_flags=archiving) as made:
        made.send("Archived", b"some classes are of requests")
        made.stop()


def free_ports(count: int) -> list[int]:
    """Return free ports below the ephemeral range.

    A JVM listens only after seconds, in which the system could assign an ephemeral port to a
    client. A broker also listens on the port two below its own.
    """
    found: list[int] = []
    while len(found) < count:
        port = _CHANCE.randrange(12_000, 32_000, 10)
        if port not in found and is_free(port) and is_free(port - 2):
            found.append(port)
    return found


def is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def eventually(is_so: Callable[[], object], why: str = "it never came true") -> None:
    """Wait until the condition holds; a broker may work at it every 5 s only."""
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline, why
        time.sleep(0.05)


@attrs.define
class BrokerProcess:
    """A broker in a folder; it can be killed and started again.

    :ivar client: the address for clients
    :ivar slaves: the address for slaves
    """

    home: Path
    client: Address
    slaves: Address
    settings: Mapping[str, object]
    java_flags: Sequence[str]
    _process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it is not started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def store(self) -> Path:
        return self.home / "store"

    def run(self, *listening: Address) -> None:
        """Start the broker, and wait until it listens at the addresses."""
        self.home.mkdir(parents=True, exist_ok=True)
        conf = self.home / "broker.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in self._properties().items()))
        self._process = _java("broker.BrokerStartup", self.home, conf, self.java_flags)
        try:
            for each in listening:
                self._await(each)
        except BaseException:
            self.kill()
            raise

    def _properties(self) -> dict[str, object]:
        return {
            "brokerClusterName": "Tests",
            "brokerName": "broker-a",
            "brokerId": 0,
            "brokerRole": "ASYNC_MASTER",
            "flushDiskType": "ASYNC_FLUSH",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": self.client.port,
            "haListenPort": self.slaves.port,
            "storePathRootDir": self.store,
            "storePathCommitLog": self.store / "commitlog",
            "mappedFileSizeCommitLog": SEGMENT,
            "mappedFileSizeConsumeQueue": 600_000,
            "maxHashSlotNum": 100_000,
            "maxIndexNum": 400_000,
            "autoCreateTopicEnable": "true",
            "timerWheelEnable": "false",
            "timerFlushIntervalMs": 10_000,  # each flush costs 0.15 s of CPU time
            "enableCompaction": "false",
            "transactionCheckInterval": 600_000,
            "transactionMetricFlushInterval": 200,  # a thread polls without a pause until then
            "diskMaxUsedSpaceRatio": 95,
            "warmMapedFileEnable": "false",
            **self.settings,
        }

    def _await(self, address: Address) -> None:
        def listens() -> bool:
            assert self.process.poll() is None, self.last_words()
            with suppress(psutil.NoSuchProcess):
                bound = psutil.Process(self.pid).net_connections("tcp")
                return any(  # its own port, not that of another test's broker
                    each.status == psutil.CONN_LISTEN and each.laddr.port == address.port
                    for each in bound
                )
            return False

        eventually(listens, "the broker did not start")

    def last_words(self) -> str:
        return (self.home / "out").read_text(errors="replace")[-2000:]

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None


class Broker(BrokerProcess):
    def start(self) -> None:
        """Start the broker, and wait until it listens on both ports."""
        self.run(self.client, self.slaves)

    def send(self, topic: str, body: bytes, queue: int = 0, keys: str = "") -> int:
        """Put a message; return its physical offset. Raises :class:`BrokerRefused`."""
        answer = self._send(topic, body, queue, keys)
        return int(answer.fields["msgId"][-16:], 16)

    def _send(self, topic: str, body: bytes, queue: int, keys: str) -> Response:
        fields = {
            "producerGroup": "tests",
            "topic": topic,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": str(queue),
            "sysFlag": "0",
            "bornTimestamp": str(time.time_ns() // 1_000_000),
            "flag": "0",
            "properties": f"KEYS\x01{keys}\x02WAIT\x01true\x02" if keys else "WAIT\x01true\x02",
            "reconsumeTimes": "0",
            "unitMode": "false",
            "batch": "false",
        }
        return call(self.client, SEND_MESSAGE, fields, body)

    def commit(self, group: str, topic: str, queue: int, offset: int) -> None:
        """Commit the position of a consumer group, and create it."""
        call(self.client, CREATE_GROUP, body=json.dumps({"groupName": group}).encode())
        fields = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": str(queue),
            "commitOffset": str(offset),
        }
        call(self.client, UPDATE_CONSUMER_OFFSET, fields)

    def max_offset(self, topic: str, queue: int = 0) -> int:
        fields = {"topic": topic, "queueId": str(queue)}
        return int(call(self.client, GET_MAX_OFFSET, fields).fields["offset"])

    def create_topic(self, topic: str, queues: int) -> None:
        create_topic(self.client, topic, queues)

    def send_many(self, topic: str, first: int, count: int, size: int = 1000) -> list[int]:
        """Put ``count`` numbered messages; return the numbers of the acknowledged ones.

        :param size: of a body, in bytes
        """
        done = []
        for number in range(first, first + count):
            body = number.to_bytes(8) * (size // 8)
            try:
                self.send(topic, body, number % 4, f"k{number}")
            except BrokerRefused:
                continue
            done.append(number)
        return done


def create_topic(address: Address, topic: str, queues: int) -> None:
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    call(address, CREATE_TOPIC, fields)


def has_route(names: Address, topic: str) -> bool:
    try:
        call(names, GET_ROUTE, {"topic": topic})
    except (BrokerRefused, OSError):
        return False
    return True


def small_jvm() -> tuple[str, ...]:
    return (*_SMALL, *quick())


def addresses() -> tuple[Address, Address]:
    client, slaves = free_ports(2)
    return Address("127.0.0.1", client), Address("127.0.0.1", slaves)


@contextmanager
def broker(
    home: Path, *, java_flags: Sequence[str] | None = None, **settings: object
) -> Iterator[Broker]:
    """Run a broker, killed at the end.

    :param java_flags: all of them; by default those of a small heap and a quick start
    """
    flags = small_jvm() if java_flags is None else java_flags
    made = Broker(home, *addresses(), settings, flags)
    made.start()
    try:
        yield made
    finally:
        made.kill()


@contextmanager
def name_server(home: Path) -> Iterator[Address]:
    """Run a name server, killed at the end; yields its address."""
    address = Address("127.0.0.1", free_ports(1)[0])
    home.mkdir(parents=True)
    conf = home / "namesrv.conf"
    conf.write_text(f"listenPort={address.port}\nbindAddress={address.host}\n")
    process = _java("namesrv.NamesrvStartup", home, conf, ("-Xmx128m", *quick()))

    def answers() -> bool:
        assert process.poll() is None, (home / "out").read_text(errors="replace")[-2000:]
        return not is_free(address.port)

    try:
        eventually(answers)
        yield address
    finally:
        process.kill()
        process.wait()


def _java(main: str, home: Path, conf: Path, flags: Sequence[str]) -> subprocess.Popen[bytes]:
    """Run a program of RocketMQ; what it prints is in ``home / "out"``."""
    command = [
        *("java", f"@{_ORACLE / 'jvm.args'}", *flags, f"-Duser.home={home}"),
        f"-Drocketmq.home.dir={home}",
        f"-Drmq.logback.configurationFile={_ORACLE / 'resources' / 'logback.xml'}",
        *("-cp", os.fspath(jars() / "*"), f"org.apache.rocketmq.{main}", "-c", str(conf)),
    ]
    environ = {**os.environ, "ROCKETMQ_HOME": str(home)}
    with (home / "out").open("ab") as out:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environ, cwd=home
        )
