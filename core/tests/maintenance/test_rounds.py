"""Rounds by the clock, and the state of the disks."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from core.tests.maintenance.support import FixedWatcher, Keeping, MaintenancePlugin, fill
from core.tests.store.support import SEGMENT, segments
from lakelog import Message, PutRefused, PutStatus
from lakelog.arguments import LONGEST_MS
from lakelog.errors import SettingsError, StoreFailed
from lakelog.hooks import Clock, DeletionRate, DiskReport, DiskState
from lakelog.maintenance.planning import SegmentInfos
from lakelog_testing.crash.opener import owned_by
from tests.support.waiting import until

WATCHED = {"disk_watcher": "mine-too"}
ROUNDS = {"maintenance": {"first_round_ms": 60_000, "interval_ms": 10_000}}


def test_the_first_round_comes_after_a_minute_then_every_ten_seconds(tmp_path: Path) -> None:
    plugin = MaintenancePlugin(Keeping(keep=99))
    with plugin.open(tmp_path, **ROUNDS):
        rounds = []
        for seconds in (59, 1, 9, 1, 10, 25):
            plugin.clock.advance_and_settle(seconds * 1000)
            rounds.append(len(plugin.cleaner.asked))
        assert rounds == [0, 1, 1, 2, 3, 5]
        assert not plugin.cleaner.asked[-1][1].manual


def test_a_round_deletes_one_batch_with_pauses(tmp_path: Path) -> None:
    plugin = MaintenancePlugin(Keeping(pace=DeletionRate(batch_max=2, interval_ms=100)))
    with plugin.filled(tmp_path, 300, **ROUNDS):
        every = [int(each.name) for each in segments(tmp_path)]
        plugin.clock.advance_and_settle(60_000)
        assert plugin.deleted == every[:1]
        plugin.clock.advance_and_settle(99)
        assert plugin.deleted == every[:1]
        plugin.clock.advance_and_settle(1)
        assert plugin.deleted == every[:2]
        plugin.clock.advance_and_settle(9_999)
        assert plugin.deleted == every[:2]
        plugin.clock.advance_and_settle(200)
        assert plugin.deleted == every[:4]


def test_a_close_ends_a_pause_at_once(tmp_path: Path) -> None:
    plugin = MaintenancePlugin(
        Keeping(keep=99, pace=DeletionRate(interval_ms=3_600_000)), clock=Clock()
    )
    store = plugin.open(tmp_path, maintenance={"first_round_ms": 0, "interval_ms": 10})
    fill(store, 100)
    plugin.cleaner.keep = 0  # only now, so that one round has several to delete
    until(lambda: plugin.deleted)
    begun = time.monotonic()
    store.close()
    assert time.monotonic() - begun < 60
    assert len(plugin.deleted) == 1
    assert not [each for each in threading.enumerate() if each.name == "lakelog-maintenance"]


def test_a_round_that_fails_is_told_and_the_next_one_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Keeping):
        def choose(self, segments: Any, situation: Any) -> Any:
            if not self.asked:
                super().choose(segments, situation)
                raise RuntimeError("no idea")
            return super().choose(segments, situation)

    plugin = MaintenancePlugin(Failing())
    with plugin.filled(tmp_path, 100, **ROUNDS):
        plugin.clock.advance_and_settle(60_000)
        assert not plugin.deleted
        assert "a round of maintenance failed" in caplog.text
        plugin.clock.advance_and_settle(10_000)
        assert plugin.deleted


# --- disks ---


def test_the_longest_wait_is_a_long_wait(tmp_path: Path) -> None:
    plugin = MaintenancePlugin(clock=Clock())
    with plugin.open(tmp_path, maintenance={"first_round_ms": LONGEST_MS}):
        time.sleep(0.05)
        assert [each for each in threading.enumerate() if each.name == "lakelog-maintenance"]


def test_a_full_disk_stops_puts_until_the_watcher_says_so(tmp_path: Path) -> None:
    plugin = MaintenancePlugin()
    with plugin.open(tmp_path, cleaner=None, **WATCHED, **ROUNDS) as store:
        assert len(plugin.watcher.asked) == 1
        store.put(Message("t", b""))
        for state, writable in [
            (DiskState.CLEAN, True),
            (DiskState.CLEAN_FORCIBLY, True),
            (DiskState.STOP_WRITING, False),
            (DiskState.STOP_WRITING, False),
            (DiskState.CLEAN_FORCIBLY, True),
            (DiskState.OK, True),
        ]:
            plugin.watcher.state, plugin.watcher.reason = state, "0.91 of /data is used"
            plugin.clock.advance_and_settle(60_000)
            assert store.is_writable is writable
            if writable:
                store.put(Message("t", b""))
                continue
            for put in (
                lambda: store.put(Message("t", b"")),
                lambda: store.put_batch([Message("t", b"")]),
                lambda: store.put_async(Message("t", b"")).result(),
            ):
                with pytest.raises(PutRefused, match=r"too full .*0.91 of /data is used") as caught:
                    put()
                assert caught.value.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert plugin.pressure == [
            DiskState.CLEAN,
            DiskState.CLEAN_FORCIBLY,
            DiskState.STOP_WRITING,
            DiskState.CLEAN_FORCIBLY,
            DiskState.OK,
        ]
        assert plugin.watcher.asked[0][0] == tmp_path / "commitlog"
        assert tmp_path in plugin.watcher.asked[0]


def test_a_person_may_ask_at_once(tmp_path: Path) -> None:
    plugin = MaintenancePlugin(watcher=FixedWatcher(DiskState.STOP_WRITING, "full"))
    with plugin.open(tmp_path, **WATCHED) as store:
        with pytest.raises(PutRefused, match="too full"):  # from the first one on
            store.put(Message("t", b""))
        report = store.disk()
        assert report is not None
        assert report.state is DiskState.STOP_WRITING
        assert not store.is_writable
        with plugin.open(tmp_path, mode="read", **WATCHED) as reader:
            assert reader.disk() == report
            assert not reader.is_writable
        plugin.watcher.state = DiskState.OK
        store.disk()
        store.put(Message("t", b""))


def test_a_close_is_no_pause_that_could_end(tmp_path: Path) -> None:
    plugin = MaintenancePlugin(watcher=FixedWatcher(DiskState.STOP_WRITING, "full"))
    store = plugin.open(tmp_path, **WATCHED)
    store.disk()
    health = owned_by(store).health
    store.close()
    health.unpause()
    with pytest.raises(PutRefused, match="closed"):
        store.put(Message("t", b""))


def test_what_was_deleted_may_open_the_store_at_once(tmp_path: Path) -> None:
    class Roomy(FixedWatcher):
        def observe(self, paths: Sequence[Path]) -> DiskReport:
            full = self.asked and not plugin.deleted  # not yet while it opens
            self.state = DiskState.STOP_WRITING if full else DiskState.OK
            return super().observe(paths)

    plugin = MaintenancePlugin(watcher=Roomy(reason="full"))
    with plugin.filled(tmp_path, 100, **WATCHED, **ROUNDS) as store:
        plugin.clock.advance_and_settle(60_000)
        assert plugin.cleaner.asked[0][1].disk is DiskState.STOP_WRITING
        assert plugin.cleaner.asked[0][1].free_bytes == 10
        assert plugin.pressure == [DiskState.STOP_WRITING, DiskState.OK]
        assert store.is_writable


def test_no_segment_is_made_ahead_that_would_cross_the_line(tmp_path: Path) -> None:
    plugin = MaintenancePlugin()
    with plugin.filled(tmp_path, 10, preallocate=True, **WATCHED) as store:
        until(lambda: len(segments(tmp_path)) == 2)
        plugin.watcher.keep_free_bytes = 1 << 60
        store.disk()
        fill(store, 160)
        assert store.max_offset > 3 * SEGMENT
        last = int(segments(tmp_path)[-1].name)
        assert last <= store.max_offset < last + SEGMENT


def test_a_watcher_that_fails_does_not_keep_the_cleaner_from_its_work(tmp_path: Path) -> None:
    class Failing(FixedWatcher):
        def observe(self, paths: Sequence[Path]) -> DiskReport:
            raise OSError("no such device")

    plugin = MaintenancePlugin(watcher=Failing())
    with plugin.filled(tmp_path, 100, **WATCHED, **ROUNDS):
        plugin.clock.advance_and_settle(60_000)
        assert plugin.deleted
        assert plugin.cleaner.asked[0][1].disk is DiskState.OK


def test_without_cleaner_and_watcher_there_is_no_thread_and_nothing_to_ask(tmp_path: Path) -> None:
    before = threading.active_count()
    plugin = MaintenancePlugin()
    with plugin.open(tmp_path, **WATCHED):
        threads = threading.active_count()
    assert threading.active_count() == before
    with plugin.open(tmp_path, cleaner=None) as store:
        assert threading.active_count() < threads
        assert store.disk() is None
        assert store._current.now().maintenance.delete_expired() is None


def test_a_store_that_failed_changes_nothing(tmp_path: Path) -> None:
    plugin = MaintenancePlugin()
    store = plugin.open(tmp_path, **ROUNDS)
    fill(store, 100)
    owned_by(store).health.fail(OSError("the disk is gone"))
    plugin.clock.advance_and_settle(60_000)
    assert plugin.deleted == []
    with pytest.raises(StoreFailed):
        store.close()


@pytest.mark.parametrize(
    ("key", "value"),
    [("first_round_ms", -1), ("interval_ms", 0), ("override_pins", 3)],
)
def test_bad_settings_are_named(tmp_path: Path, key: str, value: object) -> None:
    with pytest.raises(SettingsError, match=f"maintenance.{key}"):
        MaintenancePlugin().open(tmp_path / "s", maintenance={key: value})
    assert not (tmp_path / "s").exists()


def test_a_segment_without_a_whole_record_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    find = SegmentInfos._find

    def noted(infos: SegmentInfos, start: int) -> int | None:
        looked.append(start)
        return None if start == 0 else find(infos, start)

    monkeypatch.setattr(SegmentInfos, "_find", noted)
    plugin = MaintenancePlugin(Keeping(keep=99))
    with plugin.filled(tmp_path) as store:
        for _ in range(3):
            store.delete_expired()
        first, second = plugin.cleaner.asked[-1][0][:2]
        assert first.last_timestamp_ms == second.last_timestamp_ms
    assert len(looked) > 2
    assert len(looked) == len(set(looked))
