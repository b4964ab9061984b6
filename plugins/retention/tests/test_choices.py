"""Properties of every choice, for any log, settings and situation."""

from __future__ import annotations

from itertools import accumulate

import attrs
from hypothesis import given
from hypothesis import strategies as st

from lakelog.interfaces import CleaningContext, DiskState, SegmentInfo
from lakelog_retention.cleaner import Retention
from lakelog_retention.settings import RetentionSettings
from plugins.retention.tests.support import HOUR_MS, NOON_MS

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
