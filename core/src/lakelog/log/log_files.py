"""Repair and sync of the log's files, for the append section and for group commit."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from threading import Lock, RLock

import attrs

from lakelog.format.layout import BLANK
from lakelog.format.record_batch import Blank, Damage, RecordBatch
from lakelog.log.segments import Segments
from lakelog.log.sources import ViewSource
from lakelog.processes import shared_page
from lakelog.processes.positions import Positions
from lakelog.processes.queue_table import QueueTable

_ZEROS = bytes(1 << 20)


@attrs.frozen
class VouchedEnd:
    """The end of the bytes of a replica that its master cannot lose: a limit of the durable end.

    :ivar end_offset: that end, in bytes from the start of the log
    :ivar timestamp_ms: store time of the last record before it, in ms since 1970
    :ivar store: notes a new durable end in a file, before it is published
    """

    end_offset: int
    timestamp_ms: int
    store: Callable[[int], None]


@attrs.define(eq=False)
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
    _syncing: RLock = attrs.field(factory=RLock, init=False)
    _stamp_ms: int = attrs.field(default=0, init=False)
    _committing: Lock = attrs.field(factory=Lock, init=False)

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
            self.segments.overwrite(at, memoryview(_ZEROS)[: end - at])

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
        self._stamp_ms = words[
            shared_page.LAST_TIMESTAMP
        ]  # read first: a record before the end has this time
        return words[shared_page.APPENDED]

    def commit(self) -> int:
        """Write staged bytes to the page cache; return the end visible to other processes."""
        if not self.segments.staged:
            return self.positions.appended
        with self._committing:
            end = self.positions.words[shared_page.COMMITTED] = self.segments.commit()
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
            self.segments.overwrite(start, data)
            start += len(data)
