"""When ``timed`` flushes: RocketMQ's rules."""

from __future__ import annotations

import time

import pytest

from lakelog.testing import FakeLog
from lakelog_flush.settings import TimedSettings
from lakelog_flush.timed import Timed

PAGE = 4096


def flushed_soon(log: FakeLog, seconds: float = 0.1) -> bool:
    deadline = time.monotonic() + seconds
    while log.flushed < log.appended and time.monotonic() < deadline:
        time.sleep(0.001)
    return log.flushed == log.appended


@pytest.mark.parametrize(
    ("pages", "bytes_", "flushed"), [(4, 4 * PAGE - 1, False), (4, 4 * PAGE, True), (0, 1, True)]
)
def test_it_needs_enough_dirty_pages(pages: int, bytes_: int, flushed: bool) -> None:
    log = FakeLog()
    flush = Timed(TimedSettings(1, pages, 60_000))
    flush.start(log)
    time.sleep(0.02)  # the first round is a thorough one
    log.append(bytes_)
    assert flushed_soon(log) is flushed
    flush.close()
    assert log.flushed == log.appended


def test_a_thorough_flush_takes_what_is_there() -> None:
    log = FakeLog()
    flush = Timed(TimedSettings(1, 4, 30))
    flush.start(log)
    log.append(1)
    assert flushed_soon(log, 10)
    flush.close()


@pytest.mark.parametrize(("fixed_rate", "flushed"), [(False, True), (True, False)])
def test_appends_wake_it_unless_the_clock_alone_decides(fixed_rate: bool, flushed: bool) -> None:
    log = FakeLog()
    flush = Timed(TimedSettings(60_000, 4, 0, fixed_rate))
    flush.start(log)
    time.sleep(0.02)
    flush.submit(log.append(4 * PAGE), wait=True)
    assert flushed_soon(log, 0.2) is flushed
    flush.close()


def test_a_commit_wakes_it_too() -> None:
    log = FakeLog(staged=True)
    flush = Timed(TimedSettings(60_000, 0, 0, fixed_rate=False))
    flush.start(log)
    time.sleep(0.02)
    log.append(1)
    flush.wake()
    assert flushed_soon(log, 10)
    flush.close()
