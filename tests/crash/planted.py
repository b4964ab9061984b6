"""Bugs of the kinds that stores have had, each a patch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeAlias

import pytest

from lakelog.builtin import FileSegmentWriter, InlineFlush
from lakelog.files.checkpoint import CheckpointKeeper, StoreCheckpoint
from lakelog.files.filesystem import FileSystem, read_file
from lakelog.hooks import Outcome
from lakelog.log.commit_log import LogFiles
from lakelog.log.segments import Segments
from lakelog.processes.group_sync import FLUSHED, MARKED, GroupSync
from lakelog.processes.ownership import remove_abort
from lakelog.processes.queue_table import QueueTable, table_path
from lakelog.processes.shared_page import (
    APPENDED,
    FLUSHED_TIMESTAMP,
    LAST_TIMESTAMP,
    PAGE_BYTES,
    page_path,
)
from lakelog.recovery.filler import Tail
from lakelog.recovery.report import Aside
from lakelog.results import PutStatus
from lakelog.store.owner import OwnedStore
from lakelog_flush.groupcommit import WaitQueue
from lakelog_hash_index.filewriter import Sealer
from lakelog_queues.dispatching.consumequeues import ConsumeQueues
from lakelog_queues.files.simplequeue import SimpleQueue
from lakelog_testing.crash import SimFileSystem
from lakelog_writers.direct import Chunk
from lakelog_writers.staged import StagedSegmentWriter

MOST_IMAGES: Final = 10_000
"""It stops at the first that breaks a promise; what threads do differs from run to run."""
Plant: TypeAlias = Callable[[pytest.MonkeyPatch], None]


def nothing(*given: object, **named: object) -> None:
    """Done by whoever should do something."""


def yes(*given: object) -> bool:
    """Said by whoever should look first."""
    return True


def none_kept(_files: object, _path: object, tail: Tail) -> Aside:
    """Report a copy that was not made."""
    return Aside(tail.offset, tail.end_offset, tail.reason)


# --- syncs, checkpoints and recovery ---


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

    from lakelog.format import record, record_batch

    patch.setattr(record_batch, "current", nothing)
    patch.setattr(record, "verify_checksums", nothing)
    patch.setattr(record, "is_sealed", yes)


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
        self._sync_bytes(self.flushed, self._end_to_sync())
        self._words[MARKED] = self._words[FLUSHED] = self._end_to_sync()

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
    from lakelog.format import record, record_batch

    patch.setattr(record_batch, "current", nothing)
    patch.setattr(record, "is_sealed", yes)
    patch.setattr(record, "seal_holds", yes)
    patch.setattr(record, "lost_text", nothing)


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
    patch.setattr("lakelog.recovery.apply.keep", none_kept)


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
        self._checkpoint.advance(self._checkpoint.read()._replace(index_timestamp_ms=reached))
        file.close()

    patch.setattr(Sealer, "_seal", seal)
