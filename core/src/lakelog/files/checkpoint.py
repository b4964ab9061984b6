"""StoreCheckpoint: the times up to which log, queues and index are durable.

4,096 bytes: five big-endian ``i64``, then zeros. It is written in place. The five numbers are in
one sector, so a torn write leaves all old or all new ones. Source: ``StoreCheckpoint`` of RocketMQ.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from lakelog.files.filesystem import FileSystem, no_sync_tried, read_file
from lakelog.format.layout import CHECKPOINT, CHECKPOINT_BYTES, CHECKPOINT_FILE
from lakelog.runtime.locks import Mutex


class StoreCheckpoint(NamedTuple):
    """The content of ``checkpoint``: times in ms since 1970, offsets of the log in bytes.

    :ivar physic_timestamp_ms: store time of the last durable message of the log
    :ivar logics_timestamp_ms: store time of the last message with a durable queue unit
    :ivar index_timestamp_ms: store time of the last message in a full index file
    :ivar master_flushed_offset: on a replica, the durable end of its master
    :ivar confirm_offset: lakelog: the durable end; RocketMQ: its confirmed offset
    """

    physic_timestamp_ms: int = 0
    logics_timestamp_ms: int = 0
    index_timestamp_ms: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0


def read_checkpoint(files: FileSystem, path: Path) -> StoreCheckpoint:
    """The checkpoint of the store directory ``path``; all zero if missing or incomplete.

    Raises ``OSError`` if the file cannot be read.
    """
    data = read_file(files, path / CHECKPOINT_FILE) or b""
    if len(data) < CHECKPOINT.size:
        return StoreCheckpoint()
    return StoreCheckpoint(*CHECKPOINT.unpack_from(data))


def write_checkpoint(
    files: FileSystem, path: Path, checkpoint: StoreCheckpoint, *, is_there: bool = False
) -> None:
    """Write and sync; everything claimed by ``checkpoint`` must be durable already.

    :param is_there: whether the name of an existing file is durable; a file of the right length is
        then not lengthened again, and its folder not synced again

    Raises ``OSError``.
    """
    content = CHECKPOINT.pack(*checkpoint).ljust(CHECKPOINT_BYTES, b"\x00")
    with closing(files.open(path / CHECKPOINT_FILE, write=True, create=True)) as file:
        is_there &= file.size() == CHECKPOINT_BYTES  # not removed since
        file.write_at(0, content)
        if not is_there:
            file.truncate(CHECKPOINT_BYTES)
        file.sync()
    if not is_there:
        files.sync_dir(path)


class CheckpointKeeper:
    """The only writer of an open store's checkpoint; its numbers never decrease.

    :ivar on_failure: called after a failed write or sync, which cannot be repaired; all further
        changes are stopped by then, see :meth:`freeze`. A lack of descriptors or room is no such
        failure: the former numbers stay, and the next change tries again
    """

    def __init__(self, files: FileSystem, path: Path) -> None:
        self.on_failure: Callable[[OSError], object] = lambda _error: None  # the caller receives it
        self._files = files
        self._path = path
        self._lock = Mutex()
        self._frozen = False
        self._is_there = False
        self._sources: list[Callable[[], StoreCheckpoint]] = []

    def read(self) -> StoreCheckpoint:
        """Read the file; raises ``OSError``."""
        return read_checkpoint(self._files, self._path)

    def freeze(self) -> None:
        """Stop all further changes: a write or sync of the store has failed."""
        self._frozen = True

    def ask(self, source: Callable[[], StoreCheckpoint]) -> None:
        """Add a source, called at each :meth:`advance`; it must be fast, its result durable."""
        self._sources.append(source)

    def advance(self, reached: StoreCheckpoint | None = None) -> None:
        """Raise each number to at least that of ``reached`` and of every source.

        All of it must be durable already. Raises ``OSError`` if the file cannot be written.
        """
        with self._lock:
            if self._frozen:
                return
            before = self.read()
            after = _highest(before, reached or before, *(source() for source in self._sources))
            if after != before:
                self._write(after)

    def lower_index(self, most_ms: int) -> None:
        """Lower the index time to at most ``most_ms``: later index files are to be rebuilt.

        Raises ``OSError`` if the file cannot be read or written.
        """
        with self._lock:
            before = self.read()
            if before.index_timestamp_ms > most_ms and not self._frozen:
                self._write(before._replace(index_timestamp_ms=most_ms))

    def _write(self, checkpoint: StoreCheckpoint) -> None:
        try:
            write_checkpoint(self._files, self._path, checkpoint, is_there=self._is_there)
        except OSError as error:
            if not no_sync_tried(error):
                self.freeze()
                self.on_failure(error)
            raise
        self._is_there = True


def _highest(*given: StoreCheckpoint) -> StoreCheckpoint:
    return StoreCheckpoint(*map(max, zip(*given, strict=True)))
