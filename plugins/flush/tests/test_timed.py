"""The conditions under which ``timed`` flushes: RocketMQ's rules."""

from __future__ import annotations

import time

import pytest

from lakelog_flush.settings import TimedSettings
from lakelog_flush.timed import Timed
from lakelog_testing import FakeLog
from tests.support.waiting import until

PAGE = 4096
PATIENCE_SECONDS = 20.0
SOON_SECONDS = 0.1
"""Wait before checking that something did not happen; it does not on a busy machine either."""


def flushed_within(log: FakeLog, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while log.flushed < log.appended and time.monotonic() < deadline:
        time.sleep(0.001)
    return log.flushed == log.appended


def patience(*, expected: bool) -> float:
    return PATIENCE_SECONDS if expected else SOON_SECONDS


@pytest.mark.parametrize(
    ("pages", "bytes_", "flushed"), [(4, 4 * PAGE - 1, False), (4, 4 * PAGE, True), (0, 1, True)]
)
def test_it_needs_enough_dirty_pages(pages: int, bytes_: int, flushed: bool) -> None:
    log = FakeLog()
    log.append(PAGE)
    flush = Timed(TimedSettings(1, pages, 60_000))
    flush.start(log)
    assert flushed_within(log, PATIENCE_SECONDS), "the first round is a thorough one"
    log.append(bytes_)
    assert flushed_within(log, patience(expected=flushed)) is flushed
    flush.close()
    assert log.flushed == log.appended


@pytest.mark.parametrize(("fixed_rate", "flushed"), [(False, True), (True, False)])
def test_appends_wake_it_unless_the_clock_alone_decides(fixed_rate: bool, flushed: bool) -> None:
    log = FakeLog()
    flush = Timed(TimedSettings(60_000, 4, 0, fixed_rate))
    flush.start(log)
    until(lambda: flush._bell._asleep)  # an earlier ring wakes nothing
    flush.submit(log.append(4 * PAGE), wait=True)
    assert flushed_within(log, patience(expected=flushed)) is flushed
    flush.close()


def test_a_commit_wakes_it_too() -> None:
    log = FakeLog(staged=True)
    flush = Timed(TimedSettings(60_000, 0, 0, fixed_rate=False))
    flush.start(log)
    until(lambda: flush._bell._asleep)  # an earlier ring wakes nothing
    log.append(1)
    flush.wake()
    assert flushed_within(log, PATIENCE_SECONDS)
    flush.close()
