"""Weeks of traffic in a real store with a fake clock: limits hold, and no message is missed."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pytest

from lakelog import Message, Store
from lakelog.files.filesystem import RealFileSystem
from lakelog.maintenance.pins import Pin, write_pin
from lakelog_testing import FakeClock
from plugins.retention.tests.clocked_stores import (
    HOUR_MS,
    SEGMENT,
    EventRecorder,
    open_clocked,
    starts,
)

START_MS = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
PER_HOUR = 3
BODY_BYTES = 1500


@attrs.define(eq=False)
class Life:
    """A store, a reader at its end, and a follower that runs occasionally.

    :ivar put: messages put so far
    :ivar read: messages that the reader has read
    :ivar landed: messages that the follower has landed
    """

    path: Path
    store: Store
    clock: FakeClock
    put: int = 0
    read: int = 0
    landed: int = 0
    position: int = 0

    def hour(self) -> None:
        """Put, read new messages, and advance an hour, with its round."""
        for _ in range(PER_HOUR):
            body = b"%08d" % self.put + b"." * (BODY_BYTES - 8)
            assert self.store.put(Message("t", body, queue_id=0)).queue_offset == self.put
            self.put += 1
        assert self.store.wait_dispatched()
        for message in self.store.read("t", 0, self.read):
            assert int(bytes(message.body[:8])) == self.read
            self.read += 1
        assert self.read == self.put, "the reader at the tail missed some"
        self.clock.advance_and_settle(HOUR_MS)

    def land(self) -> None:
        """Land all new messages, and update the pin."""
        for message in self.store.scan(self.position):
            assert message.queue_offset == self.landed, "the follower missed some"
            self.landed += 1
            self.position = message.physical_offset + message.size
        self.pin()

    def pin(self) -> None:
        pin = Pin("lake", self.position, self.clock.now_ms())
        write_pin(RealFileSystem(), self.path, pin)

    def oldest_hours(self) -> float:
        """Age of the first existing message."""
        first = next(iter(self.store.scan()))
        return (self.clock.now_ms() - first.store_timestamp_ms) / HOUR_MS


def live(path: Path, days: int, absent: range, **retention: Any) -> EventRecorder:
    """Advance several days; no follower runs on those in ``absent``."""
    recorder = EventRecorder(FakeClock(START_MS))
    section = {"time_zone": "UTC", "delete_files_batch_max": 100, **retention}
    with open_clocked(path, recorder, retention=section) as store:
        life = Life(path, store, recorder.clock)
        life.pin()
        for day in range(days):
            for hour in range(24):
                life.hour()
                if hour % 6 == 5 and day not in absent:
                    life.land()
            held = day in absent or day - 1 in absent
            check(life, held=held, most=section.get("max_segments"))
        life.land()
        assert life.landed == life.put
        assert starts(path)[0] == store.min_offset
    assert recorder.deleted == list(range(0, len(recorder.deleted) * SEGMENT, SEGMENT))
    return recorder


def check(life: Life, *, held: bool, most: int | None) -> None:
    """Conditions that hold at midnight."""
    there = starts(life.path)
    assert there == list(range(there[0], there[-1] + 1, SEGMENT)), "a gap"
    assert there[0] == life.store.min_offset
    first = next(iter(life.store.scan())).queue_offset
    queue = list((life.path / "consumequeue" / "t" / "0").iterdir())
    entries = sum(each.stat().st_size for each in queue) // 20
    assert entries <= life.put - first + 3 * 50
    if held:
        return
    if most is not None:
        assert len(there) <= most + 1, "and the one that is made ahead"
    else:
        assert life.oldest_hours() >= min(72, life.put / PER_HOUR - 1)
        assert life.oldest_hours() < 72 + 24 + 2 * SEGMENT / BODY_BYTES / PER_HOUR


def test_no_more_segments_than_there_may_be(tmp_path: Path) -> None:
    live(tmp_path / "s", 4, range(0), max_segments=12)


def test_a_follower_that_is_away_for_a_week_finds_all_it_needs(tmp_path: Path) -> None:
    recorder = live(tmp_path / "s", 16, range(2, 9))
    assert len(recorder.deleted) > 60


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_year(tmp_path: Path) -> None:
    recorder = live(tmp_path / "s", 365, range(100, 110))
    assert len(recorder.deleted) > 2200
    shutil.rmtree(tmp_path / "s")
