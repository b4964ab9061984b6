"""Each rule of ``retention``, with its reason; and properties of every choice."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.interfaces import CleaningContext, DiskState, SegmentInfo
from lakelog_retention.cleaner import Retention
from lakelog_retention.forever import KeepForever
from lakelog_retention.settings import RetentionSettings
from plugins.retention.tests.support import (
    HOUR_MS,
    NOON_MS,
    SEGMENT_BYTES,
    aged,
    at_hour,
    reasons,
    retention,
)

FULL: dict[str, Any] = {"used_ratio": 0.876, "free_bytes": 3 << 29}


def test_expired_segments_go_in_their_hour() -> None:
    now = at_hour(4, 59)
    found = reasons(retention(), aged(100, 72.06, 72, 71.9, now_ms=now), now)
    hour = "hour 04 is one to delete in (delete_when = 04)"
    assert found == [
        f"its last message is 100 h old and kept for 72 h; {hour}",
        f"its last message is 72 h old and kept for 72 h; {hour}",
        f"its last message is 72 h old and kept for 72 h; {hour}",
    ]


@pytest.mark.parametrize("now", [at_hour(3, 59), at_hour(5), NOON_MS])
def test_and_in_no_other(now: int) -> None:
    assert reasons(retention(), aged(1000, 900, now_ms=now), now) == []


def test_there_may_be_several_hours() -> None:
    cleaner = retention(delete_when="04;16")
    hours = [hour for hour in range(24) if reasons(cleaner, aged(200), at_hour(hour))]
    assert hours == [4, 16]
    assert "(delete_when = 04;16)" in reasons(cleaner, aged(200), at_hour(16))[0]


def test_hours_are_those_of_the_time_zone() -> None:
    cleaner = retention(time_zone="Asia/Kolkata")
    hours = [hour for hour in range(24) if reasons(cleaner, aged(200), at_hour(hour))]
    assert hours == [23], "04:30 there is 23:00 of the day before in UTC"


def test_a_person_need_not_wait_for_the_hour() -> None:
    found = reasons(retention(), aged(80.55, 20), manual=True)
    assert found == [
        "its last message is 80.5 h old and kept for 72 h; a person asked for it",
    ]


def test_nor_does_a_disk_above_its_limit() -> None:
    found = reasons(retention(), aged(80, 20), disk=DiskState.CLEAN, **FULL)
    assert found == [
        "its last message is 80 h old and kept for 72 h; "
        "the disk is above its limit (the log's: 87.6% used, 1.5 GiB free)",
    ]


def test_a_disk_that_is_nearly_full_takes_what_is_not_expired() -> None:
    found = reasons(retention(), aged(80, 20), disk=DiskState.CLEAN_FORCIBLY)
    assert found == [
        "its last message is 80 h old and kept for 72 h; the disk is nearly full",
        "it is the oldest, though not expired, and the disk is nearly full",
    ]


def test_while_puts_are_refused_readers_are_not_waited_for() -> None:
    found = reasons(retention(), aged(20), disk=DiskState.STOP_WRITING)
    assert found == [
        "it is the oldest, though not expired, and the disk is so full that puts are refused"
    ]


@pytest.mark.parametrize("state", [DiskState.CLEAN_FORCIBLY, DiskState.STOP_WRITING])
def test_unless_that_is_not_wanted(state: DiskState) -> None:
    assert len(reasons(retention(clean_forcibly=False), aged(80, 20), disk=state)) == 1


def test_so_many_segments_and_no_more() -> None:
    found = reasons(retention(max_segments=3), aged(5, 4, 3, 2))
    assert found == [
        "the log has 5 segments, and max_segments is 3",
        "the log has 4 segments, and max_segments is 3",
    ]
    assert reasons(retention(max_segments=3), aged(2, 1)) == []
    assert len(reasons(retention(max_segments=1), aged(2, 1))) == 2


def test_so_many_bytes_and_no_more() -> None:
    cleaner = retention(max_total_bytes=3 * SEGMENT_BYTES - 1)
    found = reasons(cleaner, aged(5, 4, 3))
    assert found == [
        f"the log has {bytes_} bytes, and max_total_bytes is {3 * SEGMENT_BYTES - 1}"
        for bytes_ in (4 * SEGMENT_BYTES, 3 * SEGMENT_BYTES)
    ]
    assert reasons(cleaner, aged(3)) == []


def test_age_is_the_first_reason_that_is_given() -> None:
    found = reasons(retention(max_segments=1), aged(80, 70), manual=True)
    assert [reason.split()[0] for reason in found] == ["its", "the"]


def test_a_last_message_from_the_future_keeps_its_segment_but_not_from_the_limits() -> None:
    assert reasons(retention(), aged(-50, 90), manual=True) == []
    assert len(reasons(retention(max_segments=2), aged(-50, 90))) == 1


@pytest.mark.parametrize("state", DiskState)
def test_kept_for_ever(state: DiskState) -> None:
    assert (
        list(KeepForever().choose(aged(10_000), CleaningContext(NOON_MS, state, manual=True))) == []
    )


def test_what_the_store_is_told_of_the_pace() -> None:
    cleaner = retention(
        delete_files_batch_max=2,
        delete_interval_ms=3,
        destroy_forcibly_after_ms=4,
        remove_empty_queues=True,
    )
    pace = cleaner.pace
    assert (pace.batch_max, pace.interval_ms, pace.destroy_forcibly_after_ms) == (2, 3, 4)
    assert cleaner.remove_empty_queues
    usual = retention().pace
    assert (usual.batch_max, usual.interval_ms, usual.destroy_forcibly_after_ms) == (
        10,
        100,
        120_000,
    )


# --- properties of every choice, for any log, settings and situation ---


limits = st.none() | st.integers(1, 20)
settings_of = st.builds(
    RetentionSettings,
    file_reserved_hours=st.integers(0, 100),
    delete_when=st.sampled_from(["00", "04;16", "12", "7; 12"]),
    time_zone=st.just("UTC"),
    clean_forcibly=st.booleans(),
    max_segments=limits,
    max_total_bytes=limits.map(lambda most: most and most * 1000),
    delete_files_batch_max=st.integers(1, 12),
)
situations = st.builds(
    CleaningContext,
    now_ms=st.integers(0, 48).map(lambda hours: NOON_MS + hours * HOUR_MS),
    disk=st.sampled_from(DiskState),
    manual=st.booleans(),
)


@st.composite
def logs(draw: st.DrawFn) -> list[SegmentInfo]:
    """Consecutive segments, with times in any order."""
    sizes = draw(st.lists(st.integers(1, 2000), max_size=25))
    starts = accumulate(sizes, initial=draw(st.sampled_from([0, 1 << 40])))
    ages = st.integers(-5, 150).map(lambda hours: NOON_MS - hours * HOUR_MS)
    names = st.sampled_from([(), ("lake",)])
    return [
        SegmentInfo(start, size, draw(ages), draw(st.integers(0, 2)), draw(names))
        for start, size in zip(starts, sizes, strict=False)
    ]


@given(settings_of, logs(), situations)
def test_a_front_of_at_most_a_batch_each_with_a_reason_that_is_so(
    settings: RetentionSettings, log: list[SegmentInfo], situation: CleaningContext
) -> None:
    chosen = Retention(settings).choose(log, situation)
    went = log[: len(chosen)]
    assert [each.start_offset for each in chosen] == [each.start_offset for each in went]
    assert len(chosen) <= settings.delete_files_batch_max
    for at, (segment, each) in enumerate(zip(went, chosen, strict=True)):
        age_ms = situation.now_ms - segment.last_timestamp_ms
        expired = age_ms >= settings.file_reserved_hours * HOUR_MS
        assert expired == each.reason.startswith("its last message") or not _occasion(
            settings, situation
        )
        if "max_segments" in each.reason:
            assert len(log) - at + 1 > (settings.max_segments or 0)
        if "not expired" in each.reason:
            assert settings.clean_forcibly
            assert situation.disk in (DiskState.CLEAN_FORCIBLY, DiskState.STOP_WRITING)


def _occasion(settings: RetentionSettings, situation: CleaningContext) -> bool:
    hour = situation.now_ms // HOUR_MS % 24
    return situation.manual or situation.disk is not DiskState.OK or hour in settings.hours


@given(settings_of, logs(), situations)
def test_what_stays_has_no_reason_to_go(
    settings: RetentionSettings, log: list[SegmentInfo], situation: CleaningContext
) -> None:
    """Repeat rounds until nothing is deleted: then the limits hold."""
    cleaner = Retention(settings)
    left = list(log)
    while chosen := cleaner.choose(left, situation):
        left = left[len(chosen) :]
    if settings.max_segments is not None:
        assert len(left) < max(settings.max_segments, 1) or not left
    if settings.max_total_bytes is not None and left:
        sealed = sum(each.size_bytes for each in left)
        assert sealed + left[-1].size_bytes <= settings.max_total_bytes
    if left and _occasion(settings, situation):
        age_ms = situation.now_ms - left[0].last_timestamp_ms
        assert age_ms < settings.file_reserved_hours * HOUR_MS


@given(settings_of, logs(), situations)
def test_pins_and_readers_are_the_stores_affair(
    settings: RetentionSettings, log: list[SegmentInfo], situation: CleaningContext
) -> None:
    bare = [attrs.evolve(each, readers=0, pinned_by=()) for each in log]
    cleaner = Retention(settings)
    assert cleaner.choose(bare, situation) == cleaner.choose(log, situation)
