"""Runs a real broker of RocketMQ 5.3.3 as slave, in its own folder, without a name server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from lakelog_replication.address import Address
from lakelog_replication.remoting import BrokerRefused, adopt
from tests.replication.masterbroker import quick
from tests.support import maven

PATIENCE_SECONDS: Final = 120.0
"""A broker starts in a few seconds, looks for a master every 5 s, and reports every 5 s."""

_SMALL: Final = ("-Xmx512m", "-XX:MaxDirectMemorySize=256m")
_POM: Final = Path(__file__).parent / "pom.xml"
_ORACLE: Final = Path(__file__).parents[1] / "oracle"
_LOGGING: Final = """<configuration>
<appender name="S" class="org.apache.rocketmq.logging.ch.qos.logback.core.ConsoleAppender">
<encoder><pattern>%d{HH:mm:ss.SSS} %-5level %logger{0} - %msg%n</pattern></encoder></appender>
<root level="INFO"><appender-ref ref="S"/></root></configuration>
"""


class SlaveBroker:
    """A slave broker.

    :ivar store: its store directory
    :ivar address: the address for requests
    """

    def __init__(
        self,
        home: Path,
        segment_size_bytes: int,
        *,
        java_flags: Sequence[str] | None = None,
        **more: object,
    ) -> None:
        """Write its settings, including ``more``; :meth:`start` runs it.

        :param java_flags: all of them; by default those of a small heap and a quick start
        """
        home.mkdir(parents=True, exist_ok=True)
        self.store = home / "store"
        self.address = Address("127.0.0.1", _free_port())
        self._home = home
        settings: dict[str, object] = {
            "brokerClusterName": "lakelog",
            "brokerName": "broker-a",
            "brokerId": 1,
            "brokerRole": "SLAVE",
            "flushDiskType": "ASYNC_FLUSH",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": self.address.port,
            "haListenPort": _free_port(),
            "storePathRootDir": self.store,
            "storePathCommitLog": self.store / "commitlog",
            "mappedFileSizeCommitLog": segment_size_bytes,
            "mappedFileSizeConsumeQueue": 600_000,
            "maxHashSlotNum": 10_000,
            "maxIndexNum": 40_000,
            "slaveReadEnable": "false",
            "timerWheelEnable": "false",
            "enableCompaction": "false",
            "transactionMetricFlushInterval": 200,  # a thread polls without a pause until then
            "warmMapedFileEnable": "false",
            "diskMaxUsedSpaceRatio": 95,
            **more,
        }
        self._java_flags = (*_SMALL, *quick()) if java_flags is None else java_flags
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        (home / "broker.conf").write_text(text)
        (home / "logback.xml").write_text(_LOGGING)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, master: Address) -> None:
        """Run the broker, and set its master."""
        jars = maven.jars(_POM)
        command = [
            "java",
            f"@{_ORACLE / 'jvm.args'}",
            *self._java_flags,
            f"-Duser.home={self._home}",
            f"-Drocketmq.home.dir={self._home}",
            f"-Drmq.logback.configurationFile={self._home / 'logback.xml'}",
            *("-cp", os.fspath(jars / "*")),
            "org.apache.rocketmq.broker.BrokerStartup",
            *("-c", str(self._home / "broker.conf")),
        ]
        with (self._home / "out").open("ab") as out:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, "ROCKETMQ_HOME": str(self._home)},
                cwd=self._home,
            )
        eventually(lambda: self._adopts(master), self._last_words)

    def _adopts(self, master: Address) -> bool:
        assert self._process is not None  # start has made it
        assert self._process.poll() is None, self._last_words()
        try:
            adopt(self.address, master)
        except BrokerRefused:
            return False
        return True

    def _last_words(self) -> str:
        return (self._home / "out").read_text(errors="replace")[-2000:]

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None  # start has made it
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        assert self._process is not None  # start has made it
        self._process.send_signal(number)

    def kill(self) -> None:
        """End the process by SIGKILL, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def eventually(is_so: Callable[[], object], why: Callable[[], str] = lambda: "") -> None:
    """Wait until the condition holds; fails with the text of ``why``."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"it never came true: {why()}"
        time.sleep(0.05)


def _free_port() -> int:
    """Return a free port whose second lower neighbour is free too: a broker binds both."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port - 2))
            except OSError:
                continue
            return port
