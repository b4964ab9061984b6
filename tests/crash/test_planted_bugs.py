"""Bugs of the kinds that stores have had, each planted in turn: the simulator finds them all."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from lakelog.files.shared.group_sync import FLUSHED, MARKED, GroupSync
from lakelog.files.shared.ownership import remove_abort
from lakelog.interfaces import Outcome
from lakelog.log.log_files import LogFiles
from lakelog.log.segments import Segments
from lakelog.registry.builtin.filewriter import FileSegmentWriter
from lakelog.registry.builtin.flush import InlineFlush
from lakelog.store.owner import OwnedStore
from lakelog_direct.staged import StagedSegmentWriter
from lakelog_interfaces.checkpoint import CheckpointKeeper, StoreCheckpoint
from lakelog_queues.dispatching.consumequeues import ConsumeQueues
from lakelog_queues.files.simplequeue import SimpleQueue
from lakelog_testing.crash import CrashPlan, SimFileSystem, simulate

MOST_IMAGES: Final = 10_000
"""It stops at the first that breaks a promise; what threads do differs from run to run."""
Plant: TypeAlias = Callable[[pytest.MonkeyPatch], None]


def nothing(*given: object, **named: object) -> None:
    """Done by whoever should do something."""


def yes(*given: object) -> bool:
    """Said by whoever should look first."""
    return True


def none_kept(*given: object) -> list[object]:
    """Said by whoever should keep copies."""
    return []


def acknowledge_before_sync(patch: pytest.MonkeyPatch) -> None:
    """It syncs soon, as for a put that does not wait."""
    real = InlineFlush.submit

    def submit(self: InlineFlush, end_offset: int, wait: bool) -> Outcome:
        return real(self, end_offset, False)

    patch.setattr(InlineFlush, "submit", submit)


def no_directory_sync_after_create(patch: pytest.MonkeyPatch) -> None:
    real = SimFileSystem.sync_dir

    def sync_dir(self: SimFileSystem, path: Path) -> None:
        if path.name != "commitlog":
            real(self, path)

    patch.setattr(SimFileSystem, "sync_dir", sync_dir)


def rename_without_sync_of_content(patch: pytest.MonkeyPatch) -> None:
    real = SimFileSystem.sync_contents

    def sync_contents(self: SimFileSystem, path: Path, contents: Any) -> None:
        if path.suffix != ".tmp":
            real(self, path, contents)

    patch.setattr(SimFileSystem, "sync_contents", sync_contents)


def retry_after_eio(patch: pytest.MonkeyPatch) -> None:
    def sync(self: Any) -> None:
        try:
            self._file.sync()
        except OSError:
            self._file.sync()

    patch.setattr(FileSegmentWriter, "sync", sync)


def checkpoint_ahead_of_data(patch: pytest.MonkeyPatch) -> None:
    keepers: list[CheckpointKeeper] = []
    ask, real = CheckpointKeeper.ask, LogFiles.sync

    def asked(self: CheckpointKeeper, source: Any) -> None:
        keepers.append(self)
        ask(self, source)

    def sync(self: LogFiles, start: int, end: int) -> None:
        keepers[-1].advance(StoreCheckpoint(confirm_offset=end))
        real(self, start, end)

    patch.setattr(CheckpointKeeper, "ask", asked)
    patch.setattr(LogFiles, "sync", sync)


def tail_not_zeroed_after_recovery(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("lakelog.recovery.apply._wipe", nothing)


def queue_ahead_of_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimpleQueue, "truncate", nothing)


def gap_served_as_data(patch: pytest.MonkeyPatch) -> None:
    from lakelog_format.codec import frame, run

    patch.setattr(run, "current", nothing)
    patch.setattr(frame, "verify_checksums", nothing)
    patch.setattr(frame, "is_sealed", yes)


def sealed_segment_not_committed(patch: pytest.MonkeyPatch) -> None:
    """Its last bytes came after the commit that went before the sync."""

    def sync(self: Any, _start: int, _end: int) -> None:
        *sealed, active = list(self._unsynced)
        for each in sealed:
            each.writer.sync()
        active.writer.sync()
        for each in sealed:
            self._retire(each)

    patch.setattr(Segments, "sync", sync)


def sync_of_the_newest_segment_only(patch: pytest.MonkeyPatch) -> None:
    def sync(self: Any, _start: int, _end: int) -> None:
        *sealed, active = list(self._unsynced)
        active.writer.sync()
        for each in sealed:
            each.commit()
            self._retire(each)

    patch.setattr(Segments, "sync", sync)


def abort_removed_before_data_is_synced(patch: pytest.MonkeyPatch) -> None:
    real = OwnedStore.close

    def close(self: OwnedStore) -> None:
        remove_abort(self.directory.files, self.directory.path)
        patch.setattr("lakelog.store.owner.remove_abort", nothing)
        real(self)

    patch.setattr(OwnedStore, "close", close)


def position_counted_before_commit(patch: pytest.MonkeyPatch) -> None:
    def put_through(self: Any, end: int) -> None:
        late, self._late = getattr(self, "_late", self._committed), self._committed
        self._file.write_at(late, self._taken.view[late : self._committed])
        self._committed = end

    patch.setattr(StagedSegmentWriter, "_put_through", put_through)


def flushed_read_after_the_sync(patch: pytest.MonkeyPatch) -> None:
    def sync(self: GroupSync) -> None:
        self._log.sync(self.flushed, self._log.end_to_sync())
        self._words[MARKED] = self._words[FLUSHED] = self._log.end_to_sync()

    patch.setattr(GroupSync, "_sync", sync)


def topic_removed_without_tombstone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("lakelog_queues.dispatching.tombstones.add_tombstone", nothing)


def queues_not_completed(patch: pytest.MonkeyPatch) -> None:
    real = ConsumeQueues.resume

    def resume(self: ConsumeQueues, minimum: int, end: int) -> int:
        real(self, minimum, end)
        return end

    patch.setattr(ConsumeQueues, "resume", resume)


def recovery_syncs_nothing_that_it_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("lakelog.recovery.apply._sync", nothing)


def body_only_crc(patch: pytest.MonkeyPatch) -> None:
    """RocketMQ's rule."""
    from lakelog_format.codec import frame, run

    patch.setattr(run, "current", nothing)
    patch.setattr(frame, "is_sealed", yes)
    patch.setattr(frame, "seal_holds", yes)
    patch.setattr(frame, "lost_text", nothing)


def quarantine_is_not_durable(patch: pytest.MonkeyPatch) -> None:
    """So the recovery takes bytes out of the log of which there is no other copy."""
    contents, folder = SimFileSystem.sync_contents, SimFileSystem.sync_dir

    def sync_contents(self: SimFileSystem, path: Path, found: Any) -> None:
        if path.parent.name != "quarantine":
            contents(self, path, found)

    def sync_dir(self: SimFileSystem, path: Path) -> None:
        if path.name != "quarantine":
            folder(self, path)

    patch.setattr(SimFileSystem, "sync_contents", sync_contents)
    patch.setattr(SimFileSystem, "sync_dir", sync_dir)


def nothing_is_set_aside(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("lakelog.recovery.apply._set_aside", none_kept)


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
CUTS: Final = {"on_damage": "truncate"}
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
    checkpoint_ahead_of_data: (planned(flush="inline"), AHEAD),
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
}
RARE: Final = (
    abort_removed_before_data_is_synced,
    flushed_read_after_the_sync,
    quarantine_is_not_durable,
    recovery_syncs_nothing_that_it_read,
    retry_after_eio,
)
"""Found after three seconds or more."""
FOUND_BY_BOTH: Final = (
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
"""Found by each of the two ways to check an image alone, see :mod:`.test_two_ways`."""
MARKS: Final[dict[Plant, pytest.MarkDecorator]] = {
    **dict.fromkeys((*RARE, *FOUND_BY_BOTH), pytest.mark.slow),
    # its commit thread may end by a descriptor that was closed
    sealed_segment_not_committed: pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnhandledThreadExceptionWarning"
    ),
}


@pytest.mark.parametrize(
    "plant",
    [pytest.param(each, marks=MARKS.get(each, ())) for each in BUGS],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, what = BUGS[plant]
    plant(monkeypatch)
    outcome = simulate(plan, MOST_IMAGES, seed=7)
    assert outcome.violations, f"{plant.__name__} was not found in {outcome.images} images"
    assert re.search(what, outcome.violations[0].what), outcome
