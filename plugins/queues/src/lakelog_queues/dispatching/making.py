"""Creates the queue objects of a store directory, each of its kind and with its files.

Modules of queues are imported for the first queue, so that the open of a new store imports less.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from lakelog.errors import CorruptConfig
from lakelog.files.filesystem import FileSystem, folders_in
from lakelog.format import layout
from lakelog.format.properties import REPAIRED_TOPIC
from lakelog.lazy import cached_property
from lakelog_queues.files.openfiles import DirtyFiles, OpenFiles
from lakelog_queues.plugin import BATCH_UNIT_BYTES, UNIT_BYTES, ConsumeQueueSettings

if TYPE_CHECKING:
    from lakelog.format.queue_offsets import Queue
    from lakelog_queues.files.batchqueue import BatchQueue
    from lakelog_queues.files.invalid_files import QueueFolderKind
    from lakelog_queues.files.replaced import RepairReplacements
    from lakelog_queues.files.simplequeue import SimpleQueue

    AnyQueue: TypeAlias = SimpleQueue | BatchQueue

DIRECTORIES: Final = (
    layout.CONSUMEQUEUE_EXT_DIR,
    layout.CONSUMEQUEUE_DIR,
    layout.BATCHCONSUMEQUEUE_DIR,
)
"""Ordered as ``Dispatcher.directories``: units refer to extension files, and a topic with a folder
of batch queues but none of other queues has batch queues only.
"""
_UNITS: Final = (layout.CONSUMEQUEUE_DIR, layout.BATCHCONSUMEQUEUE_DIR)
_NOT_TO_GO: Final = (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
"""Errors for a folder that is missing, holds another queue of the topic, or is a link."""
_NOWHERE: Final = "left-out"
"""The name of a folder that never exists."""
_TOPICS_FILE: Final = "topics.json"
_LOG: Final = logging.getLogger(__name__)


@attrs.define(eq=False, slots=False)
class QueueMaker:
    """Creates queues, which share the following objects.

    :ivar opened: the open files of all queues
    :ivar dirty: the writes to them that are not durable yet
    :ivar minimum: physical offset of the first byte of the log; -1 while unknown
    """

    _files: FileSystem
    _path: Path
    _settings: ConsumeQueueSettings
    _batch_topics: Collection[str]
    _read_only: bool
    opened: OpenFiles = attrs.field(init=False)
    dirty: DirtyFiles = attrs.field(init=False)
    minimum: int = -1
    _left_out: frozenset[Queue] = frozenset()

    def __attrs_post_init__(self) -> None:
        self.opened = OpenFiles(self._files, write=not self._read_only)
        self.dirty = DirtyFiles(self._files, self.opened)

    @cached_property
    def _replaced(self) -> RepairReplacements:
        """The records of a repair, to which units of queues may lead."""
        from lakelog_queues.files.replaced import RepairReplacements

        return RepairReplacements(lambda: self.minimum)

    def quarantine_invalid(self, kept_entries: int) -> bool:
        """Move files with an impossible length or name to the quarantine.

        :param kept_entries: the setting ``file_entries`` at the last sync of these files; 0 if
            unknown
        :returns: whether any file was moved

        Raises :class:`~lakelog.errors.CorruptQueue` if the settings are wrong.
        """
        from lakelog_queues.files.invalid_files import quarantine_invalid

        return bool(quarantine_invalid(self._files, self._path, self._kinds(kept_entries)))

    def exclude_invalid(self, kept_entries: int) -> bool:
        """The same for readers, which ignore all files of such queues from now on."""
        from lakelog_queues.files.invalid_files import queues_with_invalid

        odd = queues_with_invalid(self._files, self._path, self._kinds(kept_entries))
        self._left_out |= odd
        return bool(odd)

    def make(self, queue: Queue) -> AnyQueue:
        """A queue of the right kind, not loaded yet."""
        return self._batch(queue) if queue[0] in self._batch_topics else self._simple(queue)

    def present(self) -> Iterator[AnyQueue]:
        """The queues that have a folder, not loaded yet."""
        for queue in queues_in(self._path / layout.CONSUMEQUEUE_DIR):
            if queue[0] not in self._batch_topics:
                yield self._simple(queue)
        for queue in queues_in(self._path / layout.BATCHCONSUMEQUEUE_DIR):
            if queue[0] in self._batch_topics:
                yield self._batch(queue)

    def folders(self, queue: Queue) -> list[Path]:
        """The folders that may hold files of a queue."""
        return [self._path.joinpath(name, queue[0], str(queue[1])) for name in DIRECTORIES]

    def leave_out(self, queue: Queue) -> None:
        """Ignore all files of a queue from now on."""
        self._left_out |= {queue}

    def remove_folders(self, queue: Queue) -> None:
        """Durably remove all files of a queue; after an ``OSError`` it can be called again.

        The folder of units is removed last. So a queue of which anything is left is among
        :meth:`present`, unless it is a batch queue.
        """
        for folder in sorted(self.folders(queue), key=lambda each: each.parts[-3] in _UNITS):
            for name, _ in self._files.list(folder):
                self._remove(folder / name)
            if self._remove_dir(folder):
                self._remove_dir(folder.parent)
            for each in (folder, *folder.parents[:2]):
                if each.is_dir():
                    self._files.sync_dir(each)

    def remove_topic(self, topic: str) -> None:
        """Remove the empty folders of a topic; raises ``OSError``."""
        for name in DIRECTORIES:
            folder = self._path / name / topic
            if self._remove_dir(folder):
                self._files.sync_dir(folder.parent)

    def _remove_dir(self, folder: Path) -> bool:
        """Remove a folder; returns ``False`` if it is missing or not empty."""
        try:
            self._files.remove_dir(folder)
        except OSError as error:
            if error.errno not in _NOT_TO_GO:
                raise
            return False
        return True

    def _remove(self, path: Path) -> None:
        self.dirty.forget(path)
        with suppress(FileNotFoundError):
            self._files.unlink(path)
        self.opened.drop(path)  # afterwards, as a sync by another thread may have opened it again

    def _kinds(self, kept_entries: int) -> tuple[QueueFolderKind, ...]:
        """The kinds of queue folders, with the lengths of their files."""
        from lakelog_queues.files.invalid_files import QueueFolderKind as Kind

        sizes, batch, ext = (
            self._settings,
            layout.BATCHCONSUMEQUEUE_DIR,
            layout.CONSUMEQUEUE_EXT_DIR,
        )
        size, proved = sizes.file_entries * UNIT_BYTES, kept_entries == sizes.file_entries
        batch_size, ext_size = sizes.batch_file_size_bytes, sizes.ext_file_size_bytes
        return (
            Kind(layout.CONSUMEQUEUE_DIR, size, UNIT_BYTES, "file_entries", proved=proved),
            Kind(ext, ext_size, 1, "ext_file_size_bytes", gapless=True),
            Kind(batch, batch_size, BATCH_UNIT_BYTES, "batch_file_size_bytes", gapless=True),
        )

    def _places(self, queue: Queue) -> list[Path]:
        """The folders to read a queue from; missing ones if its files are to be ignored."""
        folders = self.folders(queue)
        return [each / _NOWHERE for each in folders] if queue in self._left_out else folders

    def _simple(self, queue: Queue) -> SimpleQueue:
        from lakelog_queues.files.folders import UnitFiles
        from lakelog_queues.files.simplequeue import Overlay, SimpleQueue

        (ext_folder, folder, _), reads = self._places(queue), self._read_only
        size = self._settings.file_entries * UNIT_BYTES
        unit_files = UnitFiles(self._files, folder, size, dirty=self.dirty, opened=self.opened)
        ext = None
        if self._settings.ext_enabled or ext_folder.is_dir():
            from lakelog_queues.files.ext import ExtFiles  # most stores never need it

            size = self._settings.ext_file_size_bytes
            ext = ExtFiles(self._files, ext_folder, size, read_only=reads, opened=self.opened)
            ext.load()
        replaces = queue[0] == REPAIRED_TOPIC
        memory, replaced = Overlay(0) if reads else None, None if replaces else self._replaced
        writes = self._settings.ext_enabled and not reads
        made = SimpleQueue(queue, unit_files, ext, writes, memory, replaced)
        if replaces:
            self._replaced.watch(queue, made)
        return made

    def _batch(self, queue: Queue) -> BatchQueue:
        from lakelog_queues.files.batchqueue import BatchQueue, BatchQueueFiles

        folder, size = self._places(queue)[2], self._settings.batch_file_size_bytes
        reads = self._read_only
        files = BatchQueueFiles(self._files, folder, size, read_only=reads, opened=self.opened)
        files.load()
        return BatchQueue(queue, files)


def topics_with_batches(path: Path) -> frozenset[str]:
    """Topics that have batch queues only, whatever their configuration is."""
    batch, simple = (
        folders_in(path / each) for each in (layout.BATCHCONSUMEQUEUE_DIR, layout.CONSUMEQUEUE_DIR)
    )
    return frozenset(each.name for each in batch) - {each.name for each in simple}


def queues_in(root: Path) -> Iterator[Queue]:
    """The queues that have a folder in ``root``."""
    for topic in folders_in(root):
        for queue in folders_in(topic):
            if queue.name.isdecimal() and queue.name.isascii():
                yield topic.name, int(queue.name)


def batch_topics(files: FileSystem, path: Path) -> frozenset[str]:
    """The topics of the store directory ``path`` whose ``queue.type`` is ``BatchCQ``."""
    topics = path / layout.CONFIG_DIR / _TOPICS_FILE
    if not topics.parent.is_dir():
        return frozenset()
    from lakelog_rocketmq.config import load_config  # most stores have no topics to read

    try:
        return load_config(files, topics, _batch_topics).value
    except CorruptConfig as error:
        _LOG.warning("it is ignored: %s", error)
        return frozenset()


def _batch_topics(document: Mapping[str, Any]) -> frozenset[str]:
    """The same; other attributes of topics are not read, so an odd one stops nothing here."""
    table = document.get("topicConfigTable") or {}
    return frozenset(
        topic
        for topic, config in table.items()
        if (config.get("attributes") or {}).get("queue.type") == "BatchCQ"
    )
