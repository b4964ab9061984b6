"""Creates the queue objects of a store directory, and removes files that no queue may have.

Modules of queues are imported for the first queue, so that the open of a new store imports less.

Files with an impossible length or name are moved to the quarantine. Nothing is lost, because queues
are rebuilt from the log. But if all files have the same impossible length, the settings are wrong
and the files are right; then an error is raised and no file moves.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import attrs

from lakelog.errors import CorruptConfig, CorruptQueue
from lakelog.files.filesystem import FileSystem, folders_in, free_name
from lakelog.files.segment_files import SegmentFile, segment_files
from lakelog.format import layout
from lakelog.format.properties import REPAIRED_TOPIC
from lakelog.lazy import cached_property
from lakelog_queues.files.openfiles import DirtyFiles, OpenFiles
from lakelog_queues.plugin import BATCH_UNIT_BYTES, UNIT_BYTES, ConsumeQueueSettings

if TYPE_CHECKING:
    from lakelog.format.queue_offsets import Queue
    from lakelog_queues.files.batchqueue import BatchQueue
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
_NAME_BYTES: Final = 200
"""Longest name in the quarantine; of the 255 bytes of a name, a number may take some."""
_LEFT_OUT: Final = "left-out"
"""The name of a folder that never exists."""
NOWHERE: Final = 1 << 63
"""Behind every offset of a log."""
_LOG: Final = logging.getLogger("lakelog")


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

        Raises :class:`~lakelog.errors.CorruptQueue` if the settings are wrong; then no file was
        moved.
        """
        odd = self._invalid(kept_entries)
        for folder, file in odd:
            _move(self._files, self._path, folder, file)
        return bool(odd)

    def exclude_invalid(self, kept_entries: int) -> bool:
        """The same for readers, which ignore all files of such queues from now on."""
        found: set[Queue] = set()
        for _, file in self._invalid(kept_entries):
            _LOG.warning(
                "%s has a wrong length (%d bytes) or name; its queue is read from the log instead. "
                "Open the store with mode='write' to rebuild the file",
                file.path,
                file.length,
            )
            topic, queue_id = file.path.parts[-3:-1]
            if queue_id.isdecimal():
                found.add((topic, int(queue_id)))
        self._left_out |= found
        return bool(found)

    def make(self, queue: Queue) -> AnyQueue:
        """A queue of the right kind, not loaded yet."""
        return self._batch(queue) if queue[0] in self._batch_topics else self._simple(queue)

    def present(self) -> Iterator[AnyQueue]:
        """The queues that have a folder, not loaded yet."""
        return map(self.make, present_queues(self._path, self._batch_topics))

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

    def _invalid(self, kept_entries: int) -> list[tuple[str, SegmentFile]]:
        """Files with a wrong length or name, each with the folder of its kind."""
        wanted, (ext, simple, batch) = self._settings, DIRECTORIES
        size, proved = wanted.file_entries * UNIT_BYTES, kept_entries == wanted.file_entries
        ext_size, batch_size = wanted.ext_file_size_bytes, wanted.batch_file_size_bytes
        kind = QueueFolderKind
        kinds = (
            kind(simple, size, UNIT_BYTES, "file_entries", proved=proved),
            kind(ext, ext_size, 1, "ext_file_size_bytes", gapless=True),
            kind(batch, batch_size, BATCH_UNIT_BYTES, "batch_file_size_bytes", gapless=True),
        )
        found = ((each, _invalid_of(self._files, self._path, each)) for each in kinds)
        return [(each.folder, file) for each, odd in found for file in odd]

    def _places(self, queue: Queue) -> list[Path]:
        """The folders to read a queue from; missing ones if its files are to be ignored."""
        folders = self.folders(queue)
        return [each / _LEFT_OUT for each in folders] if queue in self._left_out else folders

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


@attrs.define(eq=False)
class RemovedQueues:
    """The removed queues of which a crash or an error left files.

    They are not read any more. They are removed before a queue with the same name is created.

    :ivar again: physical offset from which records for such queues must be dispatched again
    """

    _files: FileSystem
    _path: Path
    _maker: QueueMaker
    _tombstones: Mapping[str, int]
    _read_only: bool
    again: int = NOWHERE
    _left: set[Queue] = attrs.field(factory=set)

    def owns(self, queue: AnyQueue) -> bool:
        """Whether the files of a queue that was just loaded belong to a removed topic."""
        end = self._tombstones.get(queue.queue[0], 0)
        if not end:
            return False
        oldest = queue.oldest()
        return oldest < end if oldest is not None else queue.is_empty()

    def take(self, queue: AnyQueue) -> None:
        """Hide a queue; :meth:`remove` removes its files."""
        queue.close()
        self.again = min(self.again, self._tombstones[queue.queue[0]])
        if self._read_only:
            self._maker.leave_out(queue.queue)  # its owner removes the files
        else:
            self._left.add(queue.queue)

    def remove(self, only: Queue | None = None) -> None:
        """Remove the files; after an ``OSError`` the next call continues.

        :param only: a queue, which need not have remaining files; ``None`` is all
        """
        for name in sorted(self._left if only is None else self._left & {only}):
            self._maker.remove_folders(name)
            self._left.discard(name)

    def finish(self) -> None:
        """Remove the files that an earlier process left; after an error they stay hidden."""
        if self._read_only or not self._tombstones:
            return
        try:
            if self._left:
                self._files.sync_dir(self._path / layout.OWN_DIR)  # tombstones first, then removals
                self.remove()
            for topic in self._tombstones:
                self._maker.remove_topic(topic)
        except OSError as error:
            _LOG.warning(
                "%s: files of removed topics could not be removed; they are not read, and the next "
                "open tries again: %s",
                *(self._path, error),
            )


def topics_with_batches(path: Path) -> frozenset[str]:
    """Topics that have batch queues only, whatever their configuration is."""
    batch, simple = (
        folders_in(path / each) for each in (layout.BATCHCONSUMEQUEUE_DIR, layout.CONSUMEQUEUE_DIR)
    )
    return frozenset(each.name for each in batch) - {each.name for each in simple}


def present_queues(path: Path, batch_topics: Collection[str]) -> Iterator[Queue]:
    """The queues that have a folder of their kind in the store directory ``path``."""
    for name in _UNITS:
        for queue in queues_in(path / name):
            if (queue[0] in batch_topics) == (name == layout.BATCHCONSUMEQUEUE_DIR):
                yield queue


def queues_in(root: Path) -> Iterator[Queue]:
    """The queues that have a folder in ``root``."""
    for topic in folders_in(root):
        for queue in folders_in(topic):
            if queue.name.isdecimal() and queue.name.isascii():
                yield topic.name, int(queue.name)


def batch_topics(files: FileSystem, path: Path) -> frozenset[str]:
    """The topics of the store directory ``path`` whose ``queue.type`` is ``BatchCQ``."""
    topics = path / layout.CONFIG_DIR / "topics.json"
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
    from lakelog_rocketmq.config import object_table

    found = object_table(document, "topicConfigTable").items()
    known = ((topic, each.get("attributes")) for topic, each in found if isinstance(each, Mapping))
    return frozenset(
        topic
        for topic, attributes in known
        if isinstance(attributes, Mapping) and attributes.get("queue.type") == "BatchCQ"
    )


class QueueFolderKind(NamedTuple):
    """A folder of the store directory that holds queues of one kind.

    :ivar folder: its name in the store directory
    :ivar size_bytes: the required length of each file
    :ivar unit_bytes: every valid value of ``setting`` gives a multiple of this length
    :ivar setting: the setting of ``[consume-queue]`` that determines the length
    :ivar proved: whether the present value of the setting is known to be right
    :ivar gapless: whether files after a missing one cannot be used
    """

    folder: str
    size_bytes: int
    unit_bytes: int
    setting: str
    proved: bool = False
    gapless: bool = False


def _invalid_of(files: FileSystem, path: Path, kind: QueueFolderKind) -> list[SegmentFile]:
    """The files of one kind with a wrong length or name; raises if the setting is wrong instead."""
    folders = (each for topic in folders_in(path / kind.folder) for each in folders_in(topic))
    queues = [segment_files(each, files.list(each)) for each in folders]
    odd = [file for queue in queues for file in _odd(queue, kind)]
    lengths = {file.length for queue in queues for file in queue if file.length}
    if odd and not kind.proved and len(lengths) == 1 and kind.size_bytes not in lengths:
        (length,) = lengths
        if not length % kind.unit_bytes:
            raise CorruptQueue(
                f"all queue files have {length} bytes, but consume-queue.{kind.setting} requires "
                f"{kind.size_bytes}; restore the value they were made with, or rebuild the queues",
                path=odd[0].path,
            )
    return odd


def _odd(queue: Sequence[SegmentFile], kind: QueueFolderKind) -> Iterator[SegmentFile]:
    following = None
    for file in queue:
        fits = file.length in (0, kind.size_bytes) and not file.start_offset % kind.size_bytes
        if not fits or (kind.gapless and following not in (None, file.start_offset)):
            yield file
        else:
            following = file.start_offset + kind.size_bytes


def _move(files: FileSystem, path: Path, folder: str, file: SegmentFile) -> None:
    quarantine = path / layout.OWN_DIR / layout.QUARANTINE_DIR
    files.make_dir(quarantine)
    topic, queue_id = file.path.parts[-3:-1]
    name = os.fsencode(f"{folder}-{queue_id}-{file.path.name}-{topic}")[:_NAME_BYTES]
    target = free_name(quarantine / name.decode(errors="ignore"))
    files.rename(file.path, target)
    files.sync_dir(quarantine)
    files.sync_dir(file.path.parent)
    _LOG.warning(
        "%s has a wrong length (%d bytes) or name; it was moved to %s, and its queue is "
        "completed from the log",
        file.path,
        file.length,
        target,
    )
