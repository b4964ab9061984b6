"""Unit tests of the parts of ``serve``."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lakelog.errors import SettingsError
from lakelog.settings.model import ServeSettings
from lakelog_daemon import processes
from lakelog_daemon.daemon import every, log_failure, signals_in
from lakelog_daemon.logs import MOST_LINES, LogTarget, LogWriter, TextFormatter, fields, start_log
from lakelog_daemon.logs import stop_log as end_log
from lakelog_daemon.notify import Notifier, NotifyReceiver
from lakelog_daemon.plan import Spec, check_names, parse
from lakelog_daemon.service import SPREAD, Backoff
from plugins.daemon.tests.support import SECONDS, run_until
from tests.support.waiting import until

SETTINGS = ServeSettings(restart_first_ms=100, restart_longest_ms=1_000, restart_settled_ms=5_000)


# --- pauses ---


def test_pauses_double_up_to_the_longest_and_begin_anew_after_a_good_run() -> None:
    backoff = Backoff(SETTINGS, chance=lambda: 0.5)
    assert [backoff.after(1.0) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert backoff.after(5.0) == 0.1


def test_chance_makes_a_pause_a_little_longer_or_shorter() -> None:
    low, high = Backoff(SETTINGS, chance=lambda: 0.0), Backoff(SETTINGS, chance=lambda: 1.0)
    assert low.after(0) == pytest.approx(0.1 * (1 - SPREAD))
    assert high.after(0) == pytest.approx(0.1 * (1 + SPREAD))


# --- names and programs ---


def test_a_command_is_parted_as_by_a_shell_and_told_the_store() -> None:
    spec = parse("a.b=true 'one two' --at={store}/x", Path("/s t"), "--service")
    assert spec == Spec("a.b", "service", ("true", "one two", "--at=/s t/x"))
    ours = parse("eye=lakelog tail", Path("/s"), "--service").command
    assert ours == (sys.executable, "-m", "lakelog", "tail")


@pytest.mark.parametrize("text", ["nothing", "a b=true", "=true", "x=", "x=echo 'open", "x=/nope"])
def test_what_is_no_service_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"serve\.services"):
        parse(text, Path("/s"), "serve.services")


def test_two_services_of_one_name_are_refused() -> None:
    with pytest.raises(SettingsError, match="two services are called 'x'"):
        check_names(parse(f"x={program}", Path("/s"), "--service") for program in ("true", "false"))


# --- notifications ---


def test_what_a_service_says_is_heard() -> None:
    with closing(NotifyReceiver()) as ear:
        assert Notifier(ear.address).send("READY=1", "STATUS=a b")
        assert Notifier(ear.address).send("WATCHDOG=1")
        assert list(ear.lines()) == ["READY=1", "STATUS=a b", "WATCHDOG=1"]
        assert list(ear.lines()) == []


def test_nobody_need_listen() -> None:
    assert not Notifier().send("READY=1")
    assert not Notifier("@lakelog-nobody-is-here").send("READY=1")
    assert not Notifier("/no/such/socket").send("READY=1")


def test_a_manager_that_does_not_read_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # an address of a socket has 107 bytes at most
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("./s")
        notifier, begun = Notifier("./s"), time.monotonic()
        taken = sum(notifier.send("STATUS=" + "x" * 2000) for _ in range(2000))
        assert 0 < taken < 2000
        assert time.monotonic() - begun < SECONDS


@pytest.mark.parametrize(
    ("more", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "1500000"}, 1.5),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": str(os.getpid())}, 1.5),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
    ],
)
def test_how_often_the_manager_wants_to_hear(more: dict[str, str], seconds: float | None) -> None:
    assert Notifier.of({"NOTIFY_SOCKET": "@x", **more}).watchdog_seconds == seconds
    assert Notifier.of(more) == Notifier()


# --- the loop ---

Loop = asyncio.AbstractEventLoop


@pytest.fixture
def loop() -> Iterator[Loop]:
    with closing(asyncio.new_event_loop()) as made:
        made.set_exception_handler(log_failure)
        yield made


def test_a_call_that_takes_longer_than_its_interval_is_not_made_up_for(loop: Loop) -> None:
    times: list[float] = []

    def slow() -> None:
        times.append(time.monotonic())
        time.sleep(0.03 if len(times) == 1 else 0)

    every(loop, 0.01, slow)
    assert len(times) == 1, "the first call is made at once"
    assert run_until(loop, lambda: len(times) == 3)
    assert times[2] - times[1] >= 0.009


def test_a_failure_of_a_periodic_call_is_logged_and_ends_nothing(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    came: list[float] = []

    def wrong() -> None:
        came.append(time.monotonic())
        raise ValueError("wrong")

    every(loop, 0.01, wrong)
    assert run_until(loop, lambda: len(came) >= 3)
    logged = [each for each in caplog.records if each.name == "lakelog.serve"]
    assert [record.exc_info is not None for record in logged] == [True] * len(came)


def test_a_failure_of_a_reader_is_logged_and_ends_nothing(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = os.pipe()
    os.write(there, b"xx")
    read: list[bytes] = []

    def wrong() -> None:
        read.append(os.read(here, 1))
        raise ValueError("wrong")

    loop.add_reader(here, wrong)
    assert run_until(loop, lambda: len(read) == 2)
    logged = [each for each in caplog.records if each.name == "lakelog.serve"]
    assert [record.exc_info is not None for record in logged] == [True, True]
    loop.remove_reader(here)
    os.close(here)
    os.close(there)


def test_a_periodic_call_longer_than_its_interval_blocks_no_other(loop: Loop) -> None:
    here, there = os.pipe()
    os.write(there, b"x")
    heard: list[bytes] = []
    loop.add_reader(here, lambda: heard.append(os.read(here, 1)))
    loop.call_soon(lambda: every(loop, 0.001, lambda: time.sleep(0.005)))
    assert run_until(loop, lambda: bool(heard))
    loop.remove_reader(here)
    os.close(here)
    os.close(there)


def test_signals_are_heard_in_the_loop_and_the_former_handlers_come_back(loop: Loop) -> None:
    heard: list[signal.Signals] = []
    former = signal.getsignal(signal.SIGHUP)
    with signals_in(loop, [signal.SIGHUP, signal.SIGUSR1], heard.append):
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGHUP)
        assert run_until(loop, lambda: len(heard) == 2)
    assert heard == [signal.SIGUSR1, signal.SIGHUP]
    assert signal.getsignal(signal.SIGHUP) is former


# --- logs ---


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    logger = logging.getLogger("lakelog.serve")
    level = logging.getLogger().level
    yield logger
    logging.getLogger().setLevel(level)


def test_json_lines_have_fields_and_errors(tmp_path: Path, log: logging.Logger) -> None:
    writer = start_log(LogTarget(tmp_path / "log"), "INFO", as_json=True)
    log.info("it %s", "runs", extra=fields("started", service="x", pid=7))
    log.debug("not this")
    log.error("no", exc_info=ValueError("why\nso"))
    writer.emit(logging.makeLogRecord({"msg": "%d", "args": ("no number",)}))
    end_log(writer)
    first, second = map(json.loads, (tmp_path / "log").read_text().splitlines())
    time_of = first.pop("time")
    assert time_of.endswith("+00:00")
    assert first == {
        "level": "INFO",
        "logger": "lakelog.serve",
        "message": "it runs",
        "event": "started",
        "service": "x",
        "pid": 7,
    }
    assert second["error"].endswith("ValueError: why\nso")
    assert writer.dropped == 1


def test_text_lines_say_which_service(tmp_path: Path, log: logging.Logger) -> None:
    record = log.makeRecord(
        log.name, 30, "f", 1, "it ends", (), None, extra=fields("e", service="x")
    )
    assert TextFormatter().format(record).endswith("+00:00 WARNING x: it ends")


def test_a_log_that_nobody_reads_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setattr(LogTarget, "open", lambda _: writing)
    writer = LogWriter(LogTarget())
    record = logging.makeLogRecord({"msg": "x" * 100})
    for _ in range(MOST_LINES + 2_000):
        writer.emit(record)
    assert writer.dropped > 0
    os.close(reading)  # the writer gets EPIPE
    writer.finish(SECONDS)
    os.close(writing)


# --- processes ---


def test_what_linux_says_of_a_process_and_what_it_started() -> None:
    program = "import subprocess, sys; subprocess.run(['sleep', '600'])"
    with subprocess.Popen([sys.executable, "-c", program], start_new_session=True) as process:
        try:
            (child,) = until(lambda: processes.children(process.pid))
            until(lambda: getattr(processes.look_at(child), "name", "") == "sleep")
            until(lambda: getattr(processes.look_at(child), "rss_bytes", 0))
            alone, all_of_it = processes.look_at(process.pid), processes.with_children(process.pid)
            assert alone is not None
            assert all_of_it is not None
            assert all_of_it.rss_bytes > alone.rss_bytes > 1 << 20
            assert not alone.is_stopped
            os.kill(process.pid, signal.SIGSTOP)
            until(lambda: getattr(processes.look_at(process.pid), "is_stopped", False))
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
    assert processes.look_at(process.pid) is None
    assert processes.children(process.pid) == []
