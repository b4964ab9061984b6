"""Supervised services: real processes, without a store."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pytest

from lakelog.settings.effective import ServeSettings
from lakelog_daemon.daemon import every, log_failure
from lakelog_daemon.logs import FIELDS
from lakelog_daemon.plan import Spec
from lakelog_daemon.service import Service, Supervisor
from lakelog_testing.threads import hold
from plugins.tools.tests.daemon.support import SECONDS, is_there, run_until
from tests.support.waiting import until

SETTINGS = ServeSettings(restart_first_ms=20, hang_timeout_ms=200)
SLEEP = "exec sleep 600"
DEAF = "trap '' TERM; sleep 600 & echo $!; wait"
SILENT = (
    f'{sys.executable} -c "import os, socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)'
    "; a = chr(0) + os.environ['NOTIFY_SOCKET'][1:]"
    "; s.sendto(b'READY=1\\nWATCHDOG=1\\nSTATUS=is well', a)\"; exec sleep 600"
)


@attrs.frozen
class Running:
    """Services of shell scripts, by name."""

    loop: asyncio.AbstractEventLoop
    supervisor: Supervisor

    def __getitem__(self, name: str) -> Service:
        return next(each for each in self.supervisor.services if each.spec.name == name)

    def until(self, is_done: Callable[[], Any]) -> None:
        assert run_until(self.loop, is_done), "it does not happen"

    def start(self) -> Running:
        self.supervisor.start()
        every(self.loop, 0.02, self.supervisor.look)
        return self

    def pid(self, name: str) -> int:
        found = self[name].pid
        assert found is not None
        return found

    def stop(self, seconds: float = SECONDS, *, hurried: bool = False) -> bool:
        hurry = asyncio.Event()
        if hurried:
            hurry.set()
        return self.loop.run_until_complete(self.supervisor.stop(seconds, hurry))


Make = Callable[..., Running]
Events = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Make]:
    with closing(asyncio.new_event_loop()) as loop:
        loop.set_exception_handler(log_failure)
        made: list[Running] = []

        def make(settings: ServeSettings = SETTINGS, **scripts: str) -> Running:
            specs = [Spec(name, "service", ("sh", "-c", text)) for name, text in scripts.items()]
            made.append(Running(loop, Supervisor(specs, tmp_path, settings, loop)))
            return made[-1].start()

        yield make
        for each in made:
            each.stop(hurried=True)


@pytest.fixture
def events(caplog: pytest.LogCaptureFixture) -> Events:
    caplog.set_level(logging.INFO, logger="lakelog.serve")
    return lambda: [
        {"message": record.getMessage(), **getattr(record, FIELDS, {})} for record in caplog.records
    ]


def test_one_that_is_killed_is_started_again_and_others_are_left_alone(running: Make) -> None:
    services = running(one=SLEEP, other=SLEEP)
    first, other = services.pid("one"), services.pid("other")
    os.kill(first, signal.SIGKILL)
    services.until(lambda: services["one"].record.restarts == 1)
    assert services["one"].record.last_exit == "ended by SIGKILL"
    assert services.pid("one") != first
    assert services["one"].health == "restarting"
    services.until(lambda: services["one"].health == "ok")
    assert services.pid("other") == other
    assert services["other"].record.restarts == 0


def test_one_that_is_held_by_a_signal_is_started_again(running: Make) -> None:
    services = running(one=SLEEP)
    first = services.pid("one")
    hold(first)
    services.until(lambda: services["one"].health == "hanging")
    os.kill(first, signal.SIGCONT)
    services.until(lambda: services["one"].health == "ok")
    assert services.pid("one") == first
    hold(first)
    services.until(lambda: services["one"].record.restarts == 1)
    assert services["one"].record.hangs == 1
    assert not is_there(first)


def test_one_that_falls_silent_is_started_again(running: Make, events: Events) -> None:
    services = running(one=SILENT)
    services.until(lambda: services["one"].record.message == "is well")
    assert services["one"].health == "ok"
    services.until(lambda: services["one"].record.restarts == 1)
    assert services["one"].record.hangs == 1
    assert services["one"].record.message is None
    (hang,) = (each for each in events() if each.get("event") == "hangs")
    assert "has sent no WATCHDOG=1 for 0." in hang["message"]


def test_nothing_hangs_where_that_is_switched_off(running: Make) -> None:
    services = running(attrs.evolve(SETTINGS, hang_timeout_ms=0), one=SLEEP)
    hold(services.pid("one"))
    assert not run_until(services.loop, lambda: services["one"].record.hangs > 0, 0.3)


def test_pauses_become_longer_and_what_is_printed_is_logged(running: Make, events: Events) -> None:
    services = running(bad="echo no; printf way >&2; exit 7")
    services.until(lambda: services["bad"].record.restarts == 4)
    assert services["bad"].record.last_exit == "ended with code 7"
    printed = [each for each in events() if each.get("event") == "output"]
    assert [each["message"] for each in printed[:4]] == ["no", "way"] * 2
    assert {each["service"] for each in printed} == {"bad"}
    times = [each for each in events() if each.get("event") == "started"]
    assert len(times) >= 5


def test_what_never_ends_its_line_is_logged_in_pieces(running: Make, events: Events) -> None:
    running(long="head -c 200000 /dev/zero | tr '\\0' x; exec sleep 600")

    def printed() -> int:
        return sum(len(each["message"]) for each in events() if each.get("event") == "output")

    services = running(idle=SLEEP)
    services.until(lambda: printed() >= 131_072)


def test_a_stop_asks_and_then_kills_all_that_was_started(running: Make, events: Events) -> None:
    services = running(kind=SLEEP, deaf=DEAF, held=SLEEP)
    services.until(lambda: any(each.get("event") == "output" for each in events()))
    (grandchild,) = (int(each["message"]) for each in events() if each.get("event") == "output")
    pids = [services.pid(name) for name in ("kind", "deaf", "held")]
    hold(pids[2])
    begun = time.monotonic()
    assert not services.stop(0.5)
    assert 0.5 <= time.monotonic() - begun < SECONDS
    assert not any(map(is_there, pids))
    until(lambda: not is_there(grandchild))
    assert [services[name].record.last_exit for name in ("kind", "deaf", "held")] == [
        "ended by SIGTERM",
        "ended by SIGKILL",
        "ended by SIGTERM",
    ]


def test_one_that_waits_is_not_started_any_more(running: Make) -> None:
    services = running(attrs.evolve(SETTINGS, restart_first_ms=60), bad="exit 1")
    services.until(lambda: services["bad"].state.value == "waiting")
    assert services.stop()
    assert not run_until(services.loop, lambda: services["bad"].pid is not None, 0.2)


def test_where_no_process_can_be_had_it_is_tried_again(
    running: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, tries = os.pidfd_open, list[int]()

    def pidfd_open(pid: int, flags: int = 0) -> int:
        tries.append(pid)
        if len(tries) == 1:
            raise OSError(24, "Too many open files")
        return real(pid, flags)

    monkeypatch.setattr(os, "pidfd_open", pidfd_open)
    services = running(one=SLEEP)
    assert services["one"].record.last_exit == "cannot be started: Too many open files"
    assert not is_there(tries[0])
    services.until(lambda: services["one"].pid is not None)


def test_nothing_is_left_open_when_a_service_ends(running: Make) -> None:
    services = running(attrs.evolve(SETTINGS, restart_longest_ms=1), bad="exit 0")
    services.until(lambda: services["bad"].record.restarts == 2)
    before = len(os.listdir("/proc/self/fd"))
    services.until(lambda: services["bad"].record.restarts == 12)
    assert len(os.listdir("/proc/self/fd")) <= before + 4


def test_services_do_not_inherit_what_our_manager_told_us(
    running: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "@manager")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    monkeypatch.setenv("WATCHDOG_USEC", "1")
    told = tmp_path / "told"
    services = running(one=f"env > {told}.tmp; mv {told}.tmp {told}; exec sleep 600")
    services.until(told.exists)
    environ = dict(line.split("=", 1) for line in told.read_text().splitlines())
    assert environ["NOTIFY_SOCKET"] not in ("", "@manager")
    assert environ["WATCHDOG_USEC"] == "200000"
    assert "WATCHDOG_PID" not in environ
    assert environ["SERVICE_OF_LAKELOG"] == str(tmp_path)


def test_one_that_comes_later_is_supervised_and_can_become_another(running: Make) -> None:
    services = running(one=SLEEP)
    services.supervisor.add(Spec("later", "service", ("sh", "-c", SLEEP)))
    first = services.pid("later")
    services["later"].become(Spec("later", "service", ("sh", "-c", "exec sleep 601")))
    services.until(lambda: services["later"].pid not in (None, first))
    services.until(
        lambda: Path(f"/proc/{services.pid('later')}/cmdline").read_bytes() == b"sleep\x00601\x00"
    )
    assert not is_there(first)
    assert services["later"].health == "ok"
    assert [services[each].record.restarts for each in ("one", "later")] == [0, 0]


def test_a_line_of_lakelogs_own_log_keeps_its_level(
    running: Make, events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    line = "2026-11-24T10:30:49.123+00:00 CRITICAL the logs differ"
    services = running(one=f"echo '{line}'; {SLEEP}")
    services.until(lambda: any(each["message"] == "the logs differ" for each in events()))
    record = next(each for each in caplog.records if each.getMessage() == "the logs differ")
    assert (record.levelno, getattr(record, FIELDS)["service"]) == (logging.CRITICAL, "one")
    services.stop()
