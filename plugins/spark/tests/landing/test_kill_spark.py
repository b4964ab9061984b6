"""Spark drivers and executors are killed by SIGKILL while they land what a producer appends.

A driver is a Python process with a JVM: the one or the other is killed, after which a new driver
goes on. Executors are processes of a standalone cluster, which starts others; now and then a worker
is killed with its executor. In the first rounds one stands still instead, until Spark has run its
task elsewhere; then it goes on, too.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs
import pytest

from lakelog_lake.tasks.task import LandingSource, TaskLimits
from plugins.lake.tests.landing import program_runs as runs
from plugins.lake.tests.landing.program_evidence import hit, look
from plugins.lake.tests.landing.tables import assert_exactly, keys_of, land_all, make
from plugins.spark.tests.clusters import standalone
from tests.support.waiting import until

DRIVER_ROUNDS = int(os.environ.get("DRIVER_ROUNDS", "6"))
EXECUTOR_ROUNDS = int(os.environ.get("EXECUTOR_ROUNDS", "16"))
_ROUND_SECONDS = 100
pytestmark = [
    *(pytest.mark.java, pytest.mark.spark, pytest.mark.slow),
    pytest.mark.timeout(600 + _ROUND_SECONDS * (DRIVER_ROUNDS + EXECUTOR_ROUNDS)),
    pytest.mark.parametrize("kind", ["iceberg", "delta"]),
]
_STILL_ROUNDS = 8
_WORKER_EVERY = 4
"""Each so many rounds a worker is killed, and not one executor."""
_STILL_SECONDS = 3.0
_START_SECONDS = 120
_log = logging.getLogger(__name__)


@attrs.frozen
class Driver:
    """A dispatcher by Spark."""

    process: subprocess.Popen[str]
    errors: Path

    def hear(self, word: str) -> None:
        """Wait until it says ``word``."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line == f"{word}\n":
                return
        raise AssertionError(self.errors.read_text()[-3000:])

    @property
    def jvm(self) -> int:
        (found,) = (pid for pid in children(self.process.pid) if name_of(pid) == "java")
        return found


@contextmanager
def driver_of(program: str, folder: Path, given: Mapping[str, object]) -> Iterator[Driver]:
    """A module of this folder in a process of its own, killed in the end if it is still there."""
    command = [sys.executable, "-m", f"plugins.spark.tests.landing.{program}", json.dumps(given)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    environ = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    with (
        (folder / "errors").open("a") as errors,
        subprocess.Popen(command, stderr=errors, text=True, env=environ, **pipes) as process,  # type: ignore[call-overload]  # of pipes
    ):
        try:
            yield Driver(process, folder / "errors")
        finally:
            process.kill()


@contextmanager
def driving(kind: str, folder: Path, master: str, **more: str) -> Iterator[Driver]:
    given = {"kind": kind, "master": master, "store": str(folder / "s"), "table": str(folder / "t")}
    with driver_of("program_spark", folder, given | more) as driver:
        try:
            driver.hear("ready")
            yield driver
        finally:
            if driver.process.poll() is None:
                driver.process.communicate("stop\n", timeout=_START_SECONDS)


def children(pid: int) -> list[int]:
    """Of all threads of a process."""
    found: list[int] = []
    for each in Path(f"/proc/{pid}/task").glob("*/children"):
        found += map(int, each.read_text().split())
    return found


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def kill_driver(driver: Driver, number: int, most_seconds: float) -> None:
    """At some time after the start of a phase; the Python process, or its JVM."""
    jvm = driver.jvm
    driver.hear(["planned", "written", "committed"][number % 3])
    time.sleep(random.uniform(0, most_seconds))
    os.kill(jvm if number % 2 else driver.process.pid, signal.SIGKILL)
    driver.process.wait(_START_SECONDS)
    until(lambda: not Path(f"/proc/{jvm}").exists(), "the JVM stays", seconds=_START_SECONDS)


def finish(kind: str, folder: Path) -> int:
    """Others land what is left, and all must be there once.

    In large passes: a slow machine leaves much, and small ones would be thousands of commits, each
    of which Delta reads again for each that follows.
    """
    land_all(LandingSource(folder / "s", "S"), make(kind, folder / "t"), TaskLimits())
    expected = keys_of(folder / "s", "S")
    assert_exactly(kind, folder / "t", expected)
    return len(expected)


def test_drivers_are_killed(kind: str, tmp_path: Path) -> None:
    hits: Counter[str] = Counter()
    make(kind, tmp_path / "t")
    with runs.producing(tmp_path / "s"):
        for number in range(DRIVER_ROUNDS):
            before = look(kind, tmp_path / "t")
            with driving(kind, tmp_path, "local[2]") as driver:
                kill_driver(driver, number, 0.3)
            hits[hit(before, look(kind, tmp_path / "t"))] += 1
    rows = finish(kind, tmp_path)
    _log.info("%s: %d drivers killed: %s; %d rows", kind, DRIVER_ROUNDS, dict(hits), rows)


def executors(workers: list[int]) -> list[int]:
    found = [pid for worker in workers for pid in children(worker)]
    return [pid for pid in found if name_of(pid) == "java"]


def stand_still(executor: int) -> None:
    """The JVM and its Python workers; whoever was killed meanwhile is gone."""
    there = [executor, *descendants(executor)]
    for sent in (signal.SIGSTOP, signal.SIGCONT):
        for each in there:
            with suppress(ProcessLookupError):
                os.kill(each, sent)
        if sent == signal.SIGSTOP:
            time.sleep(_STILL_SECONDS)


def speculative_tasks(events: Path) -> int:
    """How many started because another attempt was slow."""
    files = events.rglob("events_*")
    found = (line for each in files for line in each.read_text().splitlines())
    starts = [each for each in map(json.loads, found) if each["Event"] == "SparkListenerTaskStart"]
    return sum(each["Task Info"]["Speculative"] for each in starts)


def descendants(pid: int) -> list[int]:
    below = children(pid)
    return below + [each for child in below for each in descendants(child)]


def test_executors_are_killed(kind: str, tmp_path: Path) -> None:
    killed, replaced, events = 0, 0, tmp_path / "events"
    events.mkdir()
    make(kind, tmp_path / "t")
    with standalone(tmp_path) as cluster, runs.producing(tmp_path / "s"):
        before = look(kind, tmp_path / "t")
        with driving(kind, tmp_path, cluster.master, events=str(events)) as driver:
            for number in range(_STILL_ROUNDS + EXECUTOR_ROUNDS):
                driver.hear("committed")
                driver.hear("written")  # while this is committed, tasks write the next pass
                time.sleep(random.uniform(0, 0.3))
                there = executors(cluster.workers)
                if there and number < _STILL_ROUNDS:  # while both are there
                    stand_still(random.choice(there))
                elif number >= _STILL_ROUNDS and number % _WORKER_EVERY == 0:
                    cluster.replace(random.randrange(len(cluster.workers)))
                    replaced += 1
                elif there:
                    os.kill(random.choice(there), signal.SIGKILL)
                    killed += 1
            driver.hear("committed")
    after = look(kind, tmp_path / "t")
    rows, speculated = finish(kind, tmp_path), speculative_tasks(events)
    _log.info(
        "%s: %d executors and %d workers killed, %d tasks run twice, %d commits, left over %d data "
        "files; %d rows",
        *(kind, killed, replaced, speculated),
        *(after.commits - before.commits, len(after.data), rows),
    )
    assert speculated
    assert killed + replaced > EXECUTOR_ROUNDS // 2
