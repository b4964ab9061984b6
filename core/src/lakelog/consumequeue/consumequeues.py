"""The dispatcher ``consume-queue``: all queues of a store, built behind the log and read.

One thread dispatches; any thread reads, and sees a unit once it is written.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from lakelog.checkpoint import CheckpointKeeper
from lakelog.codec.recordbatch import RecordBatch
from lakelog.consumequeue.batchqueue import NO_UNITS
from lakelog.consumequeue.beside import complete_to, start_before
from lakelog.consumequeue.ends import read_ends, write_ends
from lakelog.consumequeue.flushing import Flushing
from lakelog.consumequeue.grouping import Grouping
from lakelog.consumequeue.making import DIRECTORIES, AnyQueue, QueueMaker, topics_with_batches
from lakelog.consumequeue.settings import ConsumeQueueSettings
from lakelog.consumequeue.topicconfig import batch_topics
from lakelog.files import FileSystem
from lakelog.layout import ABORT_FILE
from lakelog.queueoffsets import Queue
from lakelog.units import Units
from lakelog.verifying import Verifier

_LOG: Final = logging.getLogger("lakelog")


class ConsumeQueues:
    """A :class:`~lakelog.interfaces.Dispatcher` and :class:`~lakelog.interfaces.QueueReader`.

    :ivar directories: the folders of the store directory that queues stand in
    """

    directories: Sequence[str] = DIRECTORIES

    def __init__(
        self,
        files: FileSystem,
        path: Path,
        settings: ConsumeQueueSettings,
        checkpoint: CheckpointKeeper,
        *,
        clean: bool,
        read_only: bool = False,
        light_queues: bool = False,
        tombstones: Mapping[str, int] | None = None,
    ) -> None:
        """Look at nothing yet but ``config/topics.json``.

        :param clean: whether the store was closed cleanly, before anybody opened it now; for a
            reader also, whether a living owner follows its log
        :param light_queues: whether records feed light queues
        :param tombstones: by topic, the physical offset below which its records make no units
        """
        self._files = files
        self._path = path
        self._clean = clean
        self._read_only = read_only
        self._settings = settings
        self._tombstones = dict(tombstones or {})
        batches = batch_topics(files, path) | topics_with_batches(path)
        self._grouping = Grouping(batches, light_queues, self._tombstones)
        self._maker = QueueMaker(files, path, settings, batches, read_only=read_only)
        self._queues: dict[Queue, AnyQueue] = {}
        self._loaded = False
        self._flushing = Flushing(settings, checkpoint, self._sync)

    # --- dispatching ---

    def resume(self, minimum: int, end: int) -> int:
        """Load the queues, drop units behind ``end``, and say from where to dispatch.

        After a clean stop: behind the last record that has a unit. For a reader beside an owner
        that follows its log: a few batches before that, see :mod:`.beside`. After any other stop:
        ``minimum``, because each queue may lack something of its own, in any of its files; what is
        there changes nothing when it comes again, and what is not is put right.
        """
        start = self._resume_reading(end) if self._read_only else self._resume_owning()
        self.truncate(end)
        return min(max(start, minimum), end)

    def _resume_owning(self) -> int:
        sound = self._load()
        if not self._clean:
            for queue in self._queues.values():
                queue.distrust()
        return self._reached() if self._clean and sound and self._has_all() else 0

    def _has_all(self) -> bool:
        """Whether no queue is shorter than it was at the last clean close."""
        short = [
            queue
            for queue, end in read_ends(self._files, self._path).items()
            if queue[0] not in self._tombstones and self._end_of(queue) < end
        ]
        if short:
            _LOG.warning(
                "%s: %d queues lack units that they had at the last close, %s among them; they "
                "are completed from the log",
                self._path,
                len(short),
                "/".join(map(str, short[0])),
            )
        return not short

    def _end_of(self, queue: Queue) -> int:
        found = self._queues.get(queue)
        bounds = None if found is None else found.bounds(0)
        return 0 if bounds is None else bounds[1]

    def _resume_reading(self, end: int) -> int:
        """Where queues are complete, although somebody may write them just now."""
        calm = self._clean and not self._is_open()
        sound = self._load()
        if not (self._clean and sound and self._has_all()):
            return 0
        if calm and not self._is_open() and self._reached() <= end:
            return self._reached()
        limit = complete_to(self._queues.values())
        return start_before(self._queues.values(), limit) if limit and self._load() else 0

    def _is_open(self) -> bool:
        """Whether there is an owner, or was one that crashed."""
        return (self._path / ABORT_FILE).exists()

    def _reached(self) -> int:
        return max((each.reached for each in self._queues.values()), default=0)

    def dispatch(self, batch: RecordBatch) -> None:
        """Write the units of a run of records: one write for each queue.

        Raises :class:`~lakelog.errors.StoreFailed` after a sync that failed, and ``OSError``.
        """
        self._flushing.check()
        self._ensure_loaded()
        if not len(batch):
            return
        for group in self._grouping.units(batch):
            self._opened(group.queue).append(group.units, group.store_times_ms)
        self._flushing.dispatched_ms = int(batch.store_timestamps_ms[-1])
        if not self._read_only:
            self._flushing.start()

    def truncate(self, end_offset: int) -> None:
        """Drop the units of records at or behind ``end_offset``, and queues that had no others."""
        self._ensure_loaded()
        for queue in list(self._queues.values()):
            queue.truncate(end_offset)
            if queue.is_empty():
                del self._queues[queue.queue]

    def forget_topic(self, topic: str, end_offset: int) -> None:
        """Remove a topic's queues; its records below ``end_offset`` make no units any more.

        To be called between two dispatches, once the tombstone is written.
        """
        self._ensure_loaded()
        self._tombstones[topic] = max(end_offset, self._tombstones.get(topic, 0))
        for name, queue in list(self._queues.items()):
            if name[0] == topic:
                del self._queues[name]
                queue.remove()
                queue.close()
                self._remove_folders(name)

    def flush(self) -> None:
        """Sync all queues, then let the checkpoint say so; raises ``StoreFailed``."""
        if not self._read_only:
            self._flushing.flush()

    def close(self) -> None:
        """Flush, then let go of files."""
        self._flushing.stop()
        try:
            if self._flushing.failure is None:
                self.flush()
                self._keep_ends()
        finally:
            for queue in self._queues.values():
                queue.close()
            self._maker.opened.close()

    def _keep_ends(self) -> None:
        """An older list is right too, as it asks for less: a full disk must not fail the close."""
        if self._loaded and not self._read_only:
            try:
                write_ends(self._files, self._path, {q: self._end_of(q) for q in self._queues})
            except OSError as error:
                _LOG.warning("%s: where queues end was not kept: %s", self._path, error)

    # --- reading ---

    def queues(self) -> Sequence[Queue]:
        """Every queue that is there."""
        self._ensure_loaded()
        return list(self._queues)

    def bounds(self, queue: Queue, minimum: int) -> tuple[int, int] | None:
        """The first queue offset of a record at or behind ``minimum``, and the next to come."""
        self._ensure_loaded()
        found = self._queues.get(queue)
        return None if found is None else found.bounds(minimum)

    def units(self, queue: Queue, first: int, count: int) -> Units:
        """At most ``count`` units from ``first`` on; none where the queue has none."""
        self._ensure_loaded()
        found = self._queues.get(queue)
        return NO_UNITS if found is None else found.read(first, count)

    def kind(self, queue: Queue) -> str:
        """``SimpleCQ`` or ``BatchCQ``."""
        self._ensure_loaded()
        found = self._queues.get(queue)
        return (found if found is not None else self._maker.make(queue)).kind

    def verifier(self, minimum: int, *, living: bool) -> Verifier:
        """Begin a check of the files as they stand; see :class:`~lakelog.verifying.Verifiable`."""
        from lakelog.consumequeue.checkqueues import Checked, QueuesVerifier  # for operators only

        grouping = self._grouping
        topics, lights = grouping.batch_topics, grouping.light_queues
        where = self._files, self._path, self._settings
        return QueuesVerifier(Checked(*where, topics, lights, self._tombstones, minimum, living))

    # --- the parts ---

    def _ensure_loaded(self) -> None:
        if not self._loaded:
            self._load()

    def _load(self) -> bool:
        """Read where each queue ends; whether all of them look as they should."""
        sound = True
        loaded: dict[Queue, AnyQueue] = {}
        for queue in self._maker.present():
            sound &= queue.load(thorough=not self._clean)
            if not queue.is_empty():
                loaded[queue.queue] = queue
        self._queues = loaded
        self._loaded = True
        return sound

    def _opened(self, queue: Queue) -> AnyQueue:
        """The queue, made if it is not there."""
        found = self._queues.get(queue)
        if found is None:
            found = self._maker.make(queue)
            found.load(thorough=not self._clean)
            self._queues[queue] = found
        return found

    def _sync(self, least_pages: int) -> None:
        for queue in list(self._queues.values()):
            queue.flush(least_pages)  # codes that are kept apart before the units that point there
        self._maker.dirty.sync(least_pages)

    def _remove_folders(self, queue: Queue) -> None:
        if self._read_only:
            return
        for folder in self._maker.folders(queue):
            for name, _ in self._files.list(folder):
                self._files.unlink(folder / name)
            with suppress(OSError):  # it is not there, or another queue of the topic is
                folder.rmdir()
                folder.parent.rmdir()
