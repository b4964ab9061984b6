"""The parts of a running broker that both protocols share."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs

from lakelog import Store
from lakelog.errors import StoreFailed
from lakelog.files.filesystem import FileSystem, RealFileSystem
from lakelog.runtime.threads import in_thread
from lakelog_broker.appending import BrokerAppender, is_system_topic
from lakelog_broker.scheduled.delays import Delays
from lakelog_broker.scheduled.timers import Timers
from lakelog_broker.scheduled.transactions import Transactions
from lakelog_broker.settings import BrokerSettings
from lakelog_broker.state.arrivals import ArrivalWaits
from lakelog_broker.state.groups import GroupOffsetTable, MemberTable
from lakelog_broker.state.topics import TopicTable
from lakelog_broker.state.traffic import Traffic
from lakelog_rocketmq.config import TopicConfig


async def _not_running(port: int) -> None:
    raise RuntimeError(f"the gRPC port {port} cannot be opened: the broker does not run")


@attrs.define(eq=False)
class Broker:
    """A broker over an open store; used from one event loop.

    :ivar address: ``host:port`` of the remoting port, once it is bound
    :ivar grpc_address: ``host:port`` of the gRPC port; empty without one
    :ivar open_grpc: opens the gRPC port of a running broker without one; port 0 is any free one
    :ivar appender: puts messages of clients
    :ivar transactions: ends transactions for both protocols; asks producers in ``members`` for
        outcomes, by ``check_transaction`` of their peers
    :ivar files: creates files with the rights of the store's files
    :ivar started_ms: time of its creation, in ms since 1970
    :ivar start_offset: end of the log at that time
    :ivar failure: the error of the failed store; only a new open of the store repairs it
    :ivar has_failed: set together with ``failure``
    """

    store: Store
    settings: BrokerSettings
    topics: TopicTable
    offsets: GroupOffsetTable
    members: MemberTable
    waits: ArrivalWaits
    appender: BrokerAppender
    delays: Delays
    timers: Timers
    transactions: Transactions
    traffic: Traffic
    files: FileSystem
    start_offset: int
    started_ms: int = attrs.field(factory=lambda: time.time_ns() // 1_000_000)
    address: str = ""
    grpc_address: str = ""
    failure: StoreFailed | None = None
    has_failed: asyncio.Event = attrs.field(factory=asyncio.Event)
    open_grpc: Callable[[int], Awaitable[None]] = _not_running
    _turns: itertools.count[int] = attrs.field(factory=itertools.count)
    _saving: asyncio.Future[None] | None = None

    @classmethod
    def over(cls, store: Store, settings: BrokerSettings) -> Broker:
        """Build the broker over ``store``, which this process must own.

        Raises :class:`~lakelog.errors.CorruptConfig` and ``OSError``.
        """
        files = RealFileSystem.of_store(Path(store.path))  # its group reads them, too
        topics = TopicTable(files, Path(store.path), settings)
        offsets = GroupOffsetTable(store.groups(), store.commit_offsets, store.forget_offsets)

        def end_of(topic: str, queue_id: int) -> int:
            return (store.queue_bounds(topic, queue_id) or (0, 0))[1]

        waits = ArrivalWaits(store.arrivals, end_of)
        limit_ms = settings.timer_limit_s * 1000
        appender = BrokerAppender(store, settings.cluster, settings.region, limit_ms)
        delays = Delays(store, appender, waits, files)
        timers = Timers(store, appender, waits, offsets, files)
        members = MemberTable()
        transactions = Transactions(store, appender, waits, offsets, members, settings)
        return cls(
            store, settings, topics, offsets, members, waits, appender, delays, timers,
            transactions,
            Traffic(
                store.queues, lambda topic: not is_system_topic(topic),
                timers=lambda: timers.delivered,
            ),
            files, store.max_offset,
        )  # fmt: skip  # in the order of the class

    @property
    def path(self) -> Path:
        """The store directory."""
        return Path(self.store.path)

    def next_queue(self, topic: TopicConfig) -> int:
        """A queue id for a message without one: one after the other."""
        return next(self._turns) % topic.write_queues

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """First offset of a queue, and the offset of its next message; zeros if it is missing."""
        return self.store.queue_bounds(topic, queue_id) or (0, 0)

    def time_of(self, topic: str, queue_id: int, offset: int) -> int:
        """The store time of a message of a queue, in ms since 1970; 0 without such a message."""
        low, high = self.bounds(topic, queue_id)
        found = self.store.get(topic, queue_id, offset, 1).messages if low <= offset < high else ()
        return found[0].store_timestamp_ms if found else 0

    def topics_of_group(self, group: str) -> list[str]:
        """The topics to which a group subscribes, or in which it has an offset."""
        members = self.members.group(group)
        subscribed = members.subscriptions if members else ()
        return sorted({*self.offsets.of_group(group), *subscribed})

    async def save(self) -> None:
        """Save the offsets of groups and the progress of scheduled work.

        Raises :class:`~lakelog.errors.StoreError` and ``OSError``. A later call saves the rest.
        """
        while self._saving is not None and not self._saving.done():
            await asyncio.wait([self._saving])  # the thread of a cancelled save still runs
        self.transactions.note_progress()
        parts = (self.delays, self.timers, self.offsets)  # the others set offsets, too
        writes = [write for part in parts if (write := part.progress())]

        def write_all() -> None:
            self.store.flush()  # no saved progress may be behind messages that a crash can lose
            for write in writes:
                write()

        if writes:
            self._saving = asyncio.ensure_future(in_thread(write_all))
            await asyncio.shield(self._saving)

    def bound(self, host: str, port: int) -> None:
        """Note the address of the remoting port; stored messages have it as their store host."""
        self.address = self.appender.store_host = f"{host}:{port}"
