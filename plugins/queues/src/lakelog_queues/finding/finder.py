"""Builds the objects that find messages in one store; lists topics and queues.

Compiled code does simple look-ups: it reads units or the key index, and then messages. The result
is the same as that of the other modules of :mod:`lakelog_queues.finding`. These handle the calls
that compiled code declines: calls to batch queues, to queues with extension files or with
replacement units from a repair, calls that span two unit files, and calls that meet damage, a body
decoder or an archive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType

import attrs

from lakelog.accelerate import current
from lakelog.arguments import queue_name, topic_name, whole
from lakelog.errors import StoreError
from lakelog.format.queue_offsets import Queue, Units
from lakelog.hooks import Dispatcher, HashChains, HashFiles, KeyIndex, QueueReader
from lakelog.log.log_reader import LogReader
from lakelog.log.segments import Viewable
from lakelog.log.sources import FileSource, OwnedBounds, ReadBounds, ViewSource
from lakelog.processes import shared_page as sharedpage
from lakelog_queues.finding.follow import QueueFollower
from lakelog_queues.finding.get import FILTERED_UNITS, MOST_BYTES, MOST_MESSAGES, QueueGetter
from lakelog_queues.finding.records import PlacedRecords
from lakelog_queues.finding.results import NO_LOOKUPS, GetResult, GetStatus, Lookups, QueueInfo
from lakelog_queues.finding.search import KeyQuery, TimeSearch
from lakelog_queues.readers import ArrivalSignal


@attrs.frozen
class ReadLog:
    """The log, as compiled code reads it.

    :ivar folder: the directory of the segments
    :ivar segment_bytes: length of each segment
    :ivar bounds: its readable range
    :ivar memory: the shared page, if this process owns the log; then it is read, not ``bounds``
    :ivar staged: the segments by start offset, whose ``view`` compiled code calls, if not all of
        their bytes are in files
    :ivar maps: memory maps of the segments by start offset, made by compiled code, if this process
        owns the log; whoever deletes or closes a segment drops its map
    """

    folder: Path
    segment_bytes: int
    bounds: ReadBounds
    memory: memoryview | None = None
    staged: Mapping[int, Viewable] | None = None
    maps: dict[int, object] | None = None


def readable(log: LogReader) -> ReadLog | None:
    """A log for direct reads by compiled code; ``None`` if records are not served as stored.

    That is the case with known damage, or with a decoder.
    """
    source, bounds = log.source, log.bounds
    if log.known_damage or log.decoder is not None:
        return None
    if isinstance(source, FileSource):
        folder = source.folder()
        return None if folder is None else ReadLog(folder, source.size_bytes, bounds)
    if not (type(source) is ViewSource and type(bounds) is OwnedBounds):
        return None
    words, segments = bounds.positions.words, source.segments
    folder = segments.folder()
    if folder is None or not isinstance(words, memoryview):
        return None
    staged = segments.open_segments if segments.staged else None
    return ReadLog(folder, segments.size_bytes, bounds, words.cast("B"), staged, segments.maps)


@attrs.frozen
class LookupParts:
    """The parts of a store that compiled code needs to look messages up.

    :ivar log: gives access to the bytes of the log
    :ivar plain: returns the place of a unit, see ``SimpleQueue.plain``; ``None`` if the queues
        cannot be read directly
    :ivar hash_files: see :class:`~lakelog.hooks.HashFiles`; ``None`` without such an index
    :ivar buried: returns the physical offset below which records of a topic do not count, because
        the topic was removed
    :ivar refresh: dispatches new records, called with whether the newest are wanted; ``None`` if
        another thread does, which is behind while the shared page says so
    :ivar layout: the module that defines the positions of the words in the shared page
    :ivar most_messages: the limit of one call; more are left to Python
    :ivar most_bytes: the limit of one call, for all records together
    :ivar filtered_units: the least number of units that a call with tags examines
    :ivar result: the class of the result
    :ivar status: the status of a result with messages
    :ivar no_match: the status of a result without a matching message
    """

    log: ReadLog
    plain: Callable[[Queue, int, int | None], object] | None
    hash_files: Callable[[], HashChains | None] | None
    buried: Callable[[str], int]
    refresh: Callable[[bool], object] | None
    layout: ModuleType = sharedpage
    most_messages: int = MOST_MESSAGES
    most_bytes: int = MOST_BYTES
    filtered_units: int = FILTERED_UNITS
    result: type[GetResult] = GetResult
    status: GetStatus = GetStatus.FOUND
    no_match: GetStatus = GetStatus.NO_MATCHED_MESSAGE


def lookups(
    queues: object,
    index: object,
    log: LogReader,
    tombstone_of: Callable[[str], int],
    refresh: Callable[[bool], object] | None,
) -> Lookups:
    """The lookups of this process's accelerator, or ones that always fall back to Python."""
    accelerator, read_log = current(), readable(log)
    if accelerator is None or read_log is None:
        return NO_LOOKUPS
    hash_files = index.hash_files if isinstance(index, HashFiles) else None
    plain = getattr(queues, "plain", None)
    parts = LookupParts(read_log, plain, hash_files, tombstone_of, refresh)
    return accelerator.lookups(parts) or NO_LOOKUPS


def java_order(text: str) -> bytes:
    """The sort key for Java's order of strings, which compares UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


@attrs.frozen
class QueueList:
    """Lists queues.

    :ivar minimum: returns the physical offset of the first byte still in the log
    :ivar reached: returns the physical end offset of the last record with a unit, or 0; ``None`` if
        the last unit must be read
    """

    queues: QueueReader
    minimum: Callable[[], int]
    reached: Callable[[Queue], int] | None = None
    _ids: dict[str, tuple[Sequence[Queue], list[int]]] = attrs.field(factory=dict, init=False)

    def ids(self, topic: str) -> Sequence[int]:
        """The queue ids of one topic; the result is kept while the queues return the same list."""
        names = self.queues.queues()
        listed, ids = self._ids.get(topic, (None, []))
        if listed is not names:
            ids = sorted(queue_id for name, queue_id in names if name == topic)
            self._ids[topic] = names, ids
        return ids

    def topics(self) -> list[str]:
        """All topics that have a queue, in Java's string order."""
        return sorted({topic for topic, _ in self.queues.queues()}, key=java_order)

    def infos(self, topic: str | None = None) -> list[QueueInfo]:
        """All queues, or those of one topic, sorted by topic in Java's order, then by queue id."""
        if topic is not None:
            topic_name(topic)
        minimum = self.minimum()
        wanted = [each for each in self.queues.queues() if topic is None or each[0] == topic]
        wanted.sort(key=lambda queue: (java_order(queue[0]), queue[1]))
        infos = (self._info(queue, minimum) for queue in wanted)
        return [info for info in infos if info is not None]

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """The first existing queue offset and the next one to be written.

        ``None`` if there is no such queue.
        """
        return self.queues.bounds(queue_name(topic, queue_id), self.minimum())

    def units(self, topic: str, queue_id: int, first: int, count: int) -> Units:
        """At most ``count`` units from queue offset ``first``, as stored and without checks."""
        queue = queue_name(topic, queue_id)
        self.queues.bounds(queue, 0)  # up to date
        return self.queues.units(queue, whole("first", first), whole("count", count))

    def _info(self, queue: Queue, minimum: int) -> QueueInfo | None:
        bounds = self.queues.bounds(queue, minimum)
        if bounds is None:  # deleted meanwhile
            return None
        return QueueInfo(*queue, self.queues.kind(queue), *bounds, self._end(queue, bounds[1]))

    def _end(self, queue: Queue, end: int) -> int:
        """The physical end offset of the last unit's record; 0 if there is none."""
        if end <= 0:
            return 0
        if self.reached is not None:
            return self.reached(queue)
        units = self.queues.units(queue, end - 1, 1)
        return int(units.offsets[-1]) + int(units.sizes[-1]) if len(units) else 0


@attrs.frozen
class Finder:
    """The objects that find messages.

    :ivar getter: by queue and offset
    :ivar follower: like ``getter``, and waits for new messages
    :ivar lists: lists topics and queues
    :ivar times: by store time
    :ivar keys: by key
    :ivar lookups: the compiled form, tried before ``times`` and ``keys``
    :ivar records: by physical offset
    """

    getter: QueueGetter
    follower: QueueFollower
    lists: QueueList
    times: TimeSearch
    keys: KeyQuery
    lookups: Lookups
    records: PlacedRecords

    @classmethod
    def over(
        cls,
        path: Path,
        reader: LogReader,
        dispatchers: Sequence[Dispatcher],
        arrivals: ArrivalSignal,
        units_per_file: int,
        tombstone_of: Callable[[str], int],
        catch_up: Callable[[], object],
        refresh: Callable[[bool], object] | None = None,
    ) -> Finder:
        """Build all of them for one store.

        :param path: the store directory, for error messages
        :param tombstone_of: returns the physical offset below which records of a topic do not
            count, because the topic was removed
        :param catch_up: brings the dispatchers up to the readable end of the log; called where the
            newest messages count
        :param refresh: called before each look-up, see ``LookupParts``; ``None`` if another thread
            dispatches

        Raises :class:`~lakelog.errors.StoreError` if no dispatcher keeps queues.
        """
        queues: QueueReader | None = next(
            (each for each in dispatchers if isinstance(each, QueueReader)), None
        )
        if queues is None:
            raise StoreError(
                "the store keeps no queues; add 'consume-queue' to the setting 'dispatchers'",
                path=path,
            )
        index = next((each for each in dispatchers if isinstance(each, KeyIndex)), None)
        compiled = lookups(queues, index, reader, tombstone_of, refresh)
        reached = getattr(queues, "reached", None)

        newest = _Fresh(queues, catch_up)
        if refresh is not None:
            queues = _Fresh(queues, partial(refresh, False))

        def minimum() -> int:
            return reader.min_offset

        getter = QueueGetter(queues, reader, minimum, units_per_file, compiled, catch_up)
        return cls(
            getter,
            QueueFollower(getter.get, arrivals),
            QueueList(newest, minimum, reached),
            TimeSearch(newest, PlacedRecords(reader), minimum),
            KeyQuery(index, reader, tombstone_of, catch_up),
            compiled,
            PlacedRecords(reader),
        )


@attrs.frozen(eq=False)
class _Fresh:
    """Queues that are brought up to date before each request for their list or bounds."""

    reader: QueueReader
    refresh: Callable[[], object]

    def queues(self) -> Sequence[Queue]:
        self.refresh()
        return self.reader.queues()

    def bounds(self, queue: Queue, minimum: int) -> tuple[int, int] | None:
        self.refresh()
        return self.reader.bounds(queue, minimum)

    def units(self, queue: Queue, first: int, count: int) -> Units:
        return self.reader.units(queue, first, count)

    def kind(self, queue: Queue) -> str:
        return self.reader.kind(queue)
