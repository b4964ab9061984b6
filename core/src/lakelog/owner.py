"""Opens a directory for its owner: look, lock, look again, then change what must be changed.

Whatever goes wrong on the way, the directory is left as it was found, but for empty folders.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import attrs

from lakelog.appender import Appender
from lakelog.checkpoint import read_checkpoint, write_checkpoint
from lakelog.commitlog import CommitLog
from lakelog.directory import StoreDirectory
from lakelog.errors import BadSegment
from lakelog.files import FileSystem
from lakelog.health import Health
from lakelog.identity import StoreIdentity, make_identity, read_identity
from lakelog.layout import LOCK_FILE, OWN_DIR, TMP_DIR
from lakelog.ownership import OwnerLock, remove_abort, write_abort
from lakelog.pieces import Piece
from lakelog.positions import Confirmations, Positions
from lakelog.preallocate import Preallocator, SegmentMaker
from lakelog.queueends import queue_ends
from lakelog.queueoffsets import QueueOffsets
from lakelog.segmentdir import segment_files
from lakelog.segments import Segments
from lakelog.settings.model import StoreSettings
from lakelog.source import FileSource
from lakelog.strategies import Strategies
from lakelog.survey import Survey, survey


@attrs.frozen
class OwnedLog:
    """What an owner holds while its store is open."""

    directory: StoreDirectory
    identity: StoreIdentity
    lock: OwnerLock
    segments: Segments
    positions: Positions
    log: CommitLog
    appender: Appender
    health: Health

    def close(self) -> None:
        """Flush, write the checkpoint, then ``abort`` may go: RocketMQ's clean stop.

        A store that failed keeps ``abort``, so that the next open recovers it.
        """
        files, path = self.directory.files, self.directory.path
        try:
            self.appender.close()
            if self.health.failure is None:
                self._write_checkpoint()
                self.segments.close()
                remove_abort(files, path)
        finally:
            self.segments.close()
            self.lock.release()

    def _write_checkpoint(self) -> None:
        self.log.sync()
        files, path = self.directory.files, self.directory.path
        write_checkpoint(
            files,
            path,
            attrs.evolve(
                read_checkpoint(files, path),
                physic_timestamp_ms=self.log.last_timestamp_ms,
                confirm_offset=self.positions.confirmed,
            ),
        )


def open_owned(
    directory: StoreDirectory, core: StoreSettings, strategies: Strategies, health: Health
) -> OwnedLog:
    """Take over ``directory``, which is new or holds a store that was closed cleanly."""
    files, path = directory.files, directory.path
    is_new = directory.is_new()
    with ExitStack() as undo:
        if (path / LOCK_FILE).exists():
            lock = _locked(files, directory, undo)
            directory.check_owned_cleanly(core.segment_size_bytes)
        else:
            directory.check_owned_cleanly(core.segment_size_bytes)
            files.make_dir(path)
            lock = _locked(files, directory, undo)
            directory.check_owned_cleanly(core.segment_size_bytes)
        found = _survey(directory, core)
        opened = _prepare(directory, core, strategies, is_new, found, undo, health, lock)
        undo.pop_all()
    return opened


def _locked(files: FileSystem, directory: StoreDirectory, undo: ExitStack) -> OwnerLock:
    lock = OwnerLock.take(files, directory.path)
    undo.callback(lock.release)
    return lock


def _survey(directory: StoreDirectory, core: StoreSettings) -> Survey:
    """Read the whole log; an owner goes on only where nothing of it is damaged."""
    source = FileSource(directory.files, directory.commitlog, core.segment_size_bytes)
    starts = source.starts()
    first = starts[0] if starts else 0
    pieces = _scan(source, first) if starts else ()
    found = survey(pieces, first, queue_ends(directory.files, directory.path))
    for damage in found.damage:
        raise BadSegment(
            f"{damage.error}; {damage.end_offset - damage.offset} bytes are no whole record. This "
            "lakelog cannot repair a log yet; open the store with mode='read'",
            path=damage.path or directory.commitlog,
            offset=damage.offset,
        )
    return found


def _scan(source: FileSource, first: int) -> Iterator[Piece]:
    from lakelog.scan import scan  # brings NumPy, which an empty store can do without

    return scan(source, first)


def _prepare(
    directory: StoreDirectory,
    core: StoreSettings,
    strategies: Strategies,
    is_new: bool,
    found: Survey,
    undo: ExitStack,
    health: Health,
    lock: OwnerLock,
) -> OwnedLog:
    files, path = directory.files, directory.path
    files.make_dir(directory.commitlog)
    maker = SegmentMaker(files, directory.commitlog, _temporary(directory), core.segment_size_bytes)
    files.make_dir(maker.temporary)
    _clear(files, maker)
    identity = read_identity(files, path) or make_identity(files, path, new=is_new)
    undo.callback(_forget_abort, files, path)  # a full disk may leave it half written
    write_abort(files, path)
    write_checkpoint(files, path, read_checkpoint(files, path))
    segments = _segments(maker, core, strategies, found)
    undo.callback(segments.close)
    positions = Positions.at(found.start_offset, found.end_offset)
    confirmations = Confirmations(positions)
    log = CommitLog(
        segments,
        positions,
        confirmations,
        QueueOffsets(found.next_offsets),
        strategies.append,
        health,
        core.os_page_cache_busy_timeout_ms,
        found.last_timestamp_ms,
    )
    if found.end_offset > segments.active_offset:
        segments.prepare_next()
    strategies.flush.start(log)
    if strategies.replicator is not None:
        strategies.replicator.start(log)
    appender = Appender(
        log, confirmations, strategies.append, strategies.flush, strategies.replicator, health
    )
    return OwnedLog(directory, identity, lock, segments, positions, log, appender, health)


def _segments(
    maker: SegmentMaker, core: StoreSettings, strategies: Strategies, found: Survey
) -> Segments:
    """The segments, those behind the end of the log in stock for the next rolls."""
    size, first = core.segment_size_bytes, found.start_offset
    active = max(first, found.end_offset - found.end_offset % size)
    position = found.end_offset - active
    preallocator = Preallocator(maker, core.preallocate)
    for segment in segment_files(maker.directory, maker.files.list(maker.directory)):
        if segment.start_offset > active or (segment.start_offset == active and not position):
            preallocator.stock(segment.start_offset, maker.adopt(segment.start_offset))
    return Segments(maker, preallocator, strategies.writer, first, active, position)


def _temporary(directory: StoreDirectory) -> Path:
    """A folder for unfinished segments, on their own file system."""
    if directory.same_file_system():
        return directory.path / OWN_DIR / TMP_DIR
    return directory.commitlog.parent / f".{directory.commitlog.name}.{TMP_DIR}"


def _clear(files: FileSystem, maker: SegmentMaker) -> None:
    """Remove what an earlier run left unfinished."""
    for name, _ in files.list(maker.temporary):
        files.unlink(maker.temporary / name)


def _forget_abort(files: FileSystem, path: Path) -> None:
    with suppress(OSError):
        remove_abort(files, path)
