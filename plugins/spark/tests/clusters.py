"""Spark's servers as processes of this machine: standalone and Connect; and Pythons."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, TypeAlias

import attrs
import pyspark

HERE: Final = "127.0.0.1"
OF_A_DRIVER: Final = {
    "spark.driver.host": HERE,
    "spark.driver.bindAddress": HERE,
    "spark.executor.memory": "512m",
    "spark.executor.defaultJavaOptions": os.environ.get("SPARK_DAEMON_JAVA_OPTS", ""),
    "spark.ui.enabled": "false",
}
"""What a driver says to a cluster of this machine."""
_START_SECONDS: Final = 90
_OF_LAKELOG: Final = re.compile(r"lakelog|_lakelog|__editable__", re.IGNORECASE)

Process: TypeAlias = "subprocess.Popen[bytes]"


@attrs.frozen
class Cluster:
    """:ivar master: its address, as Spark writes it; :ivar workers: their process ids."""

    master: str
    workers: list[int]
    _start: Callable[[int], int]

    def replace(self, number: int) -> None:
        """Kill a worker, whose executors end by themselves, and start another one there."""
        os.kill(self.workers[number], signal.SIGKILL)
        self.workers[number] = self._start(number)


@contextmanager
def standalone(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """A master and workers with one core each; ends them all.

    Each worker has an address of its own: Spark runs no task twice on one host.
    Their work folders, in which executors keep their logs, are in ``folder`` too.
    """
    with ExitStack() as running:
        log = folder / "master.log"
        first = running.enter_context(_server(log, "org.apache.spark.deploy.master.Master"))
        master = _wait_for(first, log, r"Starting Spark master at (spark://\S+)")[0]

        def start(number: int) -> int:
            given = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"w{number}")]
            kind = "org.apache.spark.deploy.worker.Worker"
            log_of_it = folder / f"worker-{number}.log"
            host = f"127.0.0.{number + 1}"
            worker = _server(log_of_it, kind, *given, master, host=host)
            return running.enter_context(worker).pid

        cluster = Cluster(master, [start(number) for number in range(workers)], start)
        _wait_for(first, log, r"Registering worker (\S+)", workers)
        yield cluster


@contextmanager
def _server(log: Path, kind: str, *given: str, host: str = HERE) -> Iterator[Process]:
    ports = ["--host", host, "--port", "0", "--webui-port", "0"]
    with spark_class(log, [kind, *ports, *given], {"SPARK_LOCAL_IP": host}) as process:
        yield process


@contextmanager
def connect_server(folder: Path, python: str = sys.executable) -> Iterator[str]:
    """A Spark Connect server that runs on two cores of this machine; gives its address."""
    log = folder / "connect.log"
    kind = "org.apache.spark.sql.connect.service.SparkConnectServer"
    settings = {
        "spark.connect.grpc.binding.address": HERE,
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.log.level": "INFO",
    }
    given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    environ = {"PYSPARK_PYTHON": python, "SPARK_DAEMON_MEMORY": "1g"}
    command = ["org.apache.spark.deploy.SparkSubmit", "--class", kind, "--master", "local[2]"]
    with spark_class(log, [*command, *given, "spark-internal"], environ) as process:
        port = _wait_for(process, log, r"Spark Connect server started at: \S*:(\d+)")[0]
        yield f"sc://{HERE}:{port}"


@contextmanager
def spark_class(
    log: Path, command: list[str], environ: Mapping[str, str] | None = None
) -> Iterator[Process]:
    """A process of Spark's own launcher."""
    launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
    extra = {
        "SPARK_LOCAL_IP": HERE,
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
    }
    given = {**os.environ, **extra, **(environ or {})}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(launcher), *command], stdout=output, stderr=subprocess.STDOUT, env=given
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(process: Process, log: Path, pattern: str, count: int = 1) -> list[str]:
    until = time.monotonic() + _START_SECONDS
    while len(found := re.findall(pattern, log.read_text())) < count:
        late = time.monotonic() > until or process.poll() is not None
        assert not late, f"{log} lacks {pattern}: {log.read_text()[-2000:]}"
        time.sleep(0.1)
    return [str(each) for each in found]


def bare_python(folder: Path) -> Path:
    """A Python that has all that is installed here, but lakelog and its plugins."""
    venv.create(folder, with_pip=False)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    for place in map(Path, sys.path):
        if place.name == "site-packages":
            for each in place.iterdir():
                link = packages / each.name
                if not _OF_LAKELOG.search(each.name) and not link.exists():
                    link.symlink_to(each)
    return folder / "bin" / "python"


def run(*command: str, environ: Mapping[str, str] | None = None, seconds: int = 500) -> str:
    """Run a Python program beside this one; gives what it says last, on one line."""
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env={**os.environ, "SPARK_LOCAL_IP": HERE, **(environ or {})},
    )
    assert done.returncode == 0, f"{done.stdout[-1000:]}\n{done.stderr[-6000:]}"
    return done.stdout.strip().splitlines()[-1]
