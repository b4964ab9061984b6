"""Bugs in writers, flushes, recovery, queues and index, each planted in turn.

Most need a put, or a roll, in the middle of a commit or a sync; each is found by the simulator.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, Final

import attrs
import pytest

from lakelog.files.filesystem import FileSystem, read_file
from lakelog.files.pages.shared_page import (
    APPENDED,
    FLUSHED_TIMESTAMP,
    LAST_TIMESTAMP,
    PAGE_BYTES,
    page_path,
)
from lakelog.files.shared.group_sync import GroupSync
from lakelog.files.shared.queue_table import QueueTable, table_path
from lakelog.interfaces import Outcome
from lakelog.log.log_files import LogFiles
from lakelog.registry.builtin.filewriter import FileSegmentWriter
from lakelog.registry.builtin.flush import InlineFlush
from lakelog.status import PutStatus
from lakelog_direct.chunk import Chunk
from lakelog_direct.staged import StagedSegmentWriter
from lakelog_flush.wait_queue import WaitQueue
from lakelog_hash_index.sealer import Sealer
from lakelog_queues.dispatching.consumequeues import ConsumeQueues
from lakelog_testing.crash import CrashPlan, SimFileSystem, simulate
from tests.crash.test_planted_bugs import (
    AHEAD,
    LOST,
    MOST_IMAGES,
    Plant,
    nothing,
    planned,
    rolled,
    twice,
)

# --- writers ---


def buffer_given_back_at_a_late_seal(patch: pytest.MonkeyPatch) -> None:
    """The seal is looked at behind the write: what came meanwhile is lost with the buffer."""

    def commit(self: StagedSegmentWriter) -> int:
        with self._lock:
            end = self._end
            if end > self._committed:
                self._put_through(end)
            if self._sealed and self._taken is not None:
                self._give_back()
                self._committed = self._end
        return end

    patch.setattr(StagedSegmentWriter, "commit", commit)


def rest_of_a_block_taken_for_written(patch: pytest.MonkeyPatch) -> None:
    def write_out(self: Chunk, file: Any, target: int, spare: Any) -> None:
        with self._lock:
            if target > self._written:
                self._write(file, target, spare)
                self._written = -(-target // self._block) * self._block

    patch.setattr(Chunk, "write_out", write_out)


def put_during_a_sync_taken_for_synced(patch: pytest.MonkeyPatch) -> None:
    def sync(self: FileSegmentWriter) -> None:
        if self._end != self._synced:
            self._file.sync()
            self._synced = self._end

    patch.setattr(FileSegmentWriter, "sync", sync)


# --- flushes ---


def put_answered_by_a_sync_that_began_before(patch: pytest.MonkeyPatch) -> None:
    """Whoever finds a sync under way waits for its end."""
    running, real = Lock(), InlineFlush.submit

    def submit(self: InlineFlush, end_offset: int, wait: bool) -> Outcome:
        log = self._log
        if not wait:
            return real(self, end_offset, wait)
        if log is not None and log.flushed < end_offset:
            if running.acquire(blocking=False):
                try:
                    log.sync()
                finally:
                    running.release()
            else:
                with running:
                    pass
        return PutStatus.PUT_OK

    patch.setattr(InlineFlush, "submit", submit)


def sync_answers_all_who_wait(patch: pytest.MonkeyPatch) -> None:
    """Whoever comes before it ends is taken for one of those whom it is for."""

    def wait(self: GroupSync, _end: int, timeout_s: float, ask: Callable[[], object]) -> bool:
        return real(self, self.flushed + 1, timeout_s, ask)

    real = GroupSync.wait
    patch.setattr(GroupSync, "wait", wait)
    patch.setattr(WaitQueue, "take_covered", lambda self, _flushed: self.take_all())


def time_of_a_sync_read_behind_it(patch: pytest.MonkeyPatch) -> None:
    """The checkpoint then vouches for messages that came during the sync."""
    real = LogFiles.sync

    def sync(self: LogFiles, start: int, end: int) -> None:
        real(self, start, end)
        self.positions.words[FLUSHED_TIMESTAMP] = self.positions.words[LAST_TIMESTAMP]

    patch.setattr(LogFiles, "sync", sync)


# --- what processes share ---


def reads_see_what_is_not_durable(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(InlineFlush, "waits_for_disk", False)


def table_of_a_dead_process_is_believed(patch: pytest.MonkeyPatch) -> None:
    """A crash may have left its file as it was at any moment, or empty."""
    made = QueueTable.make

    def make(files: FileSystem, path: Path, generation: int, start: Any) -> QueueTable:
        if table_path(path, generation).exists():
            return QueueTable(files, path, generation)
        return made(files, path, generation, start)

    patch.setattr(QueueTable, "make", make)
    patch.setattr("lakelog.store.owner.remove_tables", nothing)


def end_in_the_page_of_a_dead_process_is_believed(patch: pytest.MonkeyPatch) -> None:
    """Its page may be older on the disk than its log, and the checkpoint knows more."""

    def whole_end(files: FileSystem, path: Path) -> int | None:
        data = read_file(files, page_path(path)) or b""
        return memoryview(data).cast("Q")[APPENDED] if len(data) == PAGE_BYTES else None

    patch.setattr("lakelog.recovery.examine.whole_end", whole_end)


# --- recovery ---


def checkpoint_not_lowered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("lakelog.recovery.apply.write_checkpoint", nothing)


def abort_is_not_durable(patch: pytest.MonkeyPatch) -> None:
    """After a power cut, the store passes for one that was closed cleanly."""

    def write_abort(files: SimFileSystem, path: Path) -> None:
        files.open(path / "abort", write=True, create=True).close()

    patch.setattr("lakelog.store.owner.write_abort", write_abort)
    patch.setattr("lakelog.store.owner.write_checkpoint", nothing)  # which syncs the folder, too


# --- queues and index ---


def queues_trusted_after_a_kill(patch: pytest.MonkeyPatch) -> None:
    """What the dead process wrote and did not sync is listed as durable at the next flush."""
    patch.setattr(ConsumeQueues, "_mark_unsynced", nothing)


def index_vouched_for_before_its_sync(patch: pytest.MonkeyPatch) -> None:
    def seal(self: Sealer, file: Any) -> None:
        reached = file.header.end_timestamp_ms
        self._checkpoint.advance(attrs.evolve(self._checkpoint.read(), index_timestamp_ms=reached))
        file.close()

    patch.setattr(Sealer, "_seal", seal)


SECTORS: Final = {"hash-index": {"slots": 8, "entries": 60}}
"""Entries of an index stand in three sectors, of which the one in the middle may be lost."""
SHORT_FILES: Final = {"consume-queue": {"file_entries": 4}}
KEYS: Final = "key .* gives|it does not open"
QUEUES: Final = "should point to|goes over"
BUGS: Final[dict[Plant, tuple[CrashPlan, str]]] = {
    buffer_given_back_at_a_late_seal: (
        rolled("staged", "group-commit", points_per_run=0),
        LOST,
    ),
    rest_of_a_block_taken_for_written: (rolled("direct", "inline"), f"{LOST}|{AHEAD}"),
    put_during_a_sync_taken_for_synced: (rolled("file", "group-commit"), f"{LOST}|{AHEAD}"),
    put_answered_by_a_sync_that_began_before: (rolled("file", "inline"), f"{LOST}|{AHEAD}"),
    sync_answers_all_who_wait: (rolled("file", "group-commit"), f"{LOST}|{AHEAD}"),
    time_of_a_sync_read_behind_it: (rolled("file", "timed"), f"{AHEAD}|claims more"),
    reads_see_what_is_not_durable: (planned(flush="inline"), LOST),
    table_of_a_dead_process_is_believed: (
        planned(flush="inline", images_per_whole_check=1),
        "does not open|is not found|is twice",
    ),
    end_in_the_page_of_a_dead_process_is_believed: (planned(flush="none"), AHEAD),
    checkpoint_not_lowered: (rolled("file", "none"), "claims more than the log has"),
    abort_is_not_durable: (planned(flush="group-commit"), "no abort file"),
    queues_trusted_after_a_kill: (twice(settings=SHORT_FILES), QUEUES),
    index_vouched_for_before_its_sync: (planned(flush="inline", steps=80, settings=SECTORS), KEYS),
}


RARE: Final = (
    checkpoint_not_lowered,
    index_vouched_for_before_its_sync,
    end_in_the_page_of_a_dead_process_is_believed,
    queues_trusted_after_a_kill,
    time_of_a_sync_read_behind_it,
)
"""Found by many images."""


@pytest.mark.parametrize(
    "plant",
    [pytest.param(each, marks=pytest.mark.slow if each in RARE else ()) for each in BUGS],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, what = BUGS[plant]
    plant(monkeypatch)
    outcome = simulate(plan, MOST_IMAGES, seed=7)
    assert outcome.violations, f"{plant.__name__} was not found in {outcome.images} images"
    assert re.search(what, outcome.violations[0].what), outcome
