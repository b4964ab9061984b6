"""The kit for writers accepts a correct one, and finds each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.files.filesystem import RealFileSystem
from lakelog.interfaces import Writer
from lakelog_testing import FaultyFile, WriterContract
from lakelog_testing.contracts.writer import SIZE
from plugins.testing.tests import stagedwriters, writers

pytestmark = pytest.mark.both_ways


class TestSound(WriterContract):
    def make(self) -> Writer:
        return writers.Sound()


class TestSoundlyStaged(WriterContract):
    def make(self) -> Writer:
        return stagedwriters.SoundlyStaged()


class Kit(WriterContract):
    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def make(self) -> Writer:
        return self.writer


@pytest.mark.parametrize(
    ("writer", "test", "arguments"),
    [
        (writers.NotZeroCopy, "test_zero_copy_views_are_memory_of_the_file", "file"),
        (writers.NotAligned, "test_writes_that_reach_the_device_are_aligned", "file"),
        (writers.OddAlignment, "test_its_alignment_is_a_power_of_two", ""),
        (writers.Hidden, "test_others_see_what_was_committed", "file path"),
        (writers.Hidden, "test_the_first_and_the_last_byte_of_the_segment", "file path"),
        (writers.Late, "test_what_was_given_to_write_may_be_reused_afterwards", "file"),
        (writers.Late, "test_what_is_written_can_be_viewed_at_once", "file"),
        (writers.Reusing, "test_a_view_stays_right_when_more_is_written", "file"),
        (writers.Growing, "test_the_file_keeps_its_length_and_is_zero_behind", "file path"),
        (writers.Writable, "test_views_are_flat_runs_of_bytes_that_nobody_can_change", "file"),
        (writers.Released, "test_a_view_stays_right_after_close_and_unlink", "file path"),
        (writers.Leaking, "test_close_lets_go_of_the_file", "file path"),
        (writers.NeverSyncing, "test_a_sync_reaches_the_disk", "file"),
        (writers.Swallowing, "test_a_failed_sync_is_an_os_error", "file"),
        (
            writers.Swallowing,
            "test_a_failed_write_is_an_os_error_by_the_sync",
            "file",
        ),
        (writers.Forgetting, "test_records_that_were_there_stay", "file path"),
        (stagedwriters.OneBuffer, "test_views_of_earlier_segments_stay_right", "tmp_path"),
        (stagedwriters.Uncleaned, "test_nothing_of_earlier_segments_is_seen", "tmp_path"),
        (stagedwriters.WholeBlocksOnly, "test_many_small_commits", "file path"),
        (stagedwriters.Overlong, "test_many_small_commits", "file path"),
        (stagedwriters.Unaligned, "test_writes_that_reach_the_device_are_aligned", "file"),
        (stagedwriters.LateEnd, "test_what_comes_during_a_commit_is_not_counted", "file path"),
        (stagedwriters.TryingAgain, "test_a_failed_commit_is_an_os_error_for_good", "file"),
        (stagedwriters.LettingGo, "test_a_full_segment_is_read_on", "file path"),
        (
            stagedwriters.LettingGoEarly,
            "test_a_roll_in_the_middle_of_a_commit_loses_nothing",
            "file path",
        ),
        (
            stagedwriters.OldOnlyInFile,
            "test_views_reach_over_the_end_of_what_was_committed",
            "file",
        ),
        (writers.MapsAll, "test_nothing_is_touched_that_has_no_blocks", "file path"),
        (writers.Zeroing, "test_nothing_is_touched_that_has_no_blocks", "file path"),
        (object, "test_it_has_the_methods_of_its_kind", "file"),
    ],
)
def test_each_mistake_is_found(
    tmp_path: Path, writer: type[Writer], test: str, arguments: str
) -> None:
    path = tmp_path / "0"
    file = FaultyFile(RealFileSystem().open(path, write=True, create=True))
    file.truncate(SIZE)
    given = {"file": file, "path": path, "tmp_path": tmp_path}
    with pytest.raises((AssertionError, ValueError, pytest.fail.Exception)):
        getattr(Kit(writer()), test)(*(given[name] for name in arguments.split()))
