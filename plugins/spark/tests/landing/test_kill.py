"""Dispatchers are killed by SIGKILL, at chosen points and at any, while a producer appends.

Nothing is lost, nothing is doubled, each queue keeps its order. What a kill hit is told by the
table: a commit more than before, or not.
"""

from __future__ import annotations

import logging
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakelog_spark.landing.dispatcher import Source
from lakelog_spark.landing.ranges import Bounds
from plugins.spark.tests.landing import producer, program
from plugins.spark.tests.landing.tables import assert_exactly, commits, keys_of, land_all, make

POINTS = ("planned", "written", "inside", "committed")
ROUNDS = 60
_LONGEST_SECONDS = 60
_log = logging.getLogger(__name__)


@contextmanager
def producing(store: Path) -> Iterator[None]:
    """A producer in a process of its own, which stops cleanly at the end."""
    command = [sys.executable, producer.__file__, str(store)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield
        finally:
            process.communicate("stop\n", timeout=_LONGEST_SECONDS)
    assert process.returncode == 0


def start(
    store: Path, kind: str, table: Path, phase: str = "never", number: int = 1
) -> subprocess.Popen[str]:
    command = [sys.executable, program.__file__, str(store), kind, str(table), phase, str(number)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait(process: subprocess.Popen[str]) -> int:
    """Its return code; that of a dispatcher that ends by an error fails the test."""
    _, errors = process.communicate(timeout=_LONGEST_SECONDS)
    assert process.returncode in (0, -signal.SIGKILL), errors
    return process.returncode


def finish(store: Path, kind: str, table: Path) -> None:
    """Land what is left, in large passes, and compare."""
    land_all(Source(store, "S"), make(kind, table), Bounds())
    assert_exactly(kind, table, keys_of(store, "S"))


def kill_at(store: Path, kind: str, table: Path, phase: str, number: int) -> bool:
    """Run a dispatcher that dies there; whether it came to its end first."""
    return wait(start(store, kind, table, phase, number)) == 0


def kill_sometime(store: Path, kind: str, table: Path, longest: float) -> bool:
    process = start(store, kind, table)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(random.uniform(0, longest))
    process.kill()
    return wait(process) == 0


def test_kills_at_each_point(kind: str, tmp_path: Path) -> None:
    store, table = tmp_path / "s", tmp_path / "t"
    with producing(store):
        make(kind, table)
        time.sleep(0.3)
        for point in random.sample(POINTS, 2):
            kill_at(store, kind, table, point, 1)
    finish(store, kind, table)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_kills(kind: str, tmp_path: Path) -> None:
    store, table = tmp_path / "s", tmp_path / "t"
    hits: Counter[str] = Counter()
    make(kind, table)
    with producing(store):
        for number in range(ROUNDS):
            time.sleep(0.1)
            before = commits(kind, table)
            point = [*POINTS, "anywhere"][number % 5]
            if point == "anywhere":
                ended = kill_sometime(store, kind, table, 0.4)
            else:
                ended = kill_at(store, kind, table, point, 1)
            gained = commits(kind, table) > before
            hits[point + (", came to its end" if ended else ", committed" if gained else "")] += 1
    finish(store, kind, table)
    rows = len(keys_of(store, "S"))
    _log.info("%s: %s; %d commits, %d rows", kind, dict(hits), commits(kind, table), rows)
    killed = {point: sum(hits[f"{point}{end}"] for end in ("", ", committed")) for point in POINTS}
    assert min(killed.values()) >= 10, killed


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_dispatchers_for_a_whole_run(kind: str, tmp_path: Path) -> None:
    two_dispatchers(kind, tmp_path, seconds=20)


def test_two_dispatchers_at_once(kind: str, tmp_path: Path) -> None:
    two_dispatchers(kind, tmp_path, seconds=0.5)


def two_dispatchers(kind: str, tmp_path: Path, seconds: float) -> None:
    """Each starts again when it has come to the end; both race for every range."""
    store, table = tmp_path / "s", tmp_path / "t"
    make(kind, table)
    with producing(store):
        end = time.monotonic() + seconds
        while True:
            pair = [start(store, kind, table) for _ in range(2)]
            assert [wait(each) for each in pair] == [0, 0]
            if time.monotonic() > end:
                break
    finish(store, kind, table)
