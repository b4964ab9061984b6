"""StoreCheckpoint: up to when the log, the queues and the index are durable.

4,096 bytes: five big-endian ``i64`` and zeros. It is written in place, and the five numbers
share one sector, so that a torn write leaves the old or the new ones.
"""

from __future__ import annotations

from pathlib import Path
from threading import Lock

import attrs

from lakelog.files import FileSystem, read_file
from lakelog.layout import CHECKPOINT, CHECKPOINT_BYTES, CHECKPOINT_FILE


@attrs.frozen
class StoreCheckpoint:
    """The content of ``checkpoint``.

    :ivar physic_timestamp_ms: store time of the last durable message of the log
    :ivar logics_timestamp_ms: store time of the last message whose queue entry is durable
    :ivar index_timestamp_ms: store time of the last message in an index file that is full
    :ivar master_flushed_offset: on a replica, how far its master was durable
    :ivar confirm_offset: the confirmed position
    """

    physic_timestamp_ms: int = 0
    logics_timestamp_ms: int = 0
    index_timestamp_ms: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0


def read_checkpoint(files: FileSystem, path: Path) -> StoreCheckpoint:
    """The checkpoint of the store directory ``path``; all zero if there is none, or half of one."""
    data = read_file(files, path / CHECKPOINT_FILE) or b""
    if len(data) < CHECKPOINT.size:
        return StoreCheckpoint()
    return StoreCheckpoint(*CHECKPOINT.unpack_from(data))


def write_checkpoint(files: FileSystem, path: Path, checkpoint: StoreCheckpoint) -> None:
    """Write and sync; everything that ``checkpoint`` claims must be durable by now."""
    content = CHECKPOINT.pack(*attrs.astuple(checkpoint)).ljust(CHECKPOINT_BYTES, b"\x00")
    file = files.open(path / CHECKPOINT_FILE, write=True, create=True)
    try:
        file.write_at(0, content)
        file.truncate(CHECKPOINT_BYTES)
        file.sync()
    finally:
        file.close()
    files.sync_dir(path)


class CheckpointKeeper:
    """The one writer of an open store's checkpoint; its numbers never go back."""

    def __init__(self, files: FileSystem, path: Path) -> None:
        self._files = files
        self._path = path
        self._lock = Lock()
        self._frozen = False

    def read(self) -> StoreCheckpoint:
        """What the file says now."""
        return read_checkpoint(self._files, self._path)

    def freeze(self) -> None:
        """Let nothing move any more: a write or sync of the store has failed."""
        self._frozen = True

    def advance(self, reached: StoreCheckpoint) -> None:
        """Raise each number to at least that of ``reached``, which must be durable by now."""
        with self._lock:
            if self._frozen:
                return
            before = attrs.astuple(self.read())
            after = tuple(map(max, before, attrs.astuple(reached)))
            if after != before:
                write_checkpoint(self._files, self._path, StoreCheckpoint(*after))
