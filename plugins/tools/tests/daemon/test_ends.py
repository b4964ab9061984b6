"""Abnormal ends: a failed store, a stop that takes too long, a signal during the opening."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from core.tests.store.support import open_small
from lakelog import Store
from lakelog_daemon.daemon import Daemon, Ending
from lakelog_daemon.logs import LogWriter
from lakelog_daemon.plan import ServePlan
from plugins.tools.tests.daemon.support import SECONDS

LATE = 6


@pytest.fixture
def log(tmp_path: Path) -> LogWriter:
    return LogWriter(tmp_path / "log")


@attrs.frozen
class Opened(ServePlan):
    """A plan that opens its store by a function of the test."""

    _open: Callable[[], Store] = attrs.field(kw_only=True)

    def open(self) -> Store:
        return self._open()


def plan(path: Path, opening: Callable[[], Store]) -> ServePlan:
    made = ServePlan.make(path, arguments={"serve.status_interval_ms": 100})
    parts = (made.path, made.commitlog, made.services, made.settings, made.opening)
    return Opened(*parts, {}, {}, open=opening)


def test_a_store_that_failed_is_let_go_for_somebody_to_recover(
    tmp_path: Path, log: LogWriter
) -> None:
    path = tmp_path / "s"

    def opening() -> Store:
        store = open_small(path)
        assert store._owned is not None
        timer = threading.Timer(0.3, store._owned.health.fail, [OSError(5, "the disk is gone")])
        timer.start()
        return store

    assert Daemon(plan(path, opening), log, LATE).run() is Ending.FAILED
    assert (path / "abort").exists()
    assert not (path / "lakelog/serve.pid").exists()
    assert b'"health":"failed"' in (path / "lakelog/serve.json").read_bytes()
    with open_small(path) as store:
        assert store.recovery is not None
        assert not store.recovery.clean


def test_a_signal_while_the_store_is_opened_ends_that(tmp_path: Path, log: LogWriter) -> None:
    former = signal.getsignal(signal.SIGTERM)

    def opening() -> Store:
        os.kill(os.getpid(), signal.SIGTERM)
        return open_small(tmp_path / "s")

    assert Daemon(plan(tmp_path / "s", opening), log, LATE).run() is Ending.STOPPED
    assert signal.getsignal(signal.SIGTERM) is former
    assert not (tmp_path / "s" / "lakelog/serve.json").exists()


def test_a_stop_that_takes_too_long_ends_as_it_is(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; "
        "from lakelog_daemon.daemon import deadline; "
        "from lakelog_daemon.logs import start_log\n"
        "log = start_log('INFO', Path(sys.argv[1]), as_json=True)\n"
        "with deadline(float(sys.argv[2]), 6, log): time.sleep(float(sys.argv[3]))"
    )

    def run(bound: str, taken: str) -> int:
        command = [sys.executable, "-c", program, str(tmp_path / "log"), bound, taken]
        return subprocess.run(command, timeout=SECONDS, check=False).returncode

    assert run("0.1", "600") == LATE
    assert '"event":"late"' in (tmp_path / "log").read_text()
    assert run("600", "0.1") == 0
