"""A year of traffic, hour by hour, with only cleaner and watcher: no store, no files."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import attrs
import pytest

from lakelog.interfaces import CleaningContext, DiskState, SegmentInfo
from lakelog_retention.cleaner import Retention
from lakelog_retention.measure import Measure
from lakelog_retention.settings import WatcherSettings
from lakelog_retention.watcher import PsutilWatcher
from plugins.retention.tests.support import HOUR_MS, NOON_MS, SEGMENT_BYTES, retention


@attrs.define
class Year:
    """A log on a disk that has other users too.

    :ivar last_ms: time of the last message of each segment; the last segment is active
    :ivar refused: hours in which puts were refused
    """

    total_segments: int
    others: int = 0
    now_ms: int = NOON_MS
    first: int = 0
    last_ms: list[int] = attrs.field(factory=lambda: [NOON_MS])
    refused: int = 0
    states: set[DiskState] = attrs.field(factory=set)
    reasons: set[str] = attrs.field(factory=set)

    def meter(self, _: Path) -> Measure:
        used = (len(self.last_ms) + self.others) * SEGMENT_BYTES
        return Measure(1, used, self.total_segments * SEGMENT_BYTES - used)

    def put(self) -> None:
        """Fill a segment with messages."""
        self.last_ms[-1] = self.now_ms
        self.last_ms.append(self.now_ms)

    def sealed(self) -> list[SegmentInfo]:
        return [
            SegmentInfo((self.first + at) * SEGMENT_BYTES, SEGMENT_BYTES, last_ms)
            for at, last_ms in enumerate(self.last_ms[:-1])
        ]

    def live(self, seed: int, days: int = 90, **settings: Any) -> None:
        """Simulate the year, with more rounds than segments."""
        cleaner, chance = retention(**settings), random.Random(seed)
        watcher = PsutilWatcher(WatcherSettings(), self.meter)
        stopped = False
        for _ in range(days * 24):
            self.now_ms += HOUR_MS
            self.refused += stopped
            for _ in range(chance.choice((0, 0, 1, 1)) + 8 * (chance.random() < 0.01)):
                if not stopped:
                    self.put()
                    stopped = self.round(cleaner, watcher)
            stopped = self.round(cleaner, watcher)

    def round(self, cleaner: Retention, watcher: PsutilWatcher) -> bool:
        """Delete until nothing more is chosen; returns whether puts are then refused."""
        while True:
            state = watcher.observe([Path("log")]).state
            self.states.add(state)
            chosen = cleaner.choose(self.sealed(), CleaningContext(self.now_ms, state))
            self.reasons |= {" ".join(each.reason.split()[:6]) for each in chosen}
            if state in (DiskState.OK, DiskState.CLEAN) and not cleaner.settings.max_segments:
                young = self.now_ms - 72 * HOUR_MS
                assert all(last_ms <= young for last_ms in self.last_ms[: len(chosen)])
            del self.last_ms[: len(chosen)]
            self.first += len(chosen)
            assert len(self.last_ms) + self.others <= self.total_segments
            if not chosen:
                return state is DiskState.STOP_WRITING


def test_on_a_large_disk_three_to_four_days_are_there_and_nothing_more() -> None:
    year = Year(total_segments=1000)
    year.live(1, days=365)
    assert year.states == {DiskState.OK}
    assert year.refused == 0
    oldest_hours = (year.now_ms - year.last_ms[0]) / HOUR_MS
    assert 71 <= oldest_hours <= 97
    assert year.first > 4000


@pytest.mark.parametrize("most", [20, 61])
def test_a_limit_of_segments_holds_all_year(most: int) -> None:
    year = Year(total_segments=1000)
    year.live(2, max_segments=most)
    assert len(year.last_ms) <= most
    assert "the log has" in {reason[:11] for reason in year.reasons}


def test_a_disk_that_is_too_small_takes_the_oldest_and_refuses_nothing() -> None:
    year = Year(total_segments=70, others=20)
    year.live(3)
    assert {DiskState.CLEAN, DiskState.CLEAN_FORCIBLY} <= year.states
    assert year.refused == 0
    assert "it is the oldest, though not" in year.reasons


def test_on_a_disk_that_others_fill_puts_are_refused_and_the_log_stays_small() -> None:
    year = Year(total_segments=100, others=91)
    year.live(4)
    assert year.refused == 90 * 24 - 1
    assert len(year.last_ms) == 1, "all that may go is gone"


def test_what_must_not_go_before_its_time_stops_the_puts() -> None:
    year = Year(total_segments=50)
    year.live(5, clean_forcibly=False)
    assert year.refused > 0
    assert DiskState.STOP_WRITING in year.states
    assert "it is the oldest, though not" not in year.reasons
