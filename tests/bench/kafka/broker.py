"""A broker and controller in one process (KRaft) that syncs after each appended batch."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.bench.model import CannotRunError
from tests.support import maven

SETTINGS: Final = (
    "one broker (KRaft) of Kafka 4.1.0 on localhost, acks=all, log.flush.interval.messages=1, heap "
    "1 GiB; a partition for each of the producer processes (confluent-kafka)"
)
_POM: Final = Path(__file__).parent / "pom.xml"
_START_SECONDS: Final = 60
_STOP_SECONDS: Final = 60


@contextmanager
def running(directory: Path, *, kept: bool = False) -> Iterator[str]:
    """Start a broker in a directory, empty or of a stopped broker; stop it at the end.

    :param kept: whether the broker is stopped cleanly, so that it can be started again
    :returns: its address
    """
    jars = _jars()
    ports = _free_ports(2)
    settings = directory / "server.properties"
    settings.write_text(_properties(directory, *ports), encoding="ascii")
    if not (directory / "logs").exists():
        _format(directory, jars, settings)
    with (directory / "broker.log").open("wb") as log:
        process = subprocess.Popen(
            [*_java(jars), "kafka.Kafka", str(settings)], stdout=log, stderr=log, cwd=directory
        )
        try:
            _await(process, ports[0], directory / "broker.log")
            yield f"127.0.0.1:{ports[0]}"
        finally:
            _stop(process, in_order=kept)


def _stop(process: subprocess.Popen[bytes], *, in_order: bool) -> None:
    if in_order:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
    process.kill()
    process.wait()


def _jars() -> Path:
    if shutil.which("java") is None or shutil.which("mvn") is None:
        raise CannotRunError("the broker needs a JDK (17 or later) and Maven")
    try:
        return maven.jars(_POM)
    except RuntimeError as error:
        raise CannotRunError(f"the broker's jars: {str(error).splitlines()[-1]}") from error


def _java(jars: Path) -> list[str]:
    return ["java", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-cp", os.fspath(jars / "*")]


def _format(directory: Path, jars: Path, settings: Path) -> None:
    cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    command = ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(settings)]
    done = subprocess.run(
        [*_java(jars), *command], capture_output=True, text=True, check=False, cwd=directory
    )
    if done.returncode != 0:
        raise CannotRunError(f"the broker's directory: {(done.stdout + done.stderr)[-200:]}")


def _properties(directory: Path, port: int, controller_port: int) -> str:
    pairs = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": directory / "logs",
        "log.flush.interval.messages": 1,
        "offsets.topic.replication.factor": 1,
        "auto.create.topics.enable": "false",
        "message.max.bytes": 8 << 20,
        "socket.request.max.bytes": 256 << 20,
    }
    return "".join(f"{name}={value}\n" for name, value in pairs.items())


def _free_ports(count: int) -> list[int]:
    """Return free ports."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _await(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise CannotRunError(f"the broker did not start: {log.read_text(errors='replace')[-200:]}")
