"""Unit tests of the parts of ``serve``."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event
from types import FrameType

import pytest

from lakelog.errors import SettingsError
from lakelog.runtime.threads import soon
from lakelog.settings.effective import ServeSettings
from lakelog_daemon import follower, logs
from lakelog_daemon.daemon import every, log_failure
from lakelog_daemon.logs import MOST_LINES, LogWriter, TextFormatter, fields, start_log
from lakelog_daemon.logs import stop_log as end_log
from lakelog_daemon.notify import Notifier
from lakelog_daemon.plan import Spec, check_names, parse
from lakelog_daemon.service import SPREAD, Backoff
from plugins.tools.tests.daemon.support import SECONDS, run_until

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


def test_what_is_no_service_is_refused() -> None:
    for text in ("nothing", "a b=true", "=true", "x=", "x=echo 'open", "x=/nope"):
        with pytest.raises(SettingsError, match=r"serve\.services"):
            parse(text, Path("/s"), "serve.services")
    with pytest.raises(SettingsError, match="two services are called 'x'"):
        check_names(parse(f"x={program}", Path("/s"), "--service") for program in ("true", "false"))


# --- notifications ---


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


def test_how_often_the_manager_wants_to_hear() -> None:
    for usec, pid, seconds in (
        (None, None, None),
        ("1500000", None, 1.5),
        ("1500000", str(os.getpid()), 1.5),
        ("1500000", "1", None),
        ("soon", None, None),
        ("0", None, None),
    ):
        told = {"WATCHDOG_USEC": usec, "WATCHDOG_PID": pid}
        environ = {name: value for name, value in told.items() if value is not None}
        assert Notifier.of({"NOTIFY_SOCKET": "@x", **environ}).watchdog_seconds == seconds
        assert Notifier.of(environ) == Notifier()


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


def test_a_failure_of_a_periodic_call_or_of_a_reader_is_logged_and_ends_nothing(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    came: list[object] = []
    here, there = os.pipe()
    os.write(there, b"xx")

    def wrong() -> None:
        came.append(None)
        raise ValueError("wrong")

    def read_wrong() -> None:
        came.append(os.read(here, 1))
        raise ValueError("wrong")

    every(loop, 0.001, wrong)
    loop.add_reader(here, read_wrong)
    assert run_until(loop, lambda: came.count(b"x") == 2 and came.count(None) >= 3)
    logged = [each for each in caplog.records if each.name == "lakelog.serve"]
    assert [record.exc_info is not None for record in logged] == [True] * len(came)
    loop.remove_reader(here)
    os.close(here)
    os.close(there)


# --- logs ---


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    logger = logging.getLogger("lakelog.serve")
    level = logging.getLogger().level
    yield logger
    logging.getLogger().setLevel(level)


def test_json_lines_have_fields_and_errors(tmp_path: Path, log: logging.Logger) -> None:
    writer = start_log("INFO", tmp_path / "log", as_json=True)
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


def test_text_lines_say_which_service(log: logging.Logger) -> None:
    more = fields("e", service="x")
    record = log.makeRecord(log.name, 30, "f", 1, "it ends", (), None, extra=more)
    assert TextFormatter().format(record).endswith("+00:00 WARNING x: it ends")


def test_a_log_that_nobody_reads_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setattr(logs, "open_target", lambda _: writing)
    writer = LogWriter()
    record = logging.makeLogRecord({"msg": "x" * 100})
    for _ in range(MOST_LINES + 2_000):
        writer.emit(record)
    assert writer.dropped > 0
    os.close(reading)  # the writer gets EPIPE
    writer.finish(SECONDS)
    os.close(writing)


# --- a signal handler sets what the main thread waits for, whatever that was doing ---


@pytest.fixture
def former_handlers() -> Iterator[None]:
    numbers = (signal.SIGTERM, signal.SIGINT)
    former = {each: signal.getsignal(each) for each in numbers}
    yield
    for each, handler in former.items():
        signal.signal(each, handler)


def as_in_a_wait(event: Event, number: signal.Signals) -> bool:
    """Signal while the main thread holds the lock of ``event``; returns whether it was set."""
    with event._cond:  # type: ignore[attr-defined]  # as Event.wait does, for a moment
        signal.raise_signal(number)
    return event.wait(SECONDS)


@pytest.mark.usefixtures("former_handlers")
def test_an_event_is_set_while_its_lock_is_held() -> None:
    event = Event()

    def set_it(_number: int, _frame: FrameType | None) -> None:
        soon(event.set)

    signal.signal(signal.SIGTERM, set_it)
    assert as_in_a_wait(event, signal.SIGTERM)


@pytest.mark.usefixtures("former_handlers")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_follower_is_stopped_while_it_begins_to_wait(number: signal.Signals) -> None:
    assert as_in_a_wait(follower.stopped_by_signals(), number)
