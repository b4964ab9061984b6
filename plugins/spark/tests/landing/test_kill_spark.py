"""Spark drivers and executors are killed by SIGKILL while they land what a producer appends.

A driver is a Python process with a JVM: the one or the other is killed, after which a new driver
goes on. Executors are processes of a standalone cluster, which starts others; now and then a worker
is killed with its executor. In the first rounds one stands still instead, until Spark has run its
task elsewhere; then it goes on, too.

In the end the table is cleaned. Then four readers count the same rows, and the folder has no file
that the table does not name.
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

from lakelog_lake.maintenance import terms
from lakelog_lake.maintenance.tables import expire
from lakelog_lake.maintenance.terms import RetentionTerms
from lakelog_lake.tasks.task import LandingSource, TaskLimits
from plugins.lake.tests.landing import program_runs as runs
from plugins.lake.tests.landing.program_evidence import hit, look
from plugins.lake.tests.landing.tables import (
    TABLE,
    assert_exactly,
    counted_by_duckdb,
    keys_of,
    land_all,
    make,
    read,
)
from plugins.spark.tests.clusters import run, standalone
from tests.support.waiting import until

DRIVER_ROUNDS = int(os.environ.get("DRIVER_ROUNDS", "6"))
EXECUTOR_ROUNDS = int(os.environ.get("EXECUTOR_ROUNDS", "10"))
_ROUND_SECONDS = 100
pytestmark = [
    *(pytest.mark.java, pytest.mark.spark, pytest.mark.slow),
    pytest.mark.timeout(600 + _ROUND_SECONDS * (DRIVER_ROUNDS + EXECUTOR_ROUNDS)),
    pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "dynamic"]),
    pytest.mark.parametrize("kind", ["iceberg", "delta", "parquet"]),
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
def driving(kind: str, folder: Path, master: str, *, dynamic: bool) -> Iterator[Driver]:
    given = {"kind": kind, "master": master, "store": str(folder / "s"), "table": str(folder / "t")}
    (events := folder / "events").mkdir(exist_ok=True)
    more = {"events": str(events), "dynamic": dynamic}
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
        found += map(int, text_of(each).split())
    return found


def name_of(pid: int) -> str:
    return text_of(Path(f"/proc/{pid}/comm")).strip()


def text_of(path: Path) -> str:
    """Of a process or a thread; nothing if it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return path.read_text()
    return ""


def kill_driver(driver: Driver, number: int, most_seconds: float) -> None:
    """At some time after the start of a phase; the Python process, or its JVM."""
    jvm = driver.jvm
    driver.hear(["planned", "written", "committed"][number % 3])
    time.sleep(random.uniform(0, most_seconds))
    os.kill(jvm if number % 2 else driver.process.pid, signal.SIGKILL)
    driver.process.wait(_START_SECONDS)
    until(lambda: not Path(f"/proc/{jvm}").exists(), "the JVM stays", seconds=_START_SECONDS)


def finish(kind: str, folder: Path) -> int:
    """Others land what is left, clean the table, and count the rows.

    In large passes: a slow machine leaves much, and small ones would be thousands of commits, each
    of which Delta reads again for each that follows.
    """
    table = folder / "t"
    land_all(LandingSource(folder / "s", "S"), make(kind, table), TaskLimits())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terms, "SAFE_SECONDS", 0)
        expire(f"{kind}:{table}", None, RetentionTerms(0))
    expected = keys_of(folder / "s", "S")
    assert_exactly(kind, table, expected)
    assert counted_by_duckdb(read(kind, table)) == [len(expected)] * 2
    assert counted_by_spark(kind, table) == [len(expected)] * 2
    left = look(kind, table)
    assert not left.data | left.metadata
    return len(expected)


def counted_by_spark(kind: str, table: Path) -> list[int]:
    """How many rows there are, and of how many records."""
    given = {
        "iceberg": {"warehouse": str(table), "table": f"lake.{TABLE}"},
        "delta": {"delta": str(table)},
        "parquet": {"parquet": str(table / "data")},
    }
    said = run("-m", "plugins.spark.tests.landing.program_count", json.dumps(given[kind]))
    return list(json.loads(said))


def test_drivers_are_killed(kind: str, dynamic: bool, tmp_path: Path) -> None:
    hits: Counter[str] = Counter()
    make(kind, tmp_path / "t")
    with standalone(tmp_path) as cluster, runs.producing(tmp_path / "s"):
        for number in range(DRIVER_ROUNDS):
            before = look(kind, tmp_path / "t")
            with driving(kind, tmp_path, cluster.master, dynamic=dynamic) as driver:
                kill_driver(driver, number, 0.3)
            until(lambda: not executors(cluster.workers), "executors stay", seconds=_START_SECONDS)
            hits[hit(before, look(kind, tmp_path / "t"))] += 1
    rows = finish(kind, tmp_path)
    _log.info("%s: %d drivers killed: %s; %d rows", kind, DRIVER_ROUNDS, dict(hits), rows)


def executors(workers: list[int]) -> list[int]:
    found = [pid for worker in workers for pid in children(worker)]
    return [pid for pid in found if name_of(pid) == "java"]


def kill_executor(workers: list[int]) -> None:
    """Any; another one if it ends by itself just then."""

    def is_killed() -> bool:
        with suppress(IndexError, ProcessLookupError):
            os.kill(random.choice(executors(workers)), signal.SIGKILL)
            return True
        return False

    until(is_killed, "no executor comes", seconds=_START_SECONDS)


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


def test_executors_are_killed(kind: str, dynamic: bool, tmp_path: Path) -> None:
    replaced = 0
    make(kind, tmp_path / "t")
    with standalone(tmp_path) as cluster, runs.producing(tmp_path / "s"):
        before = look(kind, tmp_path / "t")
        with driving(kind, tmp_path, cluster.master, dynamic=dynamic) as driver:
            for number in range(_STILL_ROUNDS + EXECUTOR_ROUNDS):
                driver.hear("committed")
                driver.hear("written")  # while this is committed, tasks write the next pass
                time.sleep(random.uniform(0, 0.3))
                if number < _STILL_ROUNDS:  # while both are there
                    there = until(lambda: executors(cluster.workers), seconds=_START_SECONDS)
                    stand_still(random.choice(there))
                elif number % _WORKER_EVERY == 0:
                    cluster.replace(random.randrange(len(cluster.workers)))
                    replaced += 1
                else:
                    kill_executor(cluster.workers)
            driver.hear("committed")
    after = look(kind, tmp_path / "t")
    rows, speculated = finish(kind, tmp_path), speculative_tasks(tmp_path / "events")
    _log.info(
        "%s: %d executors and %d workers killed, %d tasks run twice, %d commits, left over %d data "
        "files; %d rows",
        *(kind, EXECUTOR_ROUNDS - replaced, replaced, speculated),
        *(after.commits - before.commits, len(after.data), rows),
    )
    assert speculated or dynamic  # there, the second executor may not have come yet
