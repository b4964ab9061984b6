"""A replica: a store whose log is a copy of a master's, received in place of puts.

Only whole, checked records are appended, so that the log ends at one, and readers, queues and index
work as they do beside puts. The end that counts as durable is the end that the master cannot lose,
as its replicator says, once it is synced here; the checkpoint keeps it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from lakelog.errors import ReplicaStopped, SettingsError, StoreReadOnly
from lakelog.files.filesystem import FileSystem
from lakelog.files.pages.shared_page import LAST_TIMESTAMP
from lakelog.files.segment_files import segment_files
from lakelog.files.state.checkpoint import StoreCheckpoint
from lakelog.files.state.replica import ReplicaState, read_replica, write_replica
from lakelog.format.layout import BLANK, BLANK_MIN_BYTES, MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from lakelog.interfaces import Receiver
from lakelog.log.log_files import VouchedEnd
from lakelog.log.reading.pieces import Blank, Damage
from lakelog.log.store_directory import StoreDirectory
from lakelog.message import Body
from lakelog.settings.model import StoreSettings

if TYPE_CHECKING:
    from lakelog.codec.record_batch import RecordBatch
    from lakelog.store.owner import OwnedStore

MOST_RECORD_BYTES: Final = 64 << 20
"""The longest record of a master that is received."""
FILLED_BY_MASTER: Final = "the store is a replica, which only its master fills"
_LOG: Final = logging.getLogger("lakelog")


def is_replica(
    files: FileSystem, path: Path, replicator: object, *, wanted: bool | None, recovers: bool
) -> bool:
    """Whether to open the store as a replica; checks that settings and files agree.

    :param wanted: by the caller; ``None`` if the settings decide
    :param recovers: whether the store is opened for its recovery only

    Raises :class:`~lakelog.errors.SettingsError` and :class:`~lakelog.errors.StoreReadOnly`.
    """
    state, is_receiver = read_replica(files, path), isinstance(replicator, Receiver)
    if recovers:
        return state is not None
    if is_receiver and wanted is False:
        raise SettingsError(
            "this replicator fills a replica; open the store with mode='replica'", key="replicator"
        )
    if is_receiver:
        return True
    if state is not None:
        raise StoreReadOnly(
            f"it is a replica of {state.source}, and only that appends to it; open it with "
            "mode='read', or continue it with `lakelog replicate`; `lakelog promote` makes it a "
            "store of its own",
            path=path,
        )
    if wanted:
        raise SettingsError(
            "mode='replica' needs a replicator that receives, such as 'rocketmq-ha' with "
            "role = 'slave'; it is in lakelog-replication",
            key="replicator",
        )
    return False


def begin_replica(directory: StoreDirectory, core: StoreSettings, receiver: Receiver) -> None:
    """Note the master in a directory that this process has alone; make the first segment.

    A new log begins at a segment of the master, often not at 0.
    """
    files, path = directory.files, directory.path
    state = read_replica(files, path)
    if state is None or state.source != receiver.source:
        if state is not None:
            _LOG.warning("%s: replica of %s, before of %s", path, receiver.source, state.source)
        cut = None if state is None else state.cut
        write_replica(files, path, ReplicaState(receiver.source, cut))
    files.make_dir(directory.commitlog)
    if segment_files(directory.commitlog, files.list(directory.commitlog)):
        return
    start = receiver.first_offset(core.segment_size_bytes)
    with closing(files.open(directory.segment(start), write=True, create=True)) as file:
        file.truncate(core.segment_size_bytes)
        file.sync()
    files.sync_dir(directory.commitlog)


def end_cut(files: FileSystem, path: Path) -> None:
    """Note that the log was cut, with queues and index; called before anything is appended."""
    state = read_replica(files, path)
    if state is not None and state.cut is not None:
        write_replica(files, path, attrs.evolve(state, cut=None))


class ReceivedLog:
    """Implements :class:`~lakelog.interfaces.Receivable` over an open store."""

    def __init__(self, owned: OwnedStore, source: str) -> None:
        """Prepare; nothing was received since the recovery."""
        self._owned = owned
        self._source = source
        self._log = owned.log
        self._positions = positions = owned.positions
        self._sealed = owned.core.require_record_crc
        self.segment_size_bytes = owned.segments.size_bytes
        self.last_record = owned.last_record
        self.view = owned.segments.view
        self._last_ms = positions.words[LAST_TIMESTAMP]
        self._ends = deque([(positions.appended, self._last_ms)])  # not vouched for yet

    @property
    def minimum(self) -> int:
        """First byte of the log."""
        return self._positions.minimum

    @property
    def appended(self) -> int:
        """End of the log."""
        return self._positions.appended

    @property
    def flushed(self) -> int:
        """The durable end."""
        return self._positions.flushed

    def records(self, start: int, end: int) -> Iterator[RecordBatch]:
        """The records that start from ``start`` to ``end``, in runs, in order."""
        for piece in self._owned.reader.pieces(start, end, verify=False):
            if not isinstance(piece, Blank | Damage):
                yield piece

    # --- what comes ---

    def receive(self, data: Body) -> int:
        """Append the whole records at the start of ``data``; return their length."""
        from lakelog.codec.run import decode_run  # brings NumPy

        view, at = memoryview(data), 0
        while at < len(view):
            offset = self.appended
            room = self.segment_size_bytes - offset % self.segment_size_bytes
            window = view[at : at + room]
            batch = decode_run(window, offset, sealed=self._sealed)
            end = batch.end_offset - offset if len(batch) else 0
            length = end + self._blank(window[end:], offset + end, room - end)
            if not length:
                self._check_start(window, offset, room)
                break
            if end:
                self.last_record = int(batch.physical_offsets[-1])
                self._last_ms = int(batch.store_timestamps_ms[-1])
            self._log.receive(offset, window[:length], self._last_ms)
            self._ends.append((offset + length, self._last_ms))
            at += length
        return at

    def _blank(self, data: memoryview, offset: int, room: int) -> int:
        """The length of the whole blank record at the start of ``data``, if there is one."""
        if len(data) < BLANK_MIN_BYTES:
            return 0
        size, magic = BLANK.unpack_from(data)
        if magic != MAGIC_BLANK:
            return 0
        if size != room:
            raise self._other_segments(offset, offset + size)
        return size if len(data) >= size else 0

    def _check_start(self, data: memoryview, offset: int, room: int) -> None:
        """Raise unless ``data`` is the start of a record of which more may come."""
        if len(data) < BLANK.size:
            if len(data) == room:
                raise self._no_record(offset)
            return
        size, magic = BLANK.unpack_from(data)
        if magic == MAGIC_BLANK:
            return
        if magic not in (MAGIC_V1, MAGIC_V2) or not 0 < size <= MOST_RECORD_BYTES:
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

    def vouch(self, offset: int) -> int:
        """Publish as durable what the master cannot lose; return the new end."""
        reached = None
        while self._ends and self._ends[0][0] <= offset:
            reached = self._ends.popleft()
        if reached is not None and reached[0] > self.flushed:
            self._log.vouch(VouchedEnd(*reached, self._store))
        return self._log.sync()

    def _store(self, end: int) -> None:
        self._owned.checkpoint.advance(StoreCheckpoint(confirm_offset=end))

    # --- divergence ---

    def differs(self, offset: int) -> Exception:
        """Stop: the master's log differs from ``offset`` on."""
        durable, end = self.flushed, self.appended
        if offset < durable:
            return self._stopped(
                f"{self._source} has taken back what it could not lose: its log differs from "
                f"{offset} on, and everything before {durable} counted as durable here, and may be "
                f"in tables. Nothing was changed. If its present log is the right one, delete the "
                f"rows with physical offsets from {offset} to {durable} from the tables, then cut "
                f"the replica with `lakelog replicate --cut-to {offset}`",
                offset,
            )
        path = self._owned.directory.path
        write_replica(self._owned.directory.files, path, ReplicaState(self._source, offset))
        return self._stopped(
            f"the log of {self._source} differs from {offset} on, behind what counts as durable "
            f"here ({durable}): the next open cuts the replica there, keeps the {end - offset} "
            "bytes in lakelog/quarantine, and continues",
            offset,
            is_mended=True,
        )

    def stop(self, why: str) -> Exception:
        """Stop, and change nothing."""
        return self._stopped(why, self.appended)

    def _stopped(self, why: str, offset: int, *, is_mended: bool = False) -> Exception:
        path = self._owned.directory.path
        error = ReplicaStopped(why, path=path, offset=offset, is_mended=is_mended)
        return self._owned.health.fail(error)
