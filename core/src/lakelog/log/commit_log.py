"""The commit log: appends encoded batches in the append section, and makes them durable on request.

The section is held only to place and copy a batch. Encoding comes before it, waiting after it.
:class:`LogFiles` are the files of the log, as the section repairs and as group commit syncs them.
"""

from __future__ import annotations

import errno
import fcntl
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import attrs

from lakelog.accelerate import Accelerator
from lakelog.errors import LakelogError, NotOpened, PutRefused, StoreFailed
from lakelog.files.filesystem import NO_ROOM, File, NoRoom, not_opened
from lakelog.files.preallocation import MakingFailed
from lakelog.format.encoder import EncodedBatch
from lakelog.format.layout import BLANK, MAGIC_BLANK
from lakelog.format.record_batch import Blank, Damage, RecordBatch
from lakelog.hooks import AppendCallback
from lakelog.log.health import Health
from lakelog.log.segments import Segments
from lakelog.log.sources import ViewSource
from lakelog.message import Body
from lakelog.processes import shared_page
from lakelog.processes.append_section import AppendLock, AppendSection
from lakelog.processes.group_sync import CopiedEnd, GroupSync
from lakelog.processes.locks import ByteLock, is_locked
from lakelog.processes.ownership import SERVICES
from lakelog.processes.positions import PageWaiter, Positions
from lakelog.processes.queue_table import QueueTable
from lakelog.results import AppendStatus, PutStatus
from lakelog.runtime.locks import Mutex

APPENDING: Final = 8
"""The byte of ``lock`` that the appending process locks."""
SYNCING: Final = 9
"""The byte that the syncing process locks."""
HIDDEN_STEP_MS: Final = 1_000
"""A clock that falls by no more than this is not seen in the log: searches by time are exact then.

A larger fall corrects a clock that was ahead; store times fall with it, as RocketMQ's do, so that
what follows from them is right again.
"""
_POLL_S: Final = 0.001
_ZEROS: Final = bytes(1 << 20)
_REFUSALS = {
    AppendStatus.END_OF_FILE: (PutStatus.MESSAGE_SIZE_EXCEEDED, "it does not fit into a segment"),
    AppendStatus.MESSAGE_SIZE_EXCEEDED: (
        PutStatus.MESSAGE_SIZE_EXCEEDED,
        "a record is larger than max_message_size_bytes allows",
    ),
    AppendStatus.PROPERTIES_SIZE_EXCEEDED: (
        PutStatus.PROPERTIES_SIZE_EXCEEDED,
        "the properties are too long with the added offsets in light queues",
    ),
    AppendStatus.UNKNOWN_ERROR: (PutStatus.UNKNOWN_ERROR, "the append callback failed"),
}


class VouchedEnd(NamedTuple):
    """The end of the bytes of a replica that its master cannot lose: a limit of the durable end.

    :ivar end_offset: that end, in bytes from the start of the log
    :ivar timestamp_ms: store time of the last record before it, in ms since 1970
    :ivar store: notes a new durable end in a file, before it is published
    """

    end_offset: int
    timestamp_ms: int
    store: Callable[[int], None]


class CommitLog:
    """The log of one store in one process that appends to it.

    Compiled code uses the public attributes to append single messages.

    :ivar positions: the positions of the log
    :ivar staged: whether bytes reach the page cache by ``commit`` only
    :ivar copies: the end of the log that copies have
    :ivar sleeper: wakes :meth:`wait_moved` for appends and syncs of any process
    :ivar on_synced: called when a sync of this process has moved the durable end
    :ivar memory: the shared page
    :ivar layout: the module with the positions of its words
    :ivar lock: the lock of the append section; a compiled one if there is an accelerator
    :ivar section: the append section
    :ivar segments: the segments, with the ``window`` that compiled code may write to
    :ivar table: the table of queue ends
    :ivar health: puts are accepted while its ``refusal`` is ``None``
    """

    sleeper: PageWaiter | None = None

    def __init__(  # each is a collaborator of its own
        self,
        segments: Segments,
        page: shared_page.SharedPage,
        positions: Positions,
        table: QueueTable,
        lock: File,
        callback: AppendCallback,
        health: Health,
        busy_timeout_ms: int,
    ) -> None:
        """Prepare; the page must be that of a recovered log.

        :param positions: on the words of ``page``
        :param lock: the file ``lock``, opened by this process
        """
        self.segments = segments
        self.positions = positions
        self.staged = segments.staged
        self._words = page.words
        self._files = files = LogFiles(segments, positions, table)
        self.table = table
        self._place = callback.place
        self.health = health
        self._lock = lock
        health.elsewhere = self._paused
        self.lock = append_lock = _append_lock(callback, lock, page)
        self.section = AppendSection(
            page, lock, append_lock, files.zero, files.raise_ends, self.failed, busy_timeout_ms
        )
        sync_lock = ByteLock(lock, SYNCING, page.memory, shared_page.SYNC_LOCK_AT)
        self._sync = GroupSync(
            files.end_to_sync,
            files.sync,
            files.write_again,
            sync_lock,
            page.memory,
            shared_page.GROUP_SYNC_AT,
            self.failed,
        )
        self.copies = CopiedEnd(page.memory, shared_page.COPIED_AT)
        self._page = page
        self.memory = page.memory
        self.layout = shared_page
        self._is_read_at_once = not page.words[shared_page.FLAGS] & shared_page.DURABLE
        self.on_synced: Callable[[], None] = lambda: None

    def _paused(self) -> str | None:
        """Why puts are paused by the process with the services, if that is another process.

        A pause left by a dead process does not count.
        """
        if self._words[shared_page.PAUSED] and is_locked(self._lock, SERVICES, fcntl.F_WRLCK):
            return self._page.pause
        return None

    def failed(self, error: OSError | None) -> Exception:
        """Fail the store with an error of this process, or, given ``None``, of another process.

        :returns: the error to raise; a file that cannot be opened fails nothing, nor does a write
            without room for it, unless its bytes are those of earlier puts
        """
        if isinstance(error, NotOpened):
            return PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, str(error))
        if isinstance(error, NoRoom) and not self.staged:
            return self._without_room(f"no room in the log: {error}")
        if error is not None:
            self._page.fail(str(error))
        return self.health.fail(error or RuntimeError(self._page.failure or "unknown"))

    def not_written(self, error: OSError) -> Exception:
        """As :meth:`failed`, for a write in the append section; without room, it is undone.

        Blocks are allocated before, but a lower limit on the length of files, a quota, or a file
        system that copies on write can refuse them all the same.
        """
        if error.errno in NO_ROOM:
            error = NoRoom(error.errno, error.strerror, error.filename or str(self.health.path))
            if not self.staged:
                with suppress(PutRefused):  # the next append of any process repairs it
                    self.section.repair()
        return self.failed(error)

    def _without_room(self, why: str) -> PutRefused:
        why += "; each put tries again"
        self.health.lacks_room(why)
        return PutRefused(PutStatus.CREATE_MAPPED_FILE_FAILED, why)

    # --- append ---

    def append(self, batch: EncodedBatch) -> int:
        """Append ``batch`` to the log; return the offset behind it, in bytes.

        An exception from a signal handler may be raised even though ``batch`` is in the log.

        Raises :class:`~lakelog.errors.PutRefused` if nothing of it is in the log, and
        :class:`~lakelog.errors.StoreFailed` if that is unknown.
        """
        section = self.section
        section.check()
        try:
            section.enter()
            if self.health.refusal is not None:
                raise self.health.refused()
            if self._words[shared_page.PAUSED]:
                self.health.check_elsewhere()
            end = self._append(batch)
            section.leave()
            if self._is_read_at_once:
                self.positions.moved()
        except BaseException:
            try:
                if section.is_mine():
                    section.leave()
            finally:
                if section.is_mine():  # a signal handler has raised while an error was handled
                    section.leave()
                self.positions.moved()  # the batch may be in the log
            raise
        return end

    def _append(self, batch: EncodedBatch) -> int:
        words, segments, table = self._words, self.segments, self.table
        if table.generation != words[shared_page.TABLE_GENERATION]:
            self._files.follow_table()
        now_ms, last_ms = time.time_ns() // 1_000_000, words[shared_page.LAST_TIMESTAMP]
        if now_ms < last_ms <= now_ms + HIDDEN_STEP_MS:
            now_ms = last_ms
        position = words[shared_page.APPENDED]
        remaining = segments.active_offset + segments.size_bytes - position
        if not 0 < remaining <= segments.size_bytes:
            remaining = self._follow(position)
        status = self._place(batch, position, remaining, table, now_ms)
        if status is AppendStatus.END_OF_FILE:
            status, position = self._roll_and_place(batch, now_ms)
        if status is not AppendStatus.PUT_OK:
            raise PutRefused(*_REFUSALS[status])
        if table.wanted:
            with self._room_for("the table of queues"):
                table.make_room(words)
        # The intent comes before the first byte, the end offset after the last one, and the queue
        # ends after that. A process that dies in between leaves enough to undo or finish it, and
        # everything that can be refused is checked before the intent.
        end, section = position + len(batch.buffer), self.section
        if end > segments.reserved_offset:
            self._reserve(position, end)
        section.begin(end)
        self._write(position, batch.buffer)
        section.commit(end, now_ms)
        batch.advance(table)
        section.finish()
        return end

    def _write(self, position: int, data: Body) -> None:
        segments = self.segments
        if position == segments.active_offset:
            segments.prepare_next()
        try:
            segments.active.write(position - segments.active_offset, data)
        except OSError as error:
            raise self.not_written(error) from error

    def _roll_and_place(self, batch: EncodedBatch, now_ms: int) -> tuple[AppendStatus, int]:
        """Place in the next segment; roll only if ``batch`` fits into it."""
        segments = self.segments
        end = segments.active_offset + segments.size_bytes
        if len(batch.buffer) + BLANK.size > segments.size_bytes:
            return AppendStatus.END_OF_FILE, end
        status = self._place(batch, end, segments.size_bytes, self.table, now_ms)
        if status is AppendStatus.PUT_OK:
            self._roll(end, len(batch.buffer))
        return status, end

    def _roll(self, end: int, length: int) -> None:
        """Close the segment by a blank record: an append of its own, up to the border ``end``."""
        segments, section, position = self.segments, self.section, self.positions.appended
        self._reserve(position, position + BLANK.size)
        self._prepare_roll(length)
        section.begin(end)
        self._write(position, BLANK.pack(end - position, MAGIC_BLANK))
        section.commit(end, self._words[shared_page.LAST_TIMESTAMP])
        segments.roll()
        section.finish()

    def _prepare_roll(self, length: int) -> None:
        with self._room_for(f"the next segment of {self.segments.size_bytes} bytes"):
            self.segments.prepare_roll(length)
        self.health.has_room()

    def _follow(self, position: int) -> int:
        """Continue in the segment begun by another process's roll; return the space left in it."""
        segments = self.segments
        if position < segments.active_offset:
            what = f"the log cannot end at {position}, before its last segment"
            raise self.failed(OSError(errno.EIO, what))
        with self._room_for(f"the segment at {position}"):
            segments.follow(position)
        return segments.active_offset + segments.size_bytes - position

    def _reserve(self, position: int, end: int) -> None:
        """Allocate blocks up to ``end`` before anything is written."""
        with self._room_for(f"{end - position} more bytes of the log"):
            if self.segments.reserve(position, end):
                self.health.has_room()

    @contextmanager
    def _room_for(self, what: str) -> Iterator[None]:
        """Refuse the put if there is no room for ``what``."""
        try:
            yield
        except MakingFailed as error:
            raise self.failed(error.cause) from error.cause
        except OSError as error:
            lacks = "no room for" if error.errno in NO_ROOM else "the log cannot get"
            raise self._without_room(f"{lacks} {what}: {error}") from error

    def let_go(self) -> None:
        """Release full segments; called while other processes append too.

        An idle process would otherwise keep deleted segments on the disk.
        """
        self.positions.moved()  # a waiter for this process's appends must wait for those of all
        segments = self.segments
        if self.positions.appended > segments.active_offset + segments.size_bytes:
            with suppress(LakelogError):  # the next put raises it; if others append, the next turn
                self._inside(lambda: self._follow(self.positions.appended), at_once=True)
        segments.release()

    def _inside(self, work: Callable[[], object], *, at_once: bool = False) -> None:
        """Call ``work`` in the append section."""
        section = self.section
        section.check()
        try:
            section.enter(at_once=at_once)
            work()
        finally:
            try:
                if section.is_mine():
                    section.leave()
            finally:
                if section.is_mine():
                    section.leave()

    def settle(self) -> None:
        """Wait for an append of this process; none follows once puts are refused.

        It does not wait for another process: who has the section now has repaired an append that
        a signal interrupted in this process.
        """
        with suppress(StoreFailed, PutRefused):
            self._inside(lambda: None, at_once=True)

    # --- a replica ---

    def receive(self, offset: int, data: Body, timestamp_ms: int) -> int:
        """Append the bytes of a master at ``offset``, the end of the log; return the new end.

        :param data: whole, checked records, and a blank record at the end of a segment; within
            one segment
        :param timestamp_ms: store time of the last record

        Raises as :meth:`append`.
        """
        self._inside(lambda: self._receive(offset, data, timestamp_ms))
        self.positions.moved()
        return offset + len(data)

    def _receive(self, offset: int, data: Body, timestamp_ms: int) -> None:
        segments, section, end = self.segments, self.section, offset + len(data)
        if self.health.refusal is not None:
            raise self.health.refused()
        if offset != self.positions.appended:
            raise ValueError(f"the log ends at {self.positions.appended}, not at {offset}")
        if offset == segments.active_offset + segments.size_bytes:
            self._prepare_roll(len(data))
            segments.roll()
        if end > segments.reserved_offset:
            self._reserve(offset, end)
        section.begin(end)
        self._write(offset, data)
        section.commit(end, timestamp_ms)
        section.finish()

    def vouch(self, vouched: VouchedEnd) -> None:
        """Limit the durable end to ``vouched`` for all further syncs; it must not decrease."""
        self._files.vouched = vouched

    def sync_received(self) -> int:
        """On a replica, sync all received bytes without moving the durable end.

        :returns: the end of the bytes that are durable here; without a replica, the durable end

        Raises :class:`~lakelog.errors.StoreFailed`.
        """
        if self._files.vouched is None:
            return self.positions.flushed
        end = self.positions.appended
        with self._failing():
            self._files.sync_bytes(self.positions.flushed, end)
        return end

    @property
    def syncable(self) -> int:
        """End of the bytes that a sync makes durable; on a replica, of those vouched for."""
        vouched = self._files.vouched
        return self.positions.appended if vouched is None else vouched.end_offset

    # --- durability: the interface to flush strategies ---

    @property
    def appended(self) -> int:
        """End of the appended bytes."""
        return self.positions.appended

    @property
    def flushed(self) -> int:
        """The durable end."""
        return self.positions.flushed

    def commit(self) -> int:
        """Write staged bytes to the page cache; return the end visible to other processes.

        Raises :class:`~lakelog.errors.StoreFailed`.
        """
        with self._failing():
            end = self._files.commit()
        if self.staged:
            self.positions.moved()
        return end

    def sync(self) -> int:
        """Make everything appended before the call durable; return the new ``flushed``.

        After one failure all later calls fail: bytes not durable by then never count as durable.
        Raises :class:`~lakelog.errors.StoreFailed`.
        """
        with self._failing():
            self._sync.reach(self.syncable, math.inf)
        return self.positions.flushed

    def try_sync(self) -> bool:
        """As :meth:`sync`, unless another sync is running; ``True`` if done or not needed.

        Raises :class:`~lakelog.errors.StoreFailed`.
        """
        with self._failing():
            return self._sync.lead(self.syncable)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Fail the store on an ``OSError``; call ``on_synced`` if the durable end has moved."""
        if self.health.failure is not None:
            raise self.health.failed()
        before = self.positions.flushed
        try:
            yield
        except NotOpened:
            raise
        except OSError as error:
            raise self.failed(error) from error
        if self.positions.flushed > before:
            self.positions.moved()
            self.on_synced()

    def wait_flushed(self, end_offset: int, timeout_s: float, ask: Callable[[], object]) -> bool:
        """Wait until the log is durable up to ``end_offset``; ``False`` on timeout.

        :param ask: see :meth:`~lakelog.hooks.Flushable.wait_flushed`

        Raises :class:`~lakelog.errors.StoreFailed`.
        """
        return self._sync.wait(end_offset, timeout_s, ask)

    # --- copies: the interface to replicators ---

    @property
    def waits_for_disk(self) -> bool:
        """Whether puts wait until they are durable."""
        return not self._is_read_at_once

    @property
    def segment_size_bytes(self) -> int:
        """Length of every segment."""
        return self.segments.size_bytes

    @property
    def minimum(self) -> int:
        """Offset of the first byte that is still in the log."""
        return self.positions.minimum

    @property
    def committed(self) -> int:
        """End of the bytes that every process can read from the files."""
        return self.positions.committed

    def open_segment(self, start_offset: int) -> File:
        """Open a segment's file; raises ``OffsetOutOfRange`` if it was deleted, and ``OSError``."""
        return self.segments.open_file(start_offset)

    def wait_moved(self, durable_end: int, committed_end: int, timeout_s: float) -> bool:
        """Wait until ``flushed`` or ``committed`` is beyond an offset; ``False`` on timeout."""
        positions, deadline = self.positions, time.monotonic() + timeout_s
        while positions.flushed <= durable_end and positions.committed <= committed_end:
            asked = self.sleeper.ask() if self.sleeper is not None else None
            if positions.flushed > durable_end or positions.committed > committed_end:
                break
            if (left := deadline - time.monotonic()) <= 0:
                return False
            if asked is None or self.sleeper is None or not self.sleeper.sleep(asked, left):
                time.sleep(min(left, _POLL_S))
        return True


def _append_lock(callback: AppendCallback, lock: File, page: shared_page.SharedPage) -> AppendLock:
    """The lock of the append section: compiled if possible; both implementations are compatible."""
    accelerator: Accelerator | None = getattr(callback, "accelerator", None)
    if accelerator is None:
        return AppendLock(lock, APPENDING, page)
    made: AppendLock = accelerator.append_lock(lock.fileno(), APPENDING, page.memory, shared_page)
    return made


@attrs.define(eq=False, repr=False)
class LogFiles:
    """The files of the log, as the append section repairs and as group commit syncs them.

    :ivar vouched: on a replica, the limit of the durable end
    :ivar synced: on a replica, the end of the bytes that syncs of this process have covered
    """

    segments: Segments
    positions: Positions
    table: QueueTable
    vouched: VouchedEnd | None = attrs.field(default=None, init=False)
    synced: int = attrs.field(default=0, init=False)
    _syncing: Mutex = attrs.field(factory=Mutex, init=False)
    _stamp_ms: int = attrs.field(default=0, init=False)
    _committing: Mutex = attrs.field(factory=Mutex, init=False)

    # --- repair ---

    def zero(self, start: int, end: int) -> None:
        """Write zeros from ``start`` to ``end``; for a roll, over its blank record only.

        Raises ``OSError``, also for a staged writer.
        """
        if self.segments.staged:  # it cannot take back bytes in its buffers
            raise OSError(errno.EIO, "an append was interrupted; a staged writer cannot undo it")
        if end % self.segments.size_bytes == 0:
            end = start + BLANK.size
        for at in range(start, end, len(_ZEROS)):
            zeros = memoryview(_ZEROS)[: end - at]
            try:
                self.segments.overwrite(at, zeros)
            except NoRoom:  # behind a limit on the length of files nothing was written before
                is_active = 0 <= at - self.segments.active_offset < self.segments.size_bytes
                if not is_active or self.segments.view(at, len(zeros)) != zeros:
                    raise

    def raise_ends(self, start: int, end: int) -> int:
        """Raise each queue end at least to the end of its last record from ``start`` to ``end``.

        :returns: store time of the last record, in ms since 1970; 0 without a record

        Raises ``OSError`` if the records are not whole.
        """
        from lakelog.format.queue_survey import QueueOffsetSurvey

        self.follow_table()
        found = QueueOffsetSurvey(start, start)
        for batch in self._records(start, end):
            found.count(batch)
        for queue, next_offset in found.next_offsets.items():
            self.table.raise_to(queue, next_offset)
        return found.last_timestamp_ms

    def follow_table(self) -> None:
        """Map the larger table of queue ends, if there is one."""
        generation = self.positions.words[shared_page.TABLE_GENERATION]
        if generation != self.table.generation:
            self.table.reopen(generation)

    def _records(self, start: int, end: int) -> Iterator[RecordBatch]:
        from lakelog.log.scan import scan  # repairs are rare

        for piece in scan(ViewSource(self.segments), start, end):
            if isinstance(piece, Damage):
                raise OSError(errno.EIO, f"a record that was appended is damaged: {piece}")
            if not isinstance(piece, Blank):
                yield piece

    # --- durability ---

    def end_to_sync(self) -> int:
        """End of the bytes appended by all processes."""
        words, vouched = self.positions.words, self.vouched
        if vouched is not None:
            self._stamp_ms = vouched.timestamp_ms
            return vouched.end_offset
        # Read first: a record before the end has this time.
        self._stamp_ms = words[shared_page.LAST_TIMESTAMP]
        return words[shared_page.APPENDED]

    def commit(self) -> int:
        """Write staged bytes to the page cache; return the end visible to other processes."""
        if not self.segments.staged:
            return self.positions.appended
        with self._committing:
            end = self.segments.commit()
            words = self.positions.words
            # A handler may have committed more. It could come in between again behind a call.
            if end > words[shared_page.COMMITTED]:  # noqa: PLR1730  # a handler can run behind the call of max()
                words[shared_page.COMMITTED] = end
        return end

    def sync(self, start: int, end: int) -> None:
        """Make the bytes from ``start`` to ``end`` durable; raises ``OSError``."""
        stamp = self._stamp_ms
        self.sync_bytes(start, end)
        self.positions.words[shared_page.FLUSHED_TIMESTAMP] = stamp
        if self.vouched is not None:
            self.vouched.store(end)

    def sync_bytes(self, start: int, end: int) -> None:
        """Sync the bytes from ``start`` to ``end`` without moving the durable end.

        On a replica, bytes that an earlier call has synced are skipped. Thread-safe. Raises
        ``OSError``.
        """
        with self._syncing:  # reentrant: a signal handler may sync during a sync
            start = max(start, self.synced)
            if start < end:
                self.commit()
                begun = time.perf_counter_ns()
                self.segments.sync(start, end)
                self.positions.count_sync((time.perf_counter_ns() - begun) // 1000)
                self.synced = 0 if self.vouched is None else end

    def write_again(self, start: int, end: int) -> None:
        """Read the records from ``start`` to ``end``, check them, and write the same bytes again.

        Staged bytes are only written by the process that holds them. Raises ``OSError``.
        """
        if self.segments.staged:
            return
        for _ in self._records(start, end):
            pass
        while start < end:
            data = bytes(self.segments.view(start, min(end - start, len(_ZEROS))))
            try:
                self.segments.overwrite(start, data)
            except NoRoom as error:  # no sync was tried, and the next one writes them again
                raise not_opened(error, "write again", Path(error.filename)) from error
            start += len(data)
