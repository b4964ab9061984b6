"""Each rule of ``retention``, with its reason."""

from __future__ import annotations

from typing import Any

import pytest

from lakelog.interfaces import CleaningContext, DiskState
from lakelog_retention.forever import KeepForever
from plugins.retention.tests.support import (
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
