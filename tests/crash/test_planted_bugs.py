"""Bugs of the kinds that stores have had, each planted in turn: the simulator finds them all."""

from __future__ import annotations

import re
from typing import Any, Final

import attrs
import pytest

from lakelog_testing.crash import CrashPlan, simulate
from tests.crash.planted import (
    MOST_IMAGES,
    Plant,
    abort_is_not_durable,
    abort_removed_before_data_is_synced,
    acknowledge_before_sync,
    body_only_crc,
    buffer_given_back_at_a_late_seal,
    checkpoint_ahead_of_data,
    checkpoint_not_lowered,
    end_in_the_page_of_a_dead_process_is_believed,
    flushed_read_after_the_sync,
    gap_served_as_data,
    index_vouched_for_before_its_sync,
    no_directory_sync_after_create,
    nothing_is_set_aside,
    position_counted_before_commit,
    put_answered_by_a_sync_that_began_before,
    put_during_a_sync_taken_for_synced,
    quarantine_is_not_durable,
    queue_ahead_of_log,
    queues_not_completed,
    queues_trusted_after_a_kill,
    reads_see_what_is_not_durable,
    recovery_syncs_nothing_that_it_read,
    rename_without_sync_of_content,
    rest_of_a_block_taken_for_written,
    retry_after_eio,
    sealed_segment_not_committed,
    sync_answers_all_who_wait,
    sync_of_the_newest_segment_only,
    table_of_a_dead_process_is_believed,
    tail_not_zeroed_after_recovery,
    time_of_a_sync_read_behind_it,
    topic_removed_without_tombstone,
)


def planned(**more: Any) -> CrashPlan:
    return CrashPlan(**{"deletions": False, "interleave": False, **more})


def rolled(writer: str, flush: str, **more: Any) -> CrashPlan:
    """For bugs that need a put, or a roll, in the middle of a commit or a sync."""
    return CrashPlan(writer=writer, flush=flush, deletions=False, **more)


def twice(**more: Any) -> CrashPlan:
    """For bugs of a recovery: its crashes find them."""
    return planned(flush="none", images_per_second_crash=4, **more)


PAGE_OR_SO: Final = 3_000
"""Bodies of records that share few pages with others."""
SECTORS: Final = {"hash-index": {"slots": 8, "entries": 60}}
"""Entries of an index stand in three sectors, of which the one in the middle may be lost."""
SHORT_FILES: Final = {"consume-queue": {"file_entries": 4}}
KEYS: Final = "key .* (gives|returns)|it does not open"
QUEUES: Final = "should point to|goes over"
CUTS: Final = {"on_damage": "truncate"}
CUT_END: Final = {"on_damage": "cut-end"}
"""Else recovery refuses what the checkpoint claims, before the checker looks at it."""
LOST: Final = "messages that were promised are lost|there is no segment"
AHEAD: Final = "the checkpoint claims"
BUGS: Final[dict[Plant, tuple[CrashPlan, str]]] = {
    acknowledge_before_sync: (planned(flush="inline"), LOST),
    no_directory_sync_after_create: (planned(flush="inline"), f"{LOST}|{AHEAD}"),
    rename_without_sync_of_content: (planned(flush="inline"), "store.json"),
    retry_after_eio: (
        planned(flush="inline", failing_sync=True, body_bytes=PAGE_OR_SO),
        f"{LOST}|{AHEAD}",
    ),
    checkpoint_ahead_of_data: (planned(flush="inline", settings=CUT_END), AHEAD),
    tail_not_zeroed_after_recovery: (
        planned(flush="none", body_bytes=40),
        "or was gone|is not zero",
    ),
    queue_ahead_of_log: (planned(flush="none"), "points behind the log|goes over"),
    gap_served_as_data: (planned(flush="none"), "differs in"),
    sync_of_the_newest_segment_only: (
        planned(flush="inline", body_bytes=PAGE_OR_SO),
        f"{LOST}|{AHEAD}",
    ),
    abort_removed_before_data_is_synced: (
        twice(),
        "end of the log|not found|goes over|should point to|not in quarantine|"
        f"gives messages that the log has not|{AHEAD}|{LOST}",
    ),
    position_counted_before_commit: (planned(writer="staged", flush="inline"), f"{LOST}|{AHEAD}"),
    flushed_read_after_the_sync: (planned(flush="group-commit"), f"{LOST}|{AHEAD}"),
    sealed_segment_not_committed: (
        rolled("staged", "inline", points_per_run=0),
        # the number of the descriptor may be of another file by then, which gets the bytes
        f"{LOST}|Bad file descriptor|stored to, but not allocated",
    ),
    topic_removed_without_tombstone: (
        CrashPlan(flush="inline", interleave=False),
        "its tombstone is lost",
    ),
    queues_not_completed: (planned(flush="inline"), "should point to|goes over"),
    recovery_syncs_nothing_that_it_read: (twice(), f"{LOST}|{AHEAD}"),
    body_only_crc: (planned(flush="none", key_bytes=900), "differs in|number"),
    quarantine_is_not_durable: (twice(settings=CUTS), "not in quarantine"),
    nothing_is_set_aside: (planned(flush="none", settings=CUTS), "not in quarantine"),
    buffer_given_back_at_a_late_seal: (
        rolled("staged", "group-commit", points_per_run=0),
        LOST,
    ),
    rest_of_a_block_taken_for_written: (
        rolled("direct", "inline"),
        f"{LOST}|{AHEAD}|no whole records, but were durable",
    ),
    put_during_a_sync_taken_for_synced: (rolled("file", "group-commit"), f"{LOST}|{AHEAD}"),
    put_answered_by_a_sync_that_began_before: (rolled("file", "inline"), f"{LOST}|{AHEAD}"),
    sync_answers_all_who_wait: (rolled("file", "group-commit"), f"{LOST}|{AHEAD}"),
    time_of_a_sync_read_behind_it: (rolled("file", "timed"), f"{AHEAD}|claims more"),
    reads_see_what_is_not_durable: (planned(flush="inline"), LOST),
    table_of_a_dead_process_is_believed: (
        planned(flush="inline"),
        "does not open|is not found|is twice|cannot map",
    ),
    end_in_the_page_of_a_dead_process_is_believed: (rolled("file", "none"), AHEAD),
    checkpoint_not_lowered: (rolled("file", "none"), "claims more than the log has"),
    abort_is_not_durable: (planned(flush="group-commit"), "no abort file"),
    queues_trusted_after_a_kill: (twice(settings=SHORT_FILES), QUEUES),
    index_vouched_for_before_its_sync: (planned(flush="inline", steps=80, settings=SECTORS), KEYS),
}
SLOW: Final = (
    abort_removed_before_data_is_synced,
    checkpoint_not_lowered,
    end_in_the_page_of_a_dead_process_is_believed,
    flushed_read_after_the_sync,
    index_vouched_for_before_its_sync,
    quarantine_is_not_durable,
    queues_trusted_after_a_kill,
    recovery_syncs_nothing_that_it_read,
    retry_after_eio,
    time_of_a_sync_read_behind_it,
)
"""Found by many images."""
SOON_FOUND: Final = (
    acknowledge_before_sync,
    body_only_crc,
    checkpoint_ahead_of_data,
    gap_served_as_data,
    nothing_is_set_aside,
    queue_ahead_of_log,
    queues_not_completed,
    rename_without_sync_of_content,
    tail_not_zeroed_after_recovery,
    topic_removed_without_tombstone,
)
"""Found by few images; each run has some of them."""
MARKS: Final[dict[Plant, pytest.MarkDecorator]] = {
    **dict.fromkeys(SLOW, pytest.mark.slow),
    **dict.fromkeys(SOON_FOUND, pytest.mark.sample(4)),
    # its commit thread may end by a descriptor that was closed
    sealed_segment_not_committed: pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnhandledThreadExceptionWarning"
    ),
}


def check_found(plant: Plant, patch: pytest.MonkeyPatch, seed: int, **more: Any) -> None:
    plan, what = BUGS[plant]
    plant(patch)
    outcome = simulate(attrs.evolve(plan, **more), MOST_IMAGES, seed=seed)
    assert outcome.violations, f"{plant.__name__} was not found in {outcome.images} images"
    assert re.search(what, outcome.violations[0].what), outcome


@pytest.mark.parametrize(
    "plant",
    [pytest.param(each, marks=MARKS.get(each, ())) for each in BUGS],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    check_found(plant, monkeypatch, 7)
