"""The dispatcher ``consume-queue``: builds all queues of a store from its log, and reads them.

One thread dispatches; any thread reads. A unit is visible once it is written.

A reader builds units in memory while an owner writes the files. It starts at an offset before which
no unit can be missing. The queues of the owner were complete once. Since then it has dispatched in
the order of the log, one batch to all queues before the next. A batch spans at most
``BATCH_BYTES``, unless it is one larger record. Let D be the end of the last batch that is in all
queues.

1. The batch of any unit in a file begins at or before D. Let the unit's record start at ``o``. If
   the record is a batch of its own, then ``D >= o``. Otherwise the batch contains the record, spans
   at most ``BATCH_BYTES`` and begins at or before D; so ``D > o - BATCH_BYTES``. Hence every record
   that ends at or before ``o - BATCH_BYTES`` has all its units.
2. Queues are loaded one after the other, while the owner continues. A file that is loaded after
   ``o`` was read holds all units up to there. So the queues are loaded twice: the first load
   determines ``o``, and only the second is used.

Therefore a dispatch from a record at or before ``o - BATCH_BYTES`` adds all missing units; existing
ones are not added again. All this also holds if the owner has died, or if other owners followed:
their writes are in the page cache, complete up to the last batch.
Queues are synced at intervals, in a thread; see :class:`Flushing`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from lakelog.errors import CorruptQueue, StoreFailed, ThreadNotStarted
from lakelog.files import queue_ends
from lakelog.files.checkpoint import CheckpointKeeper, StoreCheckpoint
from lakelog.files.filesystem import identity_at, no_sync_tried
from lakelog.format.layout import ABORT_FILE, CONFIG_DIR, OWN_DIR
from lakelog.format.properties import LIGHT_QUEUE_PREFIX
from lakelog.format.queue_offsets import Queue, Units
from lakelog.format.queue_survey import explains
from lakelog.lazy import cached_property
from lakelog.log.sources import FileSource, read_at
from lakelog.runtime.locks import LockFreeEvent, Mutex
from lakelog.runtime.threads import Shortage, started
from lakelog_queues.dispatching import making
from lakelog_queues.dispatching.tombstones import delete_topic, lower_tombstones, read_tombstones
from lakelog_queues.plugin import ConsumeQueueSettings

if TYPE_CHECKING:
    from lakelog.format.record_batch import RecordBatch
    from lakelog.hooks import Context
    from lakelog.hooks.dispatching import Verifier
    from lakelog_queues.dispatching.grouping import Grouping
    from lakelog_queues.dispatching.making import AnyQueue
    from lakelog_queues.files.openfiles import PlainUnits
_LOG: Final = logging.getLogger("lakelog")

BATCH_BYTES: Final = 512 << 10
"""Length of a batch that an owner dispatches (``lakelog.log.scan.WINDOW_BYTES``)."""
_SLACK_BYTES: Final = 3 * BATCH_BYTES
"""One batch is enough; the others allow for owners with another version of lakelog."""
_PROGRESS_FILES: Final = ("consumerOffset.json", "delayOffset.json")
"""RocketMQ's files of ``config/`` with queue offsets, or of each the ``.bak``."""
_GROUPS_DIR: Final = "groups"
"""The folder of the states of groups in lakelog's own folder."""
_UNKNOWN_FORMER: Final = 1000
"""Former ends of queues, beside twice the known ones, at which it is asked which are known."""
_KEPT_MARKS: Final = 2
"""Two, because a power cut may remove the record of the latest mark from the log."""


class ConsumeQueues:
    """A :class:`~lakelog.hooks.Dispatcher` and :class:`~lakelog.hooks.QueueReader`.

    :ivar directories: the folders of the store directory that hold queues
    """

    directories: Sequence[str] = making.DIRECTORIES

    def __init__(self, settings: ConsumeQueueSettings, context: Context) -> None:
        """Create the dispatcher; must be called before the owner writes the file ``abort``.

        Reads only tombstones, ``config/topics.json`` and the names of folders.
        """
        files, path = context.files, context.path
        self._files = files
        self._path = path
        # A reader beside a living owner continues its queues as after a clean stop.
        self._clean = context.owner_follows or not self._is_open()
        self._read_only = context.read_only
        self._settings = settings
        self._tombstones = read_tombstones(files, path)
        self._light_queues = context.core.light_queues
        self._batch_topics = making.batch_topics(files, path) | making.topics_with_batches(path)
        self._maker = making.QueueMaker(files, path, settings, self._batch_topics, self._read_only)
        self._queues: dict[Queue, AnyQueue] = {}
        self._changes = 0  # of the names of queues
        self._listed: tuple[int, list[Queue]] = (0, [])
        self._removed = making.RemovedQueues(
            files, path, self._maker, self._tombstones, self._read_only
        )
        self._loaded = False
        self._thorough = not self._clean
        log_path, segment_bytes = context.core.commitlog(path), context.core.segment_size_bytes
        self._log = FileSource(files, log_path, segment_bytes)
        self._marks: tuple[queue_ends.RecordFingerprint, ...] = ()
        self._kept: queue_ends.DurableQueueEnds | None = None
        self._former: dict[Queue, int] = {}
        self._most_former = _UNKNOWN_FORMER
        self._dispatched: queue_ends.RecordFingerprint | None = None
        self._flushing = Flushing(settings, context.checkpoint, self._sync, self._note)

    @cached_property
    def _grouping(self) -> Grouping:
        """Builds units from records; imported for the first ones."""
        from lakelog_queues.dispatching.grouping import Grouping

        # The message of a light queue that is there must not be lost to it by another setting.
        has_light = any(topic.startswith(LIGHT_QUEUE_PREFIX) for topic, _ in self._queues)
        return Grouping(self._batch_topics, self._light_queues or has_light, self._tombstones)

    # --- dispatching ---

    def resume(self, minimum: int, end: int) -> int:
        """Load the queues, remove units after ``end``, and return the offset to dispatch from.

        An owner starts after the latest mark that is proved by the log, because all units before it
        were synced (see :mod:`lakelog.files.queue_ends`). It starts earlier if a
        queue lacks units that it had then, and at ``minimum`` if no mark is proved, as in a store
        that RocketMQ wrote last. A reader starts a few batches before the end of the queues while
        an owner writes them (see the module), and after a clean stop after the last
        record that has a unit. Records that are dispatched again change nothing if their units are
        right.

        Files with an impossible length or name are moved to ``lakelog/quarantine``. Raises
        :class:`~lakelog.errors.CorruptQueue` for files that other settings created.

        :param minimum: physical offset of the first byte of the log
        :param end: physical offset of its end
        """
        self._maker.minimum = minimum
        start = self._resume_reading(end) if self._read_only else self._resume_owning(minimum, end)
        self._removed.finish()
        self.truncate(end)
        return min(max(min(start, self._removed.again), minimum), end)

    def _resume_owning(self, minimum: int, end: int) -> int:
        lower_tombstones(self._files, self._path, self._tombstones, end)
        kept = self._kept = queue_ends.read_kept(self._files, self._path)
        self._marks = tuple(each for each in kept.marks if each.end <= end and self._proves(each))
        self._thorough = not (self._clean and self._marks)
        self._load_or_quarantine(kept)
        if self._thorough:
            self._drop_foreign_queues(minimum)
        gone = self._gone(kept, minimum)
        both = (*gone.items(), *kept.former.items())
        self._former = {queue: max(end, gone.get(queue, 0)) for queue, end in both}
        for name, queue in self._queues.items() if not self._clean else ():
            # Files that may not be durable are synced at the next flush.
            queue.mark_unsynced(kept.ends.get(name, 0) if self._marks else 0)
        return min(self._lacking(kept), self._marks[0].end) if self._marks else 0

    def _gone(self, kept: queue_ends.DurableQueueEnds, minimum: int) -> dict[Queue, int]:
        """The last ends of queues whose files are gone; those of records that were cut are none."""
        is_proved = self._marks[:1] == kept.marks[:1]
        return {
            queue: end
            for queue, end in kept.ends.items()
            if queue not in self._queues and (is_proved or explains(end, minimum))
        }

    def settle_offsets(self, next_offsets: dict[Queue, int], minimum: int) -> None:
        """Keep progress and the ends of queues together before the first append.

        A queue without records and files continues at its former end, or else at the highest offset
        that a group committed. Other offsets beyond the end of their queue are set to that end: its
        messages were lost, and new ones will have these offsets.

        :param next_offsets: by queue, the offset of its next message; queues are added

        Raises :class:`~lakelog.errors.StoreError` if an offset cannot be set.
        """
        for queue, end in self._former.items():
            next_offsets.setdefault(queue, end)
        config = self._path / CONFIG_DIR
        if any(map(identity_at, (config / each for each in _PROGRESS_FILES))):
            from lakelog_queues.configs import settle_offsets  # most stores have no progress

            settle_offsets(self._files, self._path, next_offsets, minimum)
        if identity_at(self._path / OWN_DIR / _GROUPS_DIR):
            from lakelog_queues.groups.state_words import settle_states

            settle_states(self._files, self._path, next_offsets)
        self._former = self._still_known(self._former)

    def _still_known(self, former: dict[Queue, int]) -> dict[Queue, int]:
        """Former ends without those of queues in which nobody has progress.

        So the list does not grow with each topic that ever was.
        """
        if former:
            from lakelog_queues.configs import known_queues

            known = known_queues(self._files, self._path)
            if known is not None:
                former = {each: end for each, end in former.items() if known(each)}
        self._most_former = 2 * len(former) + _UNKNOWN_FORMER
        return former

    def _proves(self, mark: queue_ends.RecordFingerprint) -> bool:
        """Whether the log has the record of ``mark`` at its place."""
        return bytes(read_at(self._log, mark.offset, queue_ends.HEAD_BYTES)) == mark.head

    def _load_or_quarantine(self, kept: queue_ends.DurableQueueEnds) -> None:
        """Load the queues; if files are invalid, move them to the quarantine and load again."""
        try:
            self._load()
        except CorruptQueue:
            if not self._maker.quarantine_invalid(kept.file_entries):
                raise
            self._thorough, self._marks = True, ()
            self._load()

    def _drop_foreign_queues(self, minimum: int) -> None:
        """Remove queues whose first unit has no record in the log, as it hides earlier records."""
        for queue in self._queues.values():
            first = queue.read(queue.bounds(0)[0], 1)
            if not len(first) or int(first.offsets[0]) < minimum:
                continue
            if self._lacks_record(int(first.offsets[0]), int(first.sizes[0])):
                queue.remove()

    def _lacks_record(self, offset: int, size: int) -> bool:
        """Whether the log has bytes at ``offset``, but no record of this size."""
        head = read_at(self._log, offset, queue_ends.HEAD_BYTES)
        if len(head) < queue_ends.HEAD_BYTES:
            return len(head) > 0
        return queue_ends.PLACE.unpack_from(head) != (size, offset)

    def _lacking(self, kept: queue_ends.DurableQueueEnds) -> int:
        """The physical offset from which a queue lacks units that it had at the last sync."""
        found = making.NOWHERE
        for queue in self._short(kept):
            there = self._queues.get(queue)
            reached = 0 if there is None or self._starts_late(there, kept) else there.reached
            found = min(found, max(reached, self._tombstones.get(queue[0], 0)))
        return found

    def _short(self, kept: queue_ends.DurableQueueEnds) -> list[Queue]:
        """Queues that lack units that they had at the last sync."""
        short = [
            queue
            for queue, end in kept.ends.items()
            if self._end_of(queue) < end or self._starts_late(self._queues.get(queue), kept)
        ]
        if short:
            _LOG.warning(
                "%s: %d queues lack units that they had at the last sync, such as %s; the missing "
                "units are added from the log",
                self._path,
                len(short),
                "/".join(map(str, short[0])),
            )
        return short

    @staticmethod
    def _starts_late(queue: AnyQueue | None, kept: queue_ends.DurableQueueEnds) -> bool:
        """Whether files at the front are missing."""
        return queue is not None and queue.first > kept.firsts.get(queue.queue, 0)

    def _has_all(self) -> bool:
        """Whether no queue lacks units that it had at the last sync, except of removed topics."""
        short = self._short(queue_ends.read_kept(self._files, self._path))
        return all(topic in self._tombstones for topic, _ in short)

    def _end_of(self, queue: Queue) -> int:
        found = self._queues.get(queue)
        return 0 if found is None else found.end

    def _resume_reading(self, end: int) -> int:
        """The offset up to which all queues are complete, although an owner may be writing them."""
        calm = self._clean and not self._is_open()
        sound = self._load_without_damaged()
        if not (self._clean and sound and self._has_all()):
            return 0
        if calm and not self._is_open() and self._reached() <= end:
            return self._reached()
        limit = complete_to(self._queues.values())
        return start_before(self._queues.values(), limit) if limit and self._load() else 0

    def _load_without_damaged(self) -> bool:
        """Load the queues, ignoring the files of damaged ones; returns whether all are sound."""
        try:
            return self._load()
        except CorruptQueue:
            kept = queue_ends.read_kept(self._files, self._path)
            if not self._maker.exclude_invalid(kept.file_entries):
                raise
            self._load()
            return False

    def _is_open(self) -> bool:
        """Whether an owner is running, or has crashed."""
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
            queue = self._opened(group.queue)
            if group.raw is None or not queue.follow(group.raw, group.first):
                queue.append(*group.columns)
        self._dispatched = queue_ends.RecordFingerprint.of(batch)
        (first, _, _), (last, size, last_ms) = batch.head(0), batch.head(-1)
        self._flushing.dispatched(last_ms, last + size - first)
        if not self._read_only:
            self._flushing.start()

    def truncate(self, end_offset: int) -> None:
        """Remove the units of records at or after ``end_offset``, and queues that become empty.

        Later marks are dropped too, as those records will be dispatched again.
        """
        self._ensure_loaded()
        self._marks = tuple(each for each in self._marks if each.end <= end_offset)
        if self._dispatched is not None and self._dispatched.end > end_offset:
            self._dispatched = None
        for queue in list(self._queues.values()):
            queue.truncate(end_offset)
            if queue.is_empty():
                del self._queues[queue.queue]
                self._changes += 1

    def forget_topic(self, topic: str, end_offset: int) -> None:
        """Remove a topic's queues; its records below ``end_offset`` get no units any more.

        Must be called between two dispatches. An owner writes the tombstone first, see
        :func:`.tombstones.delete_topic`. Readers see none of the queues before the first file is
        removed. After an error, remaining files are removed by the next call of this method or of
        :meth:`remove_before`, at the next record for such a queue, or by the next owner.
        """
        if self._read_only:
            self._drop_queues(topic, end_offset)
            return
        self._ensure_loaded()
        ends = {name: each.end for name, each in self._queues.items() if name[0] == topic}
        with self._flushing.one_at_a_time:  # durable before the first file is removed
            self._former = {**self._former, **ends}
            if len(self._former) > self._most_former:
                self._former = self._still_known(self._former)
            kept = (self._kept or queue_ends.DurableQueueEnds())._replace(former=self._former)
            if kept != self._kept:
                queue_ends.write_kept(self._files, self._path, kept)
                self._kept = kept
        delete_topic(self._files, self._path, topic, end_offset, self._drop_queues)

    def _drop_queues(self, topic: str, end_offset: int) -> None:
        self._ensure_loaded()
        self._tombstones[topic] = max(end_offset, self._tombstones.get(topic, 0))
        removed = [queue for name, queue in self._queues.items() if name[0] == topic]
        self._queues = {name: each for name, each in self._queues.items() if name[0] != topic}
        self._changes += 1
        for queue in removed:
            self._removed.take(queue)
        self._removed.remove()

    def remove_before(self, minimum: int) -> int:
        """Remove files whose records are all before ``minimum``; returns their number."""
        self._ensure_loaded()
        self._removed.remove()
        due = [each for each in self._queues.values() if each.exclude_before(minimum)]
        if due:
            # Write the new starts of the queues first. Otherwise the next open would compare with
            # the old ones, take the removed units for lost, and rebuild the queues.
            self.flush()
        return sum(each.remove_front() for each in due)

    def flush(self) -> None:
        """Sync all queues, then advance the checkpoint; raises ``StoreFailed``."""
        if not self._read_only:
            self._flushing.flush()

    def close(self) -> None:
        """Flush and close all files.

        Raises ``StoreFailed`` if a sync failed. The stop is then not clean, and the next owner
        checks all queues.
        """
        self._flushing.stop()
        try:
            self.flush()
        finally:
            for queue in self._queues.values():
                queue.close()
            self._maker.opened.close()

    def _note(self) -> Callable[[], None]:
        """Note the ends of all queues before a full sync; call the result after it."""
        latest = self._dispatched
        if not self._loaded or self._read_only:
            return lambda: None
        older = tuple(each for each in self._marks if each != latest)
        marks = self._marks if latest is None else (latest, *older)[:_KEPT_MARKS]
        queues = list(self._queues.items())
        kept = queue_ends.DurableQueueEnds(
            {name: self._end_of(name) for name, _ in queues},
            {name: queue.first for name, queue in queues},
            self._settings.file_entries,
            marks,
            self._former,
        )
        return lambda: self._keep(kept)

    def _keep(self, kept: queue_ends.DurableQueueEnds) -> None:
        """Write the ends; on an error keep the older ones, which are still true lower bounds."""
        if kept == self._kept:
            return
        try:
            queue_ends.write_kept(self._files, self._path, kept)
            self._kept, self._marks = kept, kept.marks
        except OSError as error:
            _LOG.warning("%s: the ends of queues could not be written: %s", self._path, error)

    # --- reading ---

    @property
    def tombstones(self) -> Mapping[str, int]:
        """By topic, the physical offset below which its records have no units here."""
        return self._tombstones

    def queues(self) -> Sequence[Queue]:
        """All existing queues; the same list until a queue is added or removed."""
        self._ensure_loaded()
        changes, names = self._listed
        if changes != self._changes:
            changes = self._changes  # read before: another thread may add a queue meanwhile
            names = list(self._queues)
            self._listed = changes, names
        return names

    def bounds(self, queue: Queue, minimum: int) -> tuple[int, int] | None:
        """The first queue offset of a record at or after ``minimum``, and the next to be written.

        ``None`` if there is no such queue.
        """
        found = self._found(queue)
        return None if found is None else found.bounds(minimum)

    def reached(self, queue: Queue) -> int:
        """Physical end offset of the last record that has a unit; 0 without one."""
        found = self._found(queue)
        return 0 if found is None else found.reached

    def units(self, queue: Queue, first: int, count: int) -> Units:
        """At most ``count`` units from queue offset ``first`` on; empty without such a queue."""
        found = self._found(queue)
        if found is None:
            from lakelog_queues.units.simpleunits import no_units

            return no_units()
        return found.read(first, count)

    def plain(self, queue: Queue, minimum: int, offset: int | None) -> PlainUnits | None:
        """The place of a unit for compiled code; see :meth:`.SimpleQueue.plain`."""
        found = self._queues.get(queue)
        return None if found is None else found.plain(minimum, offset)

    def kind(self, queue: Queue) -> str:
        """``SimpleCQ`` or ``BatchCQ``."""
        return (self._found(queue) or self._maker.make(queue)).kind

    def verifier(self, minimum: int, *, living: bool) -> Verifier:
        """Begin a check of the present files; see ``Verifiable``.

        :param living: whether an owner writes meanwhile
        """
        from lakelog_queues.check import QueuesVerifier  # for operators only

        where = self._files, self._path, self._settings
        grouped = self._batch_topics, self._light_queues, self._tombstones
        return QueuesVerifier(*where, *grouped, minimum, living)

    # --- the parts ---

    def _found(self, queue: Queue) -> AnyQueue | None:
        if not self._loaded:
            self._load()
        return self._queues.get(queue)

    def _ensure_loaded(self) -> None:
        if not self._loaded:
            self._load()

    def _load(self) -> bool:
        """Read the end of each queue; returns whether all of them look right."""
        sound = True
        loaded: dict[Queue, AnyQueue] = {}
        for queue in self._maker.present():
            sound &= queue.load(thorough=self._thorough)
            if self._removed.owns(queue):
                self._removed.take(queue)
            elif not queue.is_empty():
                loaded[queue.queue] = queue
        self._queues = loaded
        self._changes += 1
        self._loaded = True
        return sound

    def _opened(self, queue: Queue) -> AnyQueue:
        """The queue, created if it does not exist."""
        found = self._queues.get(queue)
        if found is None:
            self._removed.remove(queue)  # files of a removed queue must not become part of it
            found = self._made(queue)
            if self._removed.owns(found) and not found.is_empty():  # the owner is removing it now
                self._removed.take(found)
                found = self._made(queue)
            self._queues[queue] = found
            self._changes += 1
        return found

    def _made(self, queue: Queue) -> AnyQueue:
        made = self._maker.make(queue)
        made.load(thorough=self._thorough)
        return made

    def _sync(self, least_pages: int) -> None:
        for queue in list(self._queues.values()):
            queue.flush(least_pages)  # first the extension files, to which units point
        self._maker.dirty.sync(least_pages)


def complete_to(queues: Collection[AnyQueue]) -> int:
    """The physical offset up to which every queue that is loaded from now on has its units."""
    last = max(queues, key=lambda queue: queue.reached, default=None)
    return 0 if last is None else max(0, last.before(last.reached) - _SLACK_BYTES)


def start_before(queues: Collection[AnyQueue], limit: int) -> int:
    """The start or end of a record at or shortly before ``limit``; 0 if none is known."""
    found = max((queue.reached for queue in queues if queue.reached <= limit), default=0)
    for queue in queues:
        if found >= limit - BATCH_BYTES:
            break
        if queue.reached > limit:
            found = max(found, queue.before(limit + 1))
    return found


@attrs.define(eq=False)
class Flushing:
    """Syncs queues at intervals, in a thread; like RocketMQ's ``FlushConsumeQueueService``.

    At each interval, files with enough changed pages are synced. At each thorough interval, all
    files are synced, and the checkpoint advances. Unlike in RocketMQ, a thorough sync also follows
    a certain length of dispatched log, which limits the work of a recovery.

    After a failed sync there is no further one, because the operating system may have dropped the
    changed pages, and a later sync would succeed without them. Appending continues, as queues can
    be rebuilt from the log. But the checkpoint stays, and the next stop is not clean.

    :param sync: syncs the files with at least this number of changed pages; 0 is all
    :param note: called before a thorough sync; its result is called after it
    :ivar dispatched_ms: store time of the last record whose units are all written, in ms since 1970
    :ivar dispatched_bytes: length of the log dispatched so far
    :ivar failure: the error of a failed sync
    :ivar one_at_a_time: held during a sync and the note of what it made durable
    """

    _settings: ConsumeQueueSettings
    _checkpoint: CheckpointKeeper
    _sync: Callable[[int], None]
    _note: Callable[[], Callable[[], None]]
    dispatched_ms: int = 0
    dispatched_bytes: int = 0
    failure: BaseException | None = None
    _thorough_at: float = attrs.field(init=False)
    _thorough_bytes: int = 0
    one_at_a_time: Mutex = attrs.field(factory=Mutex)
    _over: bool = False
    _wake: LockFreeEvent = attrs.field(factory=LockFreeEvent)
    _thread: threading.Thread | None = None
    _has_warned: bool = False
    _shortage: Shortage = attrs.field(factory=lambda: Shortage("syncing queues is delayed"))

    def __attrs_post_init__(self) -> None:
        self._thorough_at = self._next_thorough()

    def _next_thorough(self) -> float:
        return time.monotonic() * 1000 + self._settings.flush_thorough_interval_ms

    def start(self) -> None:
        """Start the thread, unless it runs.

        If no thread can be started, this call flushes what is due, and the next call tries again.
        """
        if self._thread is None and not self._over:
            thread = threading.Thread(target=self._run, name="lakelog-flush-queues", daemon=True)
            try:
                self._thread = started(thread)
            except ThreadNotStarted as error:
                if not self._has_warned:
                    _LOG.warning("queues are flushed by the dispatching thread: %s", error)
                self._has_warned = True
                self._tick()

    def dispatched(self, last_ms: int, log_bytes: int) -> None:
        """Note a run of records whose units are written; may wake the thread for a thorough sync.

        :param last_ms: store time of its last record, in ms since 1970
        :param log_bytes: its length in the log
        """
        self.dispatched_ms = last_ms
        self.dispatched_bytes += log_bytes
        if self._has_many():
            self._wake.set()

    def stop(self) -> None:
        """Stop the thread, and wait for its end."""
        self._over = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def flush(self) -> None:
        """Sync everything, then advance the checkpoint; raises :class:`StoreFailed`."""
        with self.one_at_a_time:
            self.check()
            self._thorough()

    def check(self) -> None:
        """Raise :class:`StoreFailed` if an earlier sync failed."""
        if self.failure is not None:
            raise StoreFailed(
                f"a sync of a queue failed ({self.failure}); check the disk, then close and reopen "
                "the store"
            ) from self.failure

    def _run(self) -> None:
        while True:
            self._wake.wait(self._settings.flush_interval_ms / 1000)
            if self._over:
                return
            self._wake.clear()
            try:
                self._tick()
                self._shortage.end()
            except StoreFailed:
                return
            except Exception as error:
                if not no_sync_tried(error):
                    raise
                self._shortage.begin(error)

    def _tick(self) -> None:
        with self.one_at_a_time:
            self.check()
            if time.monotonic() * 1000 >= self._thorough_at or self._has_many():
                self._thorough()
            else:
                self._guarded(lambda: self._sync(self._settings.flush_least_pages))

    def _has_many(self) -> bool:
        behind = self.dispatched_bytes - self._thorough_bytes
        return behind >= self._settings.flush_thorough_bytes

    def _thorough(self) -> None:
        reached_ms = self.dispatched_ms  # read before the sync, which may miss later records
        self._thorough_bytes = self.dispatched_bytes
        keep = self._note()
        self._thorough_at = self._next_thorough()
        self._guarded(lambda: self._sync(0))
        self._guarded(keep)
        if reached_ms:
            self._guarded(
                lambda: self._checkpoint.advance(StoreCheckpoint(logics_timestamp_ms=reached_ms))
            )

    def _guarded(self, sync: Callable[[], None]) -> None:
        try:
            sync()
        except BaseException as error:  # after any other error, files may not be durable
            if no_sync_tried(error):
                self._thorough_at = 0  # soon
                raise
            self.failure = error
            self._checkpoint.freeze()
            _LOG.exception("a sync of a queue failed; close and reopen the store to dispatch again")
            self.check()
