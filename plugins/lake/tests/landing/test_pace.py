"""When passes begin, what wakes a dispatcher, and what it tells who started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread
from typing import cast

import attrs
import pytest

from lakelog import Message
from lakelog.store import joining as flushwait
from lakelog_daemon.notify import READY, STATUS, STOPPING, WATCHDOG, Notifier, NotifyReceiver
from lakelog_lake.errors import WorkerLost
from lakelog_lake.landing import dispatcher as newcoming
from lakelog_lake.landing.dispatcher import (
    Landed,
    LandingDispatcher,
    WatchdogNotifier,
    stopped_by_signals,
    until_stopped,
)
from lakelog_lake.landing.targets import TableSpec
from lakelog_lake.tasks.engines import in_process
from lakelog_lake.tasks.task import LandingSource, Task, TaskLimits, Written
from plugins.lake.tests.landing.table_specs import all_passes, dispatcher
from plugins.lake.tests.landing.test_cli import PROCESSES
from plugins.lake.tests.stores import filled, open_small
from tests.support.waiting import until

LANDED = Landed(0, 10, 1, 1, 0, won=True)
MORE = attrs.evolve(LANDED, is_more=True)
PERIOD_SECONDS = 0.3
Finds = list[Landed | Exception | None]


@attrs.define
class Life:
    """Passes and what they find, and the time, which stands still but for sleeps."""

    finds: Iterator[Landed | Exception | None]
    stop: Event = attrs.Factory(Event)
    interval_seconds: float = 5
    now: float = 100.0
    did: list[str] = attrs.Factory(list)

    def one_pass(self) -> Landed | None:
        found = next(self.finds, self)
        if found is self:
            self.stop.set()
            return None
        self.did.append("pass")
        self.now += 1
        if isinstance(found, Exception):
            raise found
        assert not isinstance(found, Life)
        return found

    def sleep(self, seconds: float) -> None:
        self.did.append(f"sleep {seconds:g}")

    def for_more(self) -> None:
        if not self.stop.is_set():
            self.did.append("wait")


def dear(*seconds: float) -> Finds:
    """Passes whose commits take so long."""
    return [attrs.evolve(LANDED, commit_seconds=each) for each in seconds]


def slept(*seconds: float) -> list[str]:
    return [what for each in seconds for what in ("pass", f"sleep {each:g}")]


@pytest.mark.parametrize(
    ("finds", "did"),
    [
        ([MORE, MORE, LANDED], ["pass", "pass", "pass", "sleep 4"]),
        ([LANDED, None, LANDED], ["pass", "sleep 4", "pass", "wait", "pass", "sleep 4"]),
        ([None, None], ["pass", "wait", "pass", "wait"]),
        ([WorkerLost(), WorkerLost(), LANDED, WorkerLost()], slept(0.6, 1.2, 4, 0.6)),
        # Further apart where commits are dear, not for one slow one, and no more than 30 seconds.
        (dear(0.9, 1.0), slept(4, 4)),
        (dear(2, 2, 3), slept(9, 9, 9)),
        (dear(9, 1), slept(29, 4)),
        (dear(2, *[0.1] * 8, *[4] * 8), slept(9, *[4] * 15, 19)),
        (dear(0.5, 50), slept(4, 4)),
    ],
)
def test_when_passes_begin(
    finds: Finds, did: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    life = Life(iter(finds))
    monkeypatch.setattr(time, "monotonic", lambda: life.now)
    waits = cast("newcoming.LandingWaits", life)
    until_stopped(life.one_pass, lambda _: None, lambda *_: None, waits)
    assert life.did == did
    is_dear = not {"sleep 9", "sleep 29"}.isdisjoint(did)
    assert ("s apart" in caplog.text) is is_dear


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_while_it_begins_to_wait_stops_it(number: signal.Signals) -> None:
    """The event's lock is held then: to take it in the handler would wait for ever."""
    with stopped_by_signals() as stop:
        with stop._cond:  # type: ignore[attr-defined]  # as Event.wait does, for a moment
            signal.raise_signal(number)
        assert stop.wait(60)


# --- what wakes a dispatcher that has landed all ---


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return filled(tmp_path / "s", 5)


@pytest.fixture
def lander(path: Path, tmp_path: Path) -> Iterator[LandingDispatcher]:
    made = dispatcher(LandingSource(path, "S"), TableSpec(f"parquet:{tmp_path / 't'}"))
    yield made
    made.close()


def test_a_put_wakes_it(
    path: Path, lander: LandingDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((newcoming, "TICK_SECONDS"), (flushwait, "LONGEST_SLEEP_S")):
        monkeypatch.setattr(module, name, 600.0)
    with open_small(path, flush="group-commit") as owner, ThreadPoolExecutor(1) as pool:
        all_passes(lander)
        waiting = pool.submit(lander.wait, Event(), 0.05, lambda: None)
        time.sleep(0.1)
        owner.put(Message("t", b"one more"))
        waiting.result(60)
        assert [each.rows for each in all_passes(lander)] == [1]


def test_another_owner_wakes_it(
    path: Path, lander: LandingDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or one that came and went: of a closed store the files are looked at."""
    monkeypatch.setattr(newcoming, "TICK_SECONDS", 0.05)
    monkeypatch.setattr(newcoming, "LONGEST_SECONDS", 600.0)
    with open_small(path):
        all_passes(lander)
    with open_small(path):
        lander.wait(Event(), 0.05, lambda: None)
    _age(path)
    assert all_passes(lander) == []
    with open_small(path) as owner:
        owner.put(Message("t", b"one more"))
    lander.wait(Event(), 0.05, lambda: None)
    assert [each.rows for each in all_passes(lander)] == [1]


def _age(path: Path) -> None:
    """Files that were just written may change again without another time."""
    before = time.time() - 60
    for each in (*path.rglob("*"), path):
        os.utime(each, (before, before))


# --- what it tells ---


@pytest.fixture
def ear() -> Iterator[NotifyReceiver]:
    found = NotifyReceiver()
    yield found
    found.close()


def test_a_pass_tells_its_progress_and_one_that_hangs_nothing(
    ear: NotifyReceiver, tmp_path: Path
) -> None:
    """Each task counts, and not more often than needed; while one is stuck there is silence."""
    alive = WatchdogNotifier(Notifier(ear.address, PERIOD_SECONDS))
    for _ in range(1000):
        alive()
    assert len(list(ear.lines())) <= 1 + 1000 * 3 * PERIOD_SECONDS
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

    lander = dispatcher(
        LandingSource(path, "S"),
        TableSpec(f"parquet:{tmp_path / 't'}"),
        TaskLimits(task_bytes=16 << 10),
        alive,
    )
    lander.engine = engine
    passing = Thread(target=lander.one_pass)
    passing.start()
    assert stuck.wait(20)
    list(ear.lines())
    time.sleep(3 * PERIOD_SECONDS)
    assert list(ear.lines()) == []
    release.set()
    passing.join()
    assert WATCHDOG in list(ear.lines())


def test_the_command_tells_who_started_it(ear: NotifyReceiver, path: Path) -> None:
    """As ``lakelog serve`` starts it."""
    heard = Counter[str]()
    command = [sys.executable, "-m", "lakelog", "dispatch", str(path), *PROCESSES]
    period = str(round(PERIOD_SECONDS * 1e6))
    environ = {**os.environ, "NOTIFY_SOCKET": ear.address, "WATCHDOG_USEC": period}
    environ.pop("WATCHDOG_PID", None)

    def has_heard(line: str, times: int = 1) -> bool:
        heard.update(ear.lines())
        return heard[line] >= times

    with (
        open_small(path) as owner,
        subprocess.Popen(
            [*command, "--to", f"parquet:{path.parent / 't'}"],
            env=environ,
            stderr=subprocess.DEVNULL,
        ) as process,
    ):
        try:
            until(lambda: has_heard(READY))
            until(lambda: has_heard(f"{STATUS}landed up to {owner.flushed_offset}"))
            heard.clear()
            until(lambda: has_heard(WATCHDOG, 3))  # while nothing comes
            process.send_signal(signal.SIGTERM)
            until(lambda: has_heard(STOPPING))
            assert process.wait(20) == 0
        finally:
            process.kill()
