"""What a dispatcher tells who started it: that it is ready, that it gets on, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from lakelog_daemon.notify import READY, STATUS, STOPPING, WATCHDOG, Notifier, NotifyReceiver
from lakelog_lake.landing.dispatcher import LandingDispatcher, LandingSource
from lakelog_lake.landing.targets import TableSpec, targets_for
from lakelog_lake.landing.watchdog import WatchdogNotifier
from lakelog_lake.tasks.engines import in_process
from lakelog_lake.tasks.ranges import TaskLimits
from lakelog_lake.tasks.task import Task, Written
from plugins.lake.tests.landing.test_cli import PROCESSES
from plugins.lake.tests.stores import filled, open_small
from tests.support.waiting import until

PERIOD_SECONDS = 0.3


@pytest.fixture
def ear() -> Iterator[NotifyReceiver]:
    found = NotifyReceiver()
    yield found
    found.close()


@pytest.fixture
def alive(ear: NotifyReceiver) -> WatchdogNotifier:
    return WatchdogNotifier(Notifier(ear.address, PERIOD_SECONDS))


def test_it_is_told_no_more_often_than_needed(ear: NotifyReceiver, alive: WatchdogNotifier) -> None:
    for _ in range(1000):
        alive()
    assert len(list(ear.lines())) <= 1 + 1000 * 3 * PERIOD_SECONDS
    alive.ready()
    time.sleep(PERIOD_SECONDS / 2)
    alive()
    assert list(ear.lines()) == [READY, WATCHDOG]


def test_who_sleeps_is_well(ear: NotifyReceiver, alive: WatchdogNotifier) -> None:
    alive.sleep(Event(), 2 * PERIOD_SECONDS)
    assert list(ear.lines()).count(WATCHDOG) >= 3


def test_nobody_is_told_where_nobody_listens() -> None:
    alive = WatchdogNotifier(Notifier())
    alive.ready()
    alive.sleep(Event(), 0.01)


def test_a_pass_tells_its_progress_and_one_that_hangs_nothing(
    ear: NotifyReceiver, alive: WatchdogNotifier, tmp_path: Path
) -> None:
    """Each task counts; while one is stuck there is silence."""
    path, stuck, release = filled(tmp_path / "s", 200), Event(), Event()

    def slowly() -> None:
        time.sleep(PERIOD_SECONDS / 2)
        alive()

    def engine(tasks: Sequence[Task]) -> Sequence[Written]:
        assert len(tasks) > 3
        done = list(in_process(tasks[:-1], slowly))
        assert list(ear.lines()).count(WATCHDOG) >= 3  # its queue is short
        stuck.set()
        release.wait(20)
        return done + list(in_process(tasks[-1:], alive))

    bounds = TaskLimits(task_bytes=16 << 10)
    targets = targets_for(TableSpec(f"parquet:{tmp_path / 't'}"))
    lander = LandingDispatcher(LandingSource(path, "S"), targets, engine, bounds, alive)
    passing = Thread(target=lander.one_pass)
    passing.start()
    assert stuck.wait(20)
    list(ear.lines())
    time.sleep(3 * PERIOD_SECONDS)
    assert list(ear.lines()) == []
    release.set()
    passing.join()
    assert WATCHDOG in list(ear.lines())


@contextmanager
def dispatching(path: Path, ear: NotifyReceiver) -> Iterator[subprocess.Popen[bytes]]:
    """As ``lakelog serve`` starts it."""
    to = f"parquet:{path.parent / 't'}"
    command = [sys.executable, "-m", "lakelog", "dispatch", str(path), "--to", to, *PROCESSES]
    period = str(round(PERIOD_SECONDS * 1e6))
    environ = {**os.environ, "NOTIFY_SOCKET": ear.address, "WATCHDOG_USEC": period}
    environ.pop("WATCHDOG_PID", None)
    with subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_command_tells_who_started_it(ear: NotifyReceiver, tmp_path: Path) -> None:
    path, heard = filled(tmp_path / "s", 5), Counter[str]()

    def has_heard(line: str, times: int = 1) -> bool:
        heard.update(ear.lines())
        return heard[line] >= times

    with open_small(path) as owner, dispatching(path, ear) as process:
        until(lambda: has_heard(READY))
        until(lambda: has_heard(f"{STATUS}landed up to {owner.flushed_offset}"))
        heard.clear()
        until(lambda: has_heard(WATCHDOG, 3))  # while nothing comes
        process.send_signal(signal.SIGTERM)
        until(lambda: has_heard(STOPPING))
        assert process.wait(20) == 0
