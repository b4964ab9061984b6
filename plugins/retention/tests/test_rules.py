"""Each rule of ``retention``, with its reason; and properties of every choice."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.hooks import CleaningContext, DiskState, SegmentInfo
from lakelog_retention.cleaner import KeepForever, Retention
from lakelog_retention.settings import RetentionSettings

HOUR_MS = 3_600_000
SEGMENT_BYTES = 1 << 20
NOON_MS = int(datetime(2026, 3, 10, 12, 30, tzinfo=UTC).timestamp() * 1000)


def at_hour(hour: int, minute: int = 0) -> int:
    """A time on that day, in ms since 1970."""
    return NOON_MS + (hour - 12) * HOUR_MS + (minute - 30) * 60_000


def retention(**settings: Any) -> Retention:
    """A cleaner with hours in UTC."""
    return Retention(RetentionSettings(**{"time_zone": "UTC", **settings}))


def aged(*hours: float, now_ms: int = NOON_MS) -> list[SegmentInfo]:
    """Segments whose last messages have the given ages."""
    return [
        SegmentInfo(at * SEGMENT_BYTES, SEGMENT_BYTES, int(now_ms - age * HOUR_MS))
        for at, age in enumerate(hours)
    ]


def reasons(
    cleaner: Retention, segments: Sequence[SegmentInfo], now_ms: int = NOON_MS, **situation: Any
) -> list[str]:
    """The reasons of the deletions; checks that these are the oldest segments."""
    chosen = cleaner.choose(segments, CleaningContext(now_ms, **situation))
    front = [segment.start_offset for segment in segments[: len(chosen)]]
    assert [each.start_offset for each in chosen] == front
    return [each.reason for each in chosen]


def test_expired_segments_go_in_their_hour() -> None:
    now = at_hour(4, 59)
    found = reasons(retention(), aged(100, 72.06, 72, 71.9, now_ms=now), now)
    hour = "hour 04 is one to delete in (delete_when = 04)"
    assert found == [
        f"its last message is {age} h old and kept for 72 h; {hour}" for age in (100, 72, 72)
    ]


@pytest.mark.parametrize(
    ("settings", "hours"),
    [({}, [4]), ({"delete_when": "04;16"}, [4, 16]), ({"time_zone": "Asia/Kolkata"}, [23])],
    ids=["usual", "several", "zone"],
)
def test_and_in_no_other(settings: dict[str, str], hours: list[int]) -> None:
    cleaner = retention(**settings)
    assert [hour for hour in range(24) if reasons(cleaner, aged(200), at_hour(hour))] == hours


OLD = "its last message is 80 h old and kept for 72 h; "
FORCED = "it is the oldest, though not expired, and the disk is "


def test_nor_does_a_disk_above_its_limit() -> None:
    usage: dict[str, Any] = {"used_ratio": 0.876, "free_bytes": 3 << 29}
    found = reasons(retention(), aged(80, 20), disk=DiskState.CLEAN, **usage)
    assert found == [f"{OLD}the disk is above its limit (the log's: 87.6% used, 1.5 GiB free)"]


@pytest.mark.parametrize(
    ("settings", "ages", "situation", "said"),
    [
        ({}, (80, 20), {"manual": True}, [f"{OLD}a person asked for it"]),
        (
            {},
            (80, 20),
            {"disk": DiskState.CLEAN_FORCIBLY},
            [f"{OLD}the disk is nearly full", f"{FORCED}nearly full"],
        ),
        ({}, (20,), {"disk": DiskState.STOP_WRITING}, [f"{FORCED}so full that puts are refused"]),
        ({"clean_forcibly": False}, (20,), {"disk": DiskState.CLEAN_FORCIBLY}, []),
        ({"clean_forcibly": False}, (20,), {"disk": DiskState.STOP_WRITING}, []),
        (
            {"max_segments": 3},
            (5, 4, 3, 2),
            {},
            [f"the log has {count} segments, and max_segments is 3" for count in (5, 4)],
        ),
        ({"max_segments": 3}, (2, 1), {}, []),
        (
            {"max_segments": 2},
            (80, 70),
            {"manual": True},
            [f"{OLD}a person asked for it"],
        ),
        ({}, (-50, 90), {"manual": True}, []),
        ({"max_segments": 2}, (-50, 90), {}, ["the log has 3 segments, and max_segments is 2"]),
    ],
    ids=[
        *("person", "nearly full", "so full", "not forcibly", "not even then", "segments", "few"),
        *("age first", "future", "future and too many"),
    ],
)
def test_what_goes_and_why(
    settings: dict[str, Any], ages: tuple[float, ...], situation: dict[str, Any], said: list[str]
) -> None:
    assert reasons(retention(**settings), aged(*ages), **situation) == said


def test_so_many_bytes_and_no_more() -> None:
    cleaner = retention(max_total_bytes=3 * SEGMENT_BYTES - 1)
    found = reasons(cleaner, aged(5, 4, 3))
    assert found == [
        f"the log has {bytes_} bytes, and max_total_bytes is {3 * SEGMENT_BYTES - 1}"
        for bytes_ in (4 * SEGMENT_BYTES, 3 * SEGMENT_BYTES)
    ]
    assert reasons(cleaner, aged(3)) == []


@pytest.mark.parametrize("state", DiskState)
def test_kept_for_ever(state: DiskState) -> None:
    situation = CleaningContext(NOON_MS, state, manual=True)
    assert list(KeepForever().choose(aged(10_000), situation)) == []


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
        SegmentInfo(start, size, draw(ages), draw(names))
        for start, size in zip(starts, sizes, strict=False)
    ]


@given(settings_of, logs(), situations)
def test_any_choice(
    settings: RetentionSettings, log: list[SegmentInfo], situation: CleaningContext
) -> None:
    """A front of at most a batch, each for a reason that is so; what stays has none to go."""
    cleaner = Retention(settings)
    chosen = cleaner.choose(log, situation)
    went = log[: len(chosen)]
    assert [each.start_offset for each in chosen] == [each.start_offset for each in went]
    assert len(chosen) <= settings.delete_files_batch_max
    occasion = _occasion(settings, situation)
    reserved_ms = settings.file_reserved_hours * HOUR_MS
    for at, (segment, each) in enumerate(zip(went, chosen, strict=True)):
        expired = situation.now_ms - segment.last_timestamp_ms >= reserved_ms
        assert expired == each.reason.startswith("its last message") or not occasion
        if "max_segments" in each.reason:
            assert len(log) - at + 1 > (settings.max_segments or 0)
        if "not expired" in each.reason:
            assert settings.clean_forcibly
            assert situation.disk in (DiskState.CLEAN_FORCIBLY, DiskState.STOP_WRITING)
    bare = [each._replace(pinned_by=()) for each in log]
    assert cleaner.choose(bare, situation) == chosen, "pins are the store's affair"
    left = list(log)
    while more := cleaner.choose(left, situation):
        left = left[len(more) :]
    if settings.max_segments is not None:
        assert len(left) < max(settings.max_segments, 1) or not left
    if settings.max_total_bytes is not None and left:
        sealed = sum(each.size_bytes for each in left)
        assert sealed + left[-1].size_bytes <= settings.max_total_bytes
    if left and occasion:
        assert situation.now_ms - left[0].last_timestamp_ms < reserved_ms


def _occasion(settings: RetentionSettings, situation: CleaningContext) -> bool:
    hour = situation.now_ms // HOUR_MS % 24
    return situation.manual or situation.disk is not DiskState.OK or hour in settings.hours
