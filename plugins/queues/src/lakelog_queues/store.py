"""An open store with its queues: finds messages by queue, time and key, and for consumer groups.

The store extension ``queues`` adds these methods. Each role of a store has its resources, of which
those that most writers never use are imported and built on first use.
"""

from __future__ import annotations

import os
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import ExitStack, aclosing, suppress
from functools import wraps
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Concatenate, Final, Literal, ParamSpec, TypeVar, cast
from weakref import WeakSet

import attrs

from lakelog.arguments import WrongValue, listed, text, topic_name, whole
from lakelog.errors import StoreError, ThreadNotStarted
from lakelog.format.properties import SCHEDULE_TOPIC, TIMER_TOPIC
from lakelog.hooks import DispatchedLog, QueueReader
from lakelog.lazy import cached_property
from lakelog.log.log_reader import Reads, failing, iterates, reads
from lakelog.log.store_directory import readable
from lakelog.message import StoredMessage
from lakelog.runtime.forks import register_forked
from lakelog.runtime.locks import Mutex
from lakelog.runtime.threads import started
from lakelog.store.log_store import LogStore
from lakelog.store.parts import RoleParts
from lakelog_queues.dispatching.tombstones import TombstoneFile

if TYPE_CHECKING:
    from threading import Event

    from lakelog.dispatch import DispatchRunner
    from lakelog.format.queue_offsets import Queue, Units
    from lakelog_queues.consumers.consumer import CommitPolicy, Consumer, QueueAccess, StartPosition
    from lakelog_queues.consumers.offsettable import Commit, OffsetTable
    from lakelog_queues.delays.service import DelayService
    from lakelog_queues.finding.finder import Finder
    from lakelog_queues.finding.follow import QueueFollower
    from lakelog_queues.finding.results import (
        ColumnsResult,
        GetResult,
        Lookups,
        PlacedResult,
        QueueInfo,
        RecordsResult,
    )
    from lakelog_queues.groups.consumer import GroupConsumer
    from lakelog_queues.groups.overview import GroupStatus
    from lakelog_queues.groups.pool import WorkProgress
    from lakelog_queues.groups.working import Handle
    from lakelog_queues.readers import CurrentArrivals, ReaderWait


S = TypeVar("S", bound=Reads)
P = ParamSpec("P")
T = TypeVar("T")


_WAITING: Final = ((TIMER_TOPIC, 0), *((SCHEDULE_TOPIC, level) for level in range(18)))
"""The queues of messages that wait for their time."""


class QueueParts:
    """Finds messages in one role of a store.

    :ivar waits: the progress of the dispatchers, and waits for it
    """

    def __init__(self, log: DispatchedLog) -> None:
        self.log = log
        self.waits: DispatchRunner | ReaderWait
        if log.dispatching is not None:
            self.waits = log.dispatching
        else:
            from lakelog_queues.readers import ReaderWait

            self.waits = ReaderWait.of(log)
        # One process at a time writes tombstones: the one with the services.
        self._removed = TombstoneFile(log.files, log.path, alone=log.dispatching is not None)
        self._queues: QueueReader | None = None  # of the process that delivers delayed messages
        self._parts: RoleParts | None = None
        self._ends: Sequence[tuple[int, int] | None] = [None for _ in _WAITING]
        self._delivering: Thread | None = None
        self._has_ended = False
        self._looking = Mutex()
        self._unsubscribe: Callable[[], object] = lambda: None
        register_forked(self)

    @property
    def delivers(self) -> bool:
        """Whether delayed messages are delivered here."""
        return self._parts is not None

    @cached_property
    def delays(self) -> DelayService:
        """The delivery of delayed messages, where :attr:`delivers` is true."""
        from lakelog_queues.delays.delivering import DelayAccess
        from lakelog_queues.delays.service import DelayService

        log, parts = self.log, self._parts
        assert parts is not None  # deliver() was called
        assert log.sync is not None
        access = DelayAccess(
            log.files,
            log.path,
            lambda *queue: self.finder.lists.bounds(*queue),  # noqa: PLW0108  # built in the thread
            lambda *units: self.finder.lists.units(*units),  # noqa: PLW0108  # the same
            log.reader.look_up,
            parts.puts.put,
            log.sync,
            self.offsets,
        )
        return DelayService(access, parts.request.clock)

    def deliver(self, parts: RoleParts) -> None:
        """Deliver delayed messages from now on, if this process has the services.

        A thread begins once there are any. Their queues are looked at after each round of
        dispatching, so that a store without such messages has no cost by message.
        """
        runner = self.log.dispatching
        queues = [each for each in self.log.dispatchers.values() if isinstance(each, QueueReader)]
        if runner is None or not queues or self._queues is not None:
            return
        if parts.role != "owner" or not parts.request.serves:
            return
        self._queues, self._parts = queues[0], parts
        self._unsubscribe = runner.arrivals.subscribe(self._look, lambda: False)
        self._look()

    def _look(self) -> None:
        """Start or wake the thread if messages have begun to wait; must not raise."""
        assert self._queues is not None
        ends = [self._queues.bounds(each, 0) for each in _WAITING]
        if ends == self._ends:
            return
        with self._looking:  # a close, or the open, may be here too
            if self._has_ended:
                return
            if self._delivering is None:
                thread = Thread(target=self._deliver, name="lakelog-delays", daemon=True)
                with suppress(ThreadNotStarted):  # the next round tries again
                    self._delivering = started(thread)
                    self._ends = ends
                return
            self._ends = ends
        if "delays" in self.__dict__:
            self.delays.wake()

    def _deliver(self) -> None:
        self.delays.run()

    @cached_property
    def offsets(self) -> OffsetTable:
        """The committed offsets of consumer groups."""
        from lakelog_queues.consumers.offsettable import OffsetTable

        return OffsetTable(self.log.files, self.log.path, self.log.sync)

    @cached_property
    def finder(self) -> Finder:
        """The finder of messages."""
        from lakelog_queues.finding.finder import Finder
        from lakelog_queues.readers import ReaderWait

        log, waits = self.log, self.waits
        return Finder.over(
            log.path,
            log.reader,
            list(log.dispatchers.values()),
            waits.arrivals,
            log.settings.section("consume-queue").file_entries,
            self._removed.end_of,
            waits.completion.catch_up if isinstance(waits, ReaderWait) else waits.catch_up,
            waits.completion.refresh if isinstance(waits, ReaderWait) else None,
        )

    def forked(self) -> None:
        """Close, in a forked child, the file that compiled code keeps open."""
        self._has_ended, self._delivering = True, None
        if "finder" in self.__dict__:
            self.finder.lookups.close()

    def close(self) -> None:
        """Write pending commits of consumer groups; close files."""
        with ExitStack() as closing:
            if self.log.dispatching is None:
                closing.callback(self.waits.close)
            if "offsets" in self.__dict__:
                closing.callback(self.offsets.close)
            if "finder" in self.__dict__:
                closing.callback(self.finder.lookups.close)
            closing.callback(self._end_delivery)

    def _end_delivery(self) -> None:
        with self._looking:
            self._has_ended = True
        self._unsubscribe()
        if self._delivering is not None:
            self.delays.end()
            self._delivering.join()
            self.delays.save_last()


def queue_parts(parts: RoleParts) -> QueueParts:
    """The resources of the queue methods in one role of a store."""
    assert isinstance(parts.extension, QueueParts)
    return parts.extension


def iterates_async(
    verb: Callable[Concatenate[S, P], AsyncIterator[T]],
) -> Callable[Concatenate[S, P], AsyncIterator[T]]:
    """As :func:`~lakelog.log.log_reader.iterates` for an asynchronous iterator."""

    @wraps(verb)
    def guarded(self: S, /, *arguments: P.args, **named: P.kwargs) -> AsyncIterator[T]:
        path = self._current.path
        return _steps_async(reads(verb)(self, *arguments, **named), path)

    return guarded


async def _steps_async(found: AsyncIterator[T], path: Path) -> AsyncIterator[T]:
    with failing(path):
        async with aclosing(cast(AsyncGenerator[T, None], found)):
            async for each in found:
                yield each


class Store(LogStore):
    """An open store; made by :func:`lakelog.open`, closed by :meth:`close` or ``with``.

    Thread-safe. The finder is built at the first query. All methods that read raise
    :class:`~lakelog.errors.ReadFailed` if a file cannot be read.
    """

    _lookups: Lookups | None = None  # until the first call that may use compiled code
    _left_of: frozenset[str] = frozenset()  # deleted topics of which files may be left

    @cached_property
    def _members(self) -> WeakSet[GroupConsumer]:
        return WeakSet()

    def close(self) -> None:
        """Close the members of groups, then as :meth:`LogStore.close`."""
        with ExitStack() as closing:
            closing.callback(super().close)
            for each in list(self.__dict__.get("_members", ())):
                closing.callback(each.close)

    def _bind(self, parts: RoleParts) -> None:
        super()._bind(parts)
        self._lookups = None
        if not self._current.closed and isinstance(parts.extension, QueueParts):
            parts.extension.deliver(parts)

    def _bind_lookups(self) -> None:
        """Bind look-ups to compiled code until the store is closed or swaps its parts.

        Either may happen just before the binding, so the state is checked once more after it.
        """
        current = self._current
        parts = current.now()
        self._lookups = queue_parts(parts).finder.lookups
        if current.closed or current.parts is not parts:
            self._lookups = None

    @property
    def _find(self) -> Finder:
        return queue_parts(self._current.now()).finder

    @property
    def _following(self) -> QueueFollower:
        """A follower for waiting reads: it changes to the owner's own queues after a take-over."""
        from lakelog_queues.finding.follow import QueueFollower

        def get(*arguments: Any, **named: Any) -> GetResult:
            return queue_parts(self._current.last()).finder.getter.get(*arguments, **named)

        self._current.now()  # raises for a closed store, whose waiters are ended by its signal
        return QueueFollower(get, self.arrivals)

    @property
    def arrivals(self) -> CurrentArrivals:
        """Notifies of new messages, independent of the role."""
        from lakelog_queues.readers import CurrentArrivals

        return CurrentArrivals(lambda: queue_parts(self._current.last()).waits.arrivals)

    # --- by queue ---

    @reads
    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int = 32,
        *,
        max_bytes: int | None = None,
        tags: str | None = None,
        wait_ms: int = 0,
    ) -> GetResult:
        """Messages of a queue from queue offset ``offset`` on.

        :param max_bytes: limit for the size of their records; one message is always returned
        :param tags: ``"TagA || TagB"``; ``None`` and ``"*"`` match all
        :param wait_ms: longest wait for a message at the end of the queue
        :returns: the messages, RocketMQ's status, and the next offset to read

        Raises ``TypeError`` and ``ValueError`` for wrong arguments, such as a negative queue id.
        """
        if type(wait_ms) is int and not wait_ms:
            getter = self._find.getter
            return getter.get(topic, queue_id, offset, max_messages, max_bytes=max_bytes, tags=tags)
        from lakelog_queues.finding.follow import GetRequest

        request = GetRequest(topic, queue_id, offset, max_messages, max_bytes, tags)
        return self._following.get(request, wait_ms)

    async def get_async(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int = 32,
        *,
        max_bytes: int | None = None,
        tags: str | None = None,
        wait_ms: int = 0,
    ) -> GetResult:
        """:meth:`get` without blocking the event loop."""
        from lakelog_queues.finding.follow import GetRequest

        request = GetRequest(topic, queue_id, offset, max_messages, max_bytes, tags)
        with failing(self._current.path):
            follower = self._following if wait_ms else self._find.follower
            return await follower.get_async(request, wait_ms)

    @reads
    def get_columns(  # noqa: PLR0913  # all but three are optional, and given by name
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int = 1024,
        *,
        max_bytes: int | None = None,
        tags: str | None = None,
        columns: Iterable[str] | None = None,
        decompress: bool = False,
        verify: bool = True,
    ) -> ColumnsResult:
        """As :meth:`get`, as an Arrow record batch (``lakelog-queues[arrow]``).

        :param columns: names of :data:`lakelog.arrow.COLUMNS`; ``None`` is all
        :param decompress: whether to decompress bodies that the client compressed
        :param verify: whether to compute checksums; lengths and places are always checked
        """
        return self._find.getter.get_columns(
            topic,
            queue_id,
            offset,
            max_messages,
            max_bytes=max_bytes,
            tags=tags,
            columns=columns,
            decompress=decompress,
            verify=bool(verify),
        )

    @reads
    def get_records(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_records: int = 32,
        *,
        max_bytes: int | None = None,
        tags_codes: Collection[int] | None = None,
        verify: bool = True,
    ) -> RecordsResult:
        """As :meth:`get`, as the bytes of whole records, such as a broker sends to its clients.

        :param tags_codes: Java hashes of tags, compared with the tags codes in the queue, as
            RocketMQ's broker does; its clients compare the tags. ``None`` selects all
        :param verify: whether to compute checksums; lengths and places are always checked
        """
        most, get = whole("max_records", max_records, 1), self._find.getter.get_records
        queue = topic, queue_id, offset, most
        return get(*queue, max_bytes=max_bytes, tags_codes=tags_codes, verify=verify)

    @reads
    def look_up_record(self, where: int | str) -> bytes:
        """The bytes of one whole record as stored, as ``look_up``, but not from the archive."""
        found = self.look_up(where)
        return self._find.records.one(found.physical_offset, found.size)

    @iterates
    def read(
        self,
        topic: str,
        queue_id: int,
        start: int | None = None,
        *,
        follow: bool = False,
        tags: str | None = None,
    ) -> Iterator[StoredMessage]:
        """Messages from queue offset ``start`` on; ``follow``: until the store is closed."""
        follower = self._following if follow else self._find.follower
        return follower.read(topic, queue_id, start, follow=follow, tags=tags)

    @iterates_async
    def read_async(
        self,
        topic: str,
        queue_id: int,
        start: int | None = None,
        *,
        follow: bool = False,
        tags: str | None = None,
    ) -> AsyncIterator[StoredMessage]:
        """:meth:`read` for ``async for``; it never blocks the event loop."""
        follower = self._following if follow else self._find.follower
        return follower.read_async(topic, queue_id, start, follow=follow, tags=tags)

    @reads
    def topics(self) -> list[str]:
        """Every topic that has a queue, in the order of UTF-16 code units, as Java sorts."""
        return self._find.lists.topics()

    @reads
    def queues(self, topic: str | None = None) -> list[QueueInfo]:
        """All queues, or the queues of one topic: kind, first and next queue offset of each."""
        return self._find.lists.infos(topic)

    @reads
    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """First present and next future queue offset; ``None`` if the queue does not exist."""
        return self._find.lists.bounds(topic, queue_id)

    @reads
    def queue_units(self, topic: str, queue_id: int, first: int, count: int) -> Units:
        """At most ``count`` units of a queue from queue offset ``first``, as columns, unchecked."""
        return self._find.lists.units(topic, queue_id, first, count)

    @iterates_async
    def watch_async(
        self, topic: str | None = None, *, since: Mapping[tuple[str, int], int] | None = None
    ) -> AsyncIterator[dict[tuple[str, int], int]]:
        """Yield the queues that have new messages, until the store is closed.

        Each item has, by topic and queue id, the next queue offset to be written.
        :param topic: ``None`` is all topics
        :param since: such a table, from which to compare at first; ``None`` is the present one
        """
        from lakelog_queues.readers import queue_growth

        return queue_growth(self.arrivals, self.queues, topic, since)

    # --- by time ---

    def offset_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: int,
        boundary: Literal["lower", "upper"] = "lower",
    ) -> int:
        """The queue offset for a store time in ms since 1970.

        ``lower`` is the first message at or after it, ``upper`` the last one at or before it.
        Raises ``ValueError`` for an unknown boundary, and for a time that is not in milliseconds.
        """
        asked, lookups = (topic, queue_id, timestamp_ms, boundary), self._lookups
        found = None if lookups is None else lookups.offset_by_time(*asked)
        return self._offset_by_time(*asked) if found is None else found

    @reads
    def _offset_by_time(self, *arguments: Any) -> int:
        self._bind_lookups()
        return self._find.times.offset_by_time(*arguments)

    @reads
    def earliest_time(self, topic: str, queue_id: int) -> int | None:
        """Store time of the first message of a queue, in ms; ``None`` if it has none."""
        return self._find.times.earliest_time(topic, queue_id)

    # --- by key ---

    def query(
        self,
        topic: str,
        key: str,
        *,
        since_ms: int | None = None,
        until_ms: int | None = None,
        max_messages: int = 64,
    ) -> list[StoredMessage]:
        """Messages with a key or a unique key (``UNIQ_KEY``), newest first.

        :param since_ms: earliest store time, in ms since 1970; ``until_ms`` is the latest one

        Raises :class:`~lakelog.errors.MissingIndex` without a key index, and ``ValueError``.
        """
        lookups = self._lookups
        if lookups is not None:
            found = lookups.query(topic, key, since_ms, until_ms, max_messages)
            if found is not None:
                return found
        return self._query(topic, key, since_ms, until_ms, max_messages)

    @reads
    def _query(self, *arguments: Any) -> list[StoredMessage]:
        self._bind_lookups()
        return self._find.keys.query(*arguments)

    @reads
    def query_offsets(
        self,
        topic: str,
        key: str,
        *,
        since_ms: int | None = None,
        until_ms: int | None = None,
        max_count: int = 64,
    ) -> list[int]:
        """The raw index entries: physical offsets, newest first, including hash collisions."""
        return self._find.keys.offsets(topic, key, since_ms, until_ms, max_count)

    # --- for groups of consumers ---

    @reads
    def consumer(
        self,
        group: str,
        topic: str,
        queue_ids: Sequence[int] | None = None,
        *,
        start: StartPosition = "earliest",
        commit: CommitPolicy = "explicit",
        tags: str | None = None,
    ) -> Consumer:
        """A consumer that continues at its group's last commit, in the order of the log.

        :param queue_ids: the queues to read; ``None`` is all of the topic
        :param start: where a new group begins: ``earliest``, ``latest`` or a time
        :param commit: ``explicit``, or ``batch``: each poll commits the messages of the one before

        Raises :class:`~lakelog.errors.SettingsError`; for ``batch`` of a reader ``StoreReadOnly``.
        """
        from lakelog_queues.consumers.consumer import Consumer

        access = self._queue_access()
        return Consumer(group, topic, queue_ids, access, start=start, commit=commit, tags=tags)

    @reads
    def subscribe(  # noqa: PLR0913  # all but two are optional, and given by name
        self,
        group: str,
        topics: str | Sequence[str] | Mapping[str, str | None],
        *,
        tags: str | None = None,
        filter: str | None = None,  # noqa: A002  # the word of RocketMQ and of users
        start: StartPosition = "earliest",
        orderly: bool = False,
        broadcast: str | None = None,
        invisible_ms: int = 60_000,
        max_attempts: int | None = None,
        commit_interval_ms: int = 5_000,
        idle_ms: int = 60_000,
    ) -> GroupConsumer:
        """Join a group whose living members share the queues; see core/docs/guides/consumers.md.

        :param topics: one or more topics; a mapping has the tags of each
        :param filter: an SQL92 expression over properties, such as ``"a > 5 AND region = 'eu'"``
        :param start: where a new group begins: ``earliest``, ``latest`` or a time
        :param orderly: hand out the messages of each queue one after the other
        :param broadcast: the name of a consumer that gets every message, and shares no queue
        :param invisible_ms: time within which a message is to be acknowledged
        :param max_attempts: hand-outs after which a message goes to ``%DLQ%group``; ``None`` is the
            limit of the group, 17 by default; with ``orderly`` and ``broadcast`` it is none
        :param commit_interval_ms: interval at which the group's offsets are committed
        :param idle_ms: a member that has not polled for so long gets no queues

        Raises :class:`~lakelog.errors.StoreReadOnly` and :class:`~lakelog.errors.SettingsError`,
        the latter also if a living member has another subscription.
        """
        from lakelog_queues.groups.consumer import GroupAccess, GroupConsumer, GroupOptions

        options = GroupOptions.of(
            group,
            topics,
            tags=tags,
            filter=filter,
            start=start,
            orderly=orderly,
            broadcast=broadcast,
            invisible_ms=invisible_ms,
            max_attempts=max_attempts,
            commit_interval_ms=commit_interval_ms,
            idle_ms=idle_ms,
        )
        log, queues = queue_parts(self._current.now()).log, self._queue_access()
        access = GroupAccess(
            log.files, self.path, self._placed, queues, self.put, lambda: self.max_offset
        )
        if (clock := self._current.now().request.clock) is not None:
            access = attrs.evolve(access, now_ms=clock.monotonic_ms)
        made = GroupConsumer(options, access)
        self._members.add(made)
        return made

    def work(  # noqa: PLR0913  # all but two are given by name
        self,
        topics: str | Sequence[str] | Mapping[str, str | None],
        handle: Handle,
        *,
        group: str,
        workers: int | None = None,
        batch: int | None = None,
        concurrency: int | None = None,
        invisible_ms: float = 60_000,
        time_limit_ms: float | None = None,
        stop_timeout_ms: float = 30_000,
        until_empty: bool = False,
        on_progress: Callable[[WorkProgress], object] | None = None,
        progress_interval_ms: float = 10_000,
        stop: Event | None = None,
        **subscription: Any,
    ) -> WorkProgress:
        """Handle the messages of a group in processes, until SIGTERM or SIGINT; returns the counts.

        A message is acknowledged once ``handle`` has returned. If that raises, the message comes
        again after RocketMQ's delay, and is a dead letter after ``max_attempts``. A stop lets the
        workers finish what is in work; a second signal kills them, and raises
        ``KeyboardInterrupt``. Signals need the main thread. See core/docs/guides/consumers.md.

        :param handle: a function of a :class:`~lakelog.StoredMessage`, plain or ``async def``, that
            a new process can import; or its name, ``"module:function"``
        :param workers: number of processes; ``None`` is one for each processor. 0 works in this
            thread, where the time limit does not end a plain function
        :param batch: ``handle`` gets a list of so many messages at most
        :param concurrency: number of calls at a time in each worker, of an ``async def``; by
            default 16
        :param invisible_ms: what is in work is renewed after a third of it
        :param time_limit_ms: a longer call has failed; the process of a plain function ends
        :param stop_timeout_ms: workers that take longer to stop are killed
        :param until_empty: end once the group has consumed all messages, retries included
        :param on_progress: called every ``progress_interval_ms``; by default it is logged
        :param stop: an event that ends it, as a signal does
        :param subscription: further arguments of :meth:`subscribe`, such as ``tags``

        Raises as :meth:`subscribe`, ``ValueError`` for a function that cannot be imported, and
        :class:`~lakelog.errors.StoreError` if no worker can begin.
        """
        from lakelog_queues.groups.pool import WorkerPool
        from lakelog_queues.groups.working import WorkOptions

        options = WorkOptions(
            group=group,
            topics=topics,
            batch=batch,
            concurrency=concurrency,
            invisible_ms=invisible_ms,
            time_limit_ms=time_limit_ms,
            stop_timeout_ms=stop_timeout_ms,
            until_empty=until_empty,
            subscription=subscription,
        )
        pool = WorkerPool(
            *(self, self._current.now().request, handle, options),
            workers=len(os.sched_getaffinity(0)) if workers is None else workers,
            on_progress=on_progress,
            progress_interval_ms=progress_interval_ms,
            stop=stop,
        )
        return pool.run()

    def _queue_access(self) -> QueueAccess:
        """The queues and committed offsets, independent of the role."""
        from lakelog_queues.consumers.consumer import QueueAccess
        from lakelog_queues.consumers.offsettable import CurrentOffsets

        current = self._current
        return QueueAccess(  # each call checks whether the store is open
            self.get,
            self._queue_ids,
            self._end_of_reads,
            self.queue_bounds,
            self.offset_by_time,
            self.arrivals,
            CurrentOffsets(
                lambda: queue_parts(current.now()).offsets,
                lambda: queue_parts(current.last()).offsets,
            ),
        )

    @reads
    def _queue_ids(self, topic: str) -> Sequence[int]:
        return self._find.lists.ids(topic)

    @reads
    def _end_of_reads(self) -> int | None:
        end: int | None = self._current.now().reader.bounds.end()
        return end

    @reads
    def _placed(self, *arguments: Any, **named: Any) -> PlacedResult:
        return self._find.getter.get_placed(*arguments, **named)

    def commit_offsets(self, commits: Iterable[Commit], *, as_broker: bool = False) -> None:
        """Commit offsets of any groups in one write; durable on return, after the log before them.

        :param commits: group, topic, and the next queue offset by queue id, of each. Members of
            :meth:`subscribe` continue at these offsets within a second
        :param as_broker: keep what RocketMQ's brokers accept from any client: names of groups that
            its own clients refuse, and negative offsets, which stand for none

        Raises :class:`~lakelog.errors.StoreReadOnly` and :class:`~lakelog.errors.StoreError`.
        """
        from lakelog_queues.groups.state import change_offsets

        parts = queue_parts(self._current.now())
        tables = listed("commits", commits, "a list of (group, topic, {queue_id: offset})")
        changed: dict[str, dict[Queue, int | None]] = {}
        with suppress(TypeError, ValueError, AttributeError):  # commit_all explains them
            for group, topic, offsets in tables:
                for queue, at in offsets.items():
                    changed.setdefault(group, {})[topic, queue] = at if at >= 0 else None

        def write() -> None:
            parts.offsets.commit_all(tables, as_broker=as_broker)

        change_offsets(parts.log, changed, write, lambda group, _: changed[group])

    def forget_offsets(self, group: str, topic: str | None = None) -> None:
        """Remove the committed offsets of ``group``, for one topic or for all; raises the same."""
        from lakelog_queues.groups.state import change_offsets

        parts = queue_parts(self._current.now())
        text("group", group, "billing")

        def forgotten(_: str, queues: Collection[Queue]) -> dict[Queue, int | None]:
            return dict.fromkeys(each for each in queues if topic in (None, each[0]))

        def write() -> None:
            parts.offsets.forget(group, topic)

        change_offsets(parts.log, [group], write, forgotten)

    @reads
    def groups(self) -> dict[str, dict[str, dict[int, int]]]:
        """The committed offsets of every group, by topic and queue."""
        return queue_parts(self._current.now()).offsets.groups()

    def group_status(self, group: str) -> GroupStatus:
        """The members of a group, and the messages that were handed out to them.

        :param group: its name; ``GROUP@NAME`` for a broadcasting consumer
        """
        from lakelog_queues.groups.consumer import boot_ms
        from lakelog_queues.groups.overview import group_status

        text("group", group, "billing")
        parts = self._current.now()
        log, clock = queue_parts(parts).log, parts.request.clock
        now_ms = boot_ms() if clock is None else clock.monotonic_ms()
        return group_status(log.files, log.path, group, now_ms)

    # --- removing topics ---

    def delete_topic(self, topic: str) -> None:
        """Remove the queues of ``topic`` permanently; its records stay in the log, without a queue.

        Later puts create new queues, which continue the queue offsets. A tombstone keeps a
        recovery from restoring the old queues; ``lakelog rebuild`` ignores it. Once it is durable,
        no process finds the old messages by queue, time or key.

        A process without the services passes the call to the process with them, as it does
        :meth:`delete_unused_topics`, :meth:`delete_expired` and :meth:`resume_dispatch`. All raise
        :class:`~lakelog.errors.StoreReadOnly`, :class:`~lakelog.errors.NoOwner` if no process has
        the services, and :class:`~lakelog.errors.StoreLocked` if that process does not answer.

        Raises ``ValueError`` for an unknown topic, :class:`~lakelog.errors.DispatchStopped` if the
        topics cannot be determined, and :class:`~lakelog.errors.StoreError` if the disk fails. In
        the last case either nothing has changed, or the topic is gone and some files remain; the
        message says which. The next call, or the next open, removes those files.
        """
        topic_name(topic)
        manager, known = self._current.manager(), self.topics()
        known = [*known, *self._left_of]
        if topic not in known and self.wait_dispatched():
            known = self.topics()  # dispatches earlier puts first
        if topic not in known:
            from difflib import get_close_matches

            near = ", ".join(map(repr, get_close_matches(topic, known)))
            raise WrongValue(
                f"no queue of topic {topic!r} exists" + (f"; do you mean {near}?" if near else "")
            )
        try:
            manager("delete_topic", topic)
        except OSError as error:
            raise readable(error, self.path) from error
        except StoreError:
            self._left_of |= {topic}
            raise
        self._left_of -= {topic}

    def delete_unused_topics(self) -> list[str]:
        """Remove the queues of topics without remaining records; return the topic names."""
        try:
            return self._current.now().maintenance.delete_unused_topics()
        except OSError as error:
            raise readable(error, self.path) from error


def delays_of(store: Store) -> DelayService | None:
    """The delivery of delayed messages; ``None`` if another process does it."""
    parts = queue_parts(store._current.now())
    return parts.delays if parts.delivers else None


class QueueExtension:
    """Adds the queue methods of :class:`lakelog.Store` to open stores."""

    @property
    def store_class(self) -> type[Store]:  # a property, which a subclass may override
        """The class of open stores."""
        return Store

    def extend(self, log: DispatchedLog) -> QueueParts:
        """Build the resources for one role."""
        return QueueParts(log)
