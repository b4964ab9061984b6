"""Opens a directory for its owner: look, lock, look again, then change what must be changed.

Whatever goes wrong on the way, the directory is left as it was found, but for empty folders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import attrs

from lakelog.appender import Appender
from lakelog.bounds import OwnedBounds
from lakelog.checkpoint import CheckpointKeeper, StoreCheckpoint, read_checkpoint, write_checkpoint
from lakelog.commitlog import CommitLog
from lakelog.directory import StoreDirectory
from lakelog.dispatching import Dispatching, Named, resume
from lakelog.errors import BadSegment
from lakelog.files import FileSystem
from lakelog.health import Health
from lakelog.identity import StoreIdentity, make_identity, read_identity
from lakelog.interfaces import QueueReader
from lakelog.layout import LOCK_FILE, OWN_DIR, TMP_DIR
from lakelog.logreader import LogReader
from lakelog.ownership import OwnerLock, remove_abort, write_abort
from lakelog.pieces import Piece
from lakelog.positions import Confirmations, Positions
from lakelog.preallocate import Preallocator, SegmentMaker
from lakelog.queueends import queue_ends
from lakelog.queueoffsets import QueueOffsets
from lakelog.reput import Reput, Signal
from lakelog.segmentdir import segment_files
from lakelog.segments import Segments
from lakelog.settings.model import StoreSettings
from lakelog.source import FileSource, ViewSource
from lakelog.strategies import Strategies
from lakelog.survey import Survey, survey
from lakelog.swap import REBUILD_DIR, remove_tree


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
    reader: LogReader
    reput: Reput
    dispatchers: Sequence[Named]
    checkpoint: CheckpointKeeper

    def close(self) -> None:
        """Flush, write the checkpoint, then ``abort`` may go: RocketMQ's clean stop.

        A store that failed keeps ``abort``, so that the next open recovers it.
        """
        files, path = self.directory.files, self.directory.path
        try:
            with ExitStack() as closing:
                for each in self.dispatchers:
                    closing.callback(each.dispatcher.close)
                closing.callback(self.reput.close)
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
        self.checkpoint.advance(
            StoreCheckpoint(
                physic_timestamp_ms=self.log.last_timestamp_ms,
                confirm_offset=self.positions.confirmed,
            )
        )


def open_owned(
    directory: StoreDirectory,
    core: StoreSettings,
    strategies: Strategies,
    health: Health,
    checkpoint: CheckpointKeeper,
    arrivals: Signal,
) -> OwnedLog:
    """Take over ``directory``, which is new or holds a store that was closed cleanly.

    Queues and index are complete when it returns, unless a dispatcher fails.
    """
    with ExitStack() as undo:
        for each in strategies.dispatchers:
            undo.callback(each.dispatcher.close)
        lock, is_new = _take(directory, core, undo)
        taking = _Taking(directory, core, strategies, health, checkpoint, undo)
        opened = taking.open(_survey(directory, core), lock, arrivals, is_new=is_new)
        opened.reput.start()
        if opened.reput.failure is None and _keep_queues(strategies.dispatchers):
            lock.tell_followed()
        undo.pop_all()
    return opened


def _keep_queues(dispatchers: Sequence[Named]) -> bool:
    return any(isinstance(each.dispatcher, QueueReader) for each in dispatchers)


def _take(
    directory: StoreDirectory, core: StoreSettings, undo: ExitStack
) -> tuple[OwnerLock, bool]:
    """Look, lock, look again; the lock, and whether nothing was there."""
    is_new = directory.is_new()
    if not (directory.path / LOCK_FILE).exists():
        directory.check_owned_cleanly(core.segment_size_bytes)
        directory.files.make_dir(directory.path)
    lock = _locked(directory.files, directory, undo)
    directory.check_owned_cleanly(core.segment_size_bytes)
    return lock, is_new


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


@attrs.frozen
class _Taking:
    """What is needed to take a directory over that was looked at."""

    directory: StoreDirectory
    core: StoreSettings
    strategies: Strategies
    health: Health
    checkpoint: CheckpointKeeper
    undo: ExitStack

    def open(self, found: Survey, lock: OwnerLock, arrivals: Signal, *, is_new: bool) -> OwnedLog:
        """Change what must be changed, then wire everything."""
        directory, strategies, undo = self.directory, self.strategies, self.undo
        maker = self._maker()
        start = resume(strategies.dispatchers, found.start_offset, found.end_offset)
        identity = self._mark(is_new=is_new)
        segments = _segments(maker, self.core, strategies, found)
        undo.callback(segments.close)
        positions = attrs.evolve(
            Positions.at(found.start_offset, found.end_offset), dispatched=start
        )
        confirmations = Confirmations(positions)
        log = self._log(segments, positions, confirmations, found)
        reader = LogReader(ViewSource(segments), OwnedBounds(positions), _never)
        reput = Reput(
            lambda first, end: reader.pieces(first, end, verify=False),
            Dispatching(directory.path, strategies.dispatchers, start),
            positions,
            confirmations,
            arrivals,
        )
        return OwnedLog(
            directory,
            identity,
            lock,
            segments,
            positions,
            log,
            self._appender(log, confirmations),
            self.health,
            reader,
            reput,
            strategies.dispatchers,
            self.checkpoint,
        )

    def _maker(self) -> SegmentMaker:
        directory = self.directory
        directory.files.make_dir(directory.commitlog)
        maker = SegmentMaker(
            directory.files,
            directory.commitlog,
            _temporary(directory),
            self.core.segment_size_bytes,
        )
        maker.files.make_dir(maker.temporary)
        _clear(maker.files, maker)
        return maker

    def _mark(self, *, is_new: bool) -> StoreIdentity:
        """Write what says that the store is open."""
        files, path = self.directory.files, self.directory.path
        identity = read_identity(files, path) or make_identity(files, path, new=is_new)
        self.undo.callback(_forget_abort, files, path)  # a full disk may leave it half written
        write_abort(files, path)
        write_checkpoint(files, path, read_checkpoint(files, path))
        return identity

    def _log(
        self,
        segments: Segments,
        positions: Positions,
        confirmations: Confirmations,
        found: Survey,
    ) -> CommitLog:
        if found.end_offset > segments.active_offset:
            segments.prepare_next()
        return CommitLog(
            segments,
            positions,
            confirmations,
            QueueOffsets(found.next_offsets),
            self.strategies.append,
            self.health,
            self.core.os_page_cache_busy_timeout_ms,
            found.last_timestamp_ms,
        )

    def _appender(self, log: CommitLog, confirmations: Confirmations) -> Appender:
        strategies = self.strategies
        strategies.flush.start(log)
        if strategies.replicator is not None:
            strategies.replicator.start(log)
        return Appender(
            log,
            confirmations,
            strategies.append,
            strategies.flush,
            strategies.replicator,
            self.health,
        )


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
    remove_tree(files, maker.temporary / REBUILD_DIR)


def _forget_abort(files: FileSystem, path: Path) -> None:
    with suppress(OSError):
        remove_abort(files, path)


def _never() -> bool:
    """An owner writes under its own eyes."""
    return False
