"""The log of a replica: appends whole, checked records, and maintains the durable end."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from lakelog.errors import ReplicaStopped
from lakelog.files.identity import ReplicaState, read_replica, write_replica
from lakelog.format import layout
from lakelog.hooks import Context, ReplicaLog
from lakelog.message import Body

MOST_RECORD_BYTES: Final = 64 << 20
"""The longest record that is accepted from a master."""
_LOG: Final = logging.getLogger("lakelog")


class RunEnd(NamedTuple):
    """The last record of a run.

    :ivar end_offset: its end, a physical offset in bytes
    :ivar last_record: its start, a physical offset in bytes
    :ivar last_timestamp_ms: its store time, in ms since 1970
    """

    end_offset: int
    last_record: int
    last_timestamp_ms: int


def check_run(view: memoryview, base_offset: int, *, sealed: bool) -> RunEnd | None:
    """Check the records at the start of ``view``; ``None`` without a whole record.

    :param base_offset: physical offset of the first byte of ``view``
    :param sealed: whether each record must have a CRC of the whole record
    """
    from lakelog.format.record_batch import decode_run

    batch = decode_run(view, base_offset, sealed=sealed)
    if not len(batch):
        return None
    start, size, stored_ms = batch.head(-1)
    return RunEnd(base_offset + start + size, base_offset + start, stored_ms)


def begin_replica(
    context: Context, commitlog: Path, source: str, first_offset: Callable[[int], int]
) -> None:
    """Store the master's name in the store directory; create the first segment of a new log.

    The caller must hold the store's exclusive lock.

    :param source: the master, as ``HOST:PORT``
    :param first_offset: returns the start offset of a new log for a segment size in bytes; it is
        the start of one of the master's segments, often not 0

    Raises ``OSError``, and the errors of ``first_offset``.
    """
    files, path, size_bytes = context.files, context.path, context.core.segment_size_bytes
    state = read_replica(files, path)
    if state is None or state.source != source:
        if state is not None:
            _LOG.warning("%s: replica of %s, before of %s", path, source, state.source)
        cut = None if state is None else state.cut
        write_replica(files, path, ReplicaState(source, cut))
    files.make_dir(commitlog)
    if any(layout.is_segment_name(name) for name, _ in files.list(commitlog)):
        return
    start = first_offset(size_bytes)
    with closing(
        files.open(commitlog / layout.segment_name(start), write=True, create=True)
    ) as file:
        file.truncate(size_bytes)
        file.sync()
    files.sync_dir(commitlog)


class Receivable:
    """The log of a replica; offsets are physical offsets in bytes. For one thread at a time.

    :ivar segment_size_bytes: length of each segment; the master must have the same
    :ivar synced: end of the bytes that :meth:`sync` has made durable here
    :ivar last_record: start of a record near the end of the log, often the last one; -1 without one
    """

    def __init__(self, log: ReplicaLog, source: str, context: Context) -> None:
        """Prepare to receive behind the end of the recovered log."""
        self._opened = log
        self._log = log.log
        self._source = source
        self._context = context
        self._sealed = context.core.require_record_crc
        self.segment_size_bytes = log.log.segment_size_bytes
        self.last_record = log.last_record
        self.view, self.records = log.view, log.records
        self._last_ms = log.last_timestamp_ms
        self.synced = log.log.flushed
        self._ends = deque([(log.log.appended, self._last_ms)])  # ends that are not vouched for

    @property
    def minimum(self) -> int:
        """Start offset of the log."""
        return self._log.minimum

    @property
    def appended(self) -> int:
        """End of the log; a record or a segment ends there."""
        return self._log.appended

    @property
    def flushed(self) -> int:
        """The durable end: the end of the bytes that the master cannot lose and are synced here."""
        return self._log.flushed

    # --- received bytes ---

    def receive(self, data: Body) -> int:
        """Append the whole records at the start of ``data``.

        :param data: bytes of the master's log from ``appended`` on
        :returns: the number of bytes appended; the rest is the start of an incomplete record

        Raises :class:`~lakelog.errors.ReplicaStopped` for bytes that are no records of this place,
        :class:`~lakelog.errors.PutRefused` if the log cannot grow now, and
        :class:`~lakelog.errors.StoreFailed`.
        """
        view, at, offset = memoryview(data), 0, self.appended
        while at < len(view):
            room = self.segment_size_bytes - offset % self.segment_size_bytes
            window = view[at : at + room]
            found = check_run(window, offset, sealed=self._sealed)
            end = 0 if found is None else found.end_offset - offset
            length = end + self._blank(window[end:], offset + end, room - end)
            if not length:
                self._check_start(window, offset, room)
                break
            last_ms = self._last_ms if found is None else found.last_timestamp_ms
            self._opened.append(offset, window[:length], last_ms)  # may raise PutRefused
            if found is not None:
                self.last_record, self._last_ms = found.last_record, last_ms
            offset += length
            self._ends.append((offset, last_ms))
            at += length
        return at

    def _blank(self, data: memoryview, offset: int, room: int) -> int:
        """The length of the whole blank record at the start of ``data``; 0 without one."""
        if len(data) < layout.BLANK_MIN_BYTES:
            return 0
        size, magic = layout.BLANK.unpack_from(data)
        if magic != layout.MAGIC_BLANK:
            return 0
        if size != room:
            raise self._other_segments(offset, offset + size)
        return size if len(data) >= size else 0

    def _check_start(self, data: memoryview, offset: int, room: int) -> None:
        """Raise unless ``data`` is the start of an incomplete record."""
        if len(data) < layout.BLANK.size:
            if len(data) == room:
                raise self._no_record(offset)
            return
        size, magic = layout.BLANK.unpack_from(data)
        if magic == layout.MAGIC_BLANK:
            return
        if magic not in (layout.MAGIC_V1, layout.MAGIC_V2) or not 0 < size <= MOST_RECORD_BYTES:
            raise self._no_record(offset)
        if size > room:
            raise self._other_segments(offset, offset + size)
        if len(data) >= size:
            raise self._no_record(offset)

    def _no_record(self, offset: int) -> Exception:
        return self.stop(
            f"the bytes of {self._source} at {offset} are no whole record, or a longer one than "
            f"{MOST_RECORD_BYTES} bytes; check the log of the master there, as with `lakelog "
            "verify`, then open the replica again"
        )

    def _other_segments(self, offset: int, end: int) -> Exception:
        size = self.segment_size_bytes
        return self.stop(
            f"segments have {size} bytes here, and others at {self._source}: what it has from "
            f"{offset} to {end} fits none that ends at {offset - offset % size + size}; begin a "
            "new replica with segment_size_bytes as the master's mappedFileSizeCommitLog"
        )

    # --- durability ---

    def sync(self) -> None:
        """Make all received bytes durable here; raises ``StoreFailed``."""
        if self.synced < self.appended:
            self.synced = self._opened.sync()

    def vouch(self, offset: int) -> int:
        """Sync, and publish as durable, the bytes that the master cannot lose: up to ``offset``.

        :returns: the new ``flushed``, which is stored durably before it is published

        Raises :class:`~lakelog.errors.StoreFailed`.
        """
        reached = None
        while self._ends and self._ends[0][0] <= offset:
            reached = self._ends.popleft()
        if reached is not None and reached[0] > self.flushed:
            self._opened.vouch(*reached)
        return self._log.sync()

    # --- divergence ---

    def differs(self, offset: int) -> Exception:
        """Stop until the next open: the master's log differs from ``offset`` on.

        If no durable byte differs, the next open cuts the log at ``offset``, the start of a record.

        :returns: the :class:`~lakelog.errors.ReplicaStopped` that ``close`` raises too
        """
        durable, end = self.flushed, self.appended
        if offset < durable:
            return self._stopped(
                f"{self._source} has taken back what it could not lose: its log differs from "
                f"{offset} on, and everything before {durable} counted as durable here, and may be "
                f"in tables. Nothing was changed. If its present log is the right one, cut the "
                f"replica with `lakelog replicate --cut-to {offset}`, then remove the rows with "
                f"physical offsets from {offset} to {durable} from the tables, with `lakelog lake "
                "rewind` from those of lakelog. If this copy is the right one: `lakelog promote`",
                offset,
            )
        files, path = self._context.files, self._context.path
        write_replica(files, path, ReplicaState(self._source, offset))
        return self._stopped(
            f"the log of {self._source} differs from {offset} on, behind what counts as durable "
            f"here ({durable}): the next open cuts the replica there, keeps the {end - offset} "
            "bytes in lakelog/quarantine, and continues",
            offset,
            is_mended=True,
        )

    def stop(self, why: str) -> Exception:
        """Stop until the next open, and change nothing; return the error, as :meth:`differs`."""
        return self._stopped(why, self.appended)

    def _stopped(self, why: str, offset: int, *, is_mended: bool = False) -> Exception:
        path = self._context.path
        error = ReplicaStopped(why, path=path, offset=offset, is_mended=is_mended)
        return self._opened.fail(error)
