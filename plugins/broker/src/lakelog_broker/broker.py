"""The parts of a running broker that both protocols share."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from lakelog import Store, errors
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.properties import LIGHT_QUEUE_PREFIX
from lakelog.runtime.threads import in_thread
from lakelog_broker.appending import BrokerAppender, is_system_topic
from lakelog_broker.popping import handles
from lakelog_broker.scheduled.transactions import Transactions
from lakelog_broker.settings import BrokerSettings
from lakelog_broker.state import ArrivalWaits, GroupOffsetTable, MemberTable, TopicTable
from lakelog_broker.traffic import Traffic
from lakelog_daemon.connection_limits import ConnectionLimits, RareLines
from lakelog_queues.delays.timers import Timers
from lakelog_queues.groups.set_aside import RETRY_PREFIX
from lakelog_queues.store import delays_of
from lakelog_rocketmq.config import TopicConfig


async def _not_running(port: int) -> None:
    raise RuntimeError(f"the gRPC port {port} cannot be opened: the broker does not run")


class Broker:
    """A broker over an open store; used from one event loop.

    :ivar path: the store directory
    :ivar files: creates files with the rights of the store's files
    :ivar address: ``host:port`` of the remoting port, once it is bound
    :ivar grpc_address: ``host:port`` of the gRPC port; empty without one
    :ivar open_grpc: opens the gRPC port of a running broker without one; port 0 is any free one
    :ivar appender: puts messages of clients
    :ivar limits: of the connections of all ports
    :ivar transactions: ends transactions for both protocols; asks producers in ``members`` for
        outcomes
    :ivar started_ms: time of its creation, in ms since 1970
    :ivar start_offset: end of the log at that time
    :ivar failure: the error of the failed store; only a new open of the store repairs it
    :ivar has_failed: set together with ``failure``
    """

    def __init__(self, store: Store, settings: BrokerSettings) -> None:
        """Build the broker over ``store``, which this process must own.

        Raises :class:`~lakelog.errors.CorruptConfig` and ``OSError``.
        """
        self.store, self.settings, self.path = store, settings, Path(store.path)
        self.start_offset, self.started_ms = store.max_offset, time.time_ns() // 1_000_000
        self.files = RealFileSystem.of_store(self.path)  # its group reads them, too
        self.topics = TopicTable(self.files, self.path, settings)
        self.offsets = GroupOffsetTable(store)
        self.members = MemberTable()
        self.waits = ArrivalWaits(store.arrivals, lambda *queue: self.bounds(*queue)[1])
        limit_ms = settings.timer_limit_s * 1000
        self.appender = BrokerAppender(store, settings.cluster, settings.region, limit_ms)
        self.transactions = Transactions(
            store, self.appender, self.waits, self.offsets, self.members, settings
        )
        self.traffic = Traffic(
            store.queues,
            lambda topic: not (is_system_topic(topic) or topic.startswith(LIGHT_QUEUE_PREFIX)),
            timers=lambda: 0 if self.timers is None else self.timers.delivered,
        )
        self.limits = ConnectionLimits(
            most=settings.max_connections,
            most_of_address=settings.max_connections_per_address,
            most_held_bytes=settings.max_held_bytes,
            first_request_s=settings.first_byte_timeout_s,
            idle_s=settings.idle_timeout_s,
            lines=RareLines(logging.getLogger("lakelog.broker")),
        )
        self.address = self.grpc_address = ""
        self.open_grpc: Callable[[int], Awaitable[None]] = _not_running
        self.failure: errors.StoreFailed | None = None
        self.has_failed = asyncio.Event()
        self._turns = itertools.count()
        self._saving: asyncio.Future[None] | None = None

    @property
    def timers(self) -> Timers | None:
        """The timer messages that wait; ``None`` if another process delivers them."""
        delays = delays_of(self.store)
        return None if delays is None else delays.timers

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

    def pop_retry_topic(self, group: str, topic: str) -> str:
        """The retry topic into which messages of ``topic`` go that a group popped.

        RocketMQ's default name does not tell the group ``a_b`` and the topic ``c`` from ``a`` and
        ``b_c``. If another group has it, the name is RocketMQ's second one.
        """
        name = handles.retry_topic(group, topic)
        if not self.has_retry_topic(group, name):
            name = handles.retry_topic(group, topic, handles.RETRY_TOPIC_V2)
        return name

    def make_topic_of(self, group: str, name: str) -> None:
        """Create a group's topic of retries or dead letters, unless it exists.

        A retry topic becomes the group's own. Raises :class:`Refused` for an impossible name.
        """
        self.topics.made(name, 1)
        if name.startswith(RETRY_PREFIX) and self.offsets.get(group, name, 0) is None:
            self.offsets.set(group, name, 0, self.bounds(name, 0)[0])

    def has_retry_topic(self, group: str, name: str) -> bool:
        """Whether a retry topic is the group's: it has an offset in it, or no other group has."""
        if self.offsets.get(group, name, 0) is not None:
            return True
        of_a_group = name.removeprefix(RETRY_PREFIX) in self.topics.groups()
        return not (of_a_group or self.offsets.groups(name) - {group})

    def topics_of_group(self, group: str) -> list[str]:
        """The topics to which a group subscribes, or in which it has an offset."""
        return sorted({*self.offsets.of_group(group), *self.members.group(group).subscriptions})

    async def save(self) -> None:
        """Save the offsets of groups and the progress of transactions.

        Raises :class:`~lakelog.errors.StoreError` and ``OSError``. A later call saves the rest.
        """
        while self._saving is not None and not self._saving.done():
            await asyncio.wait([self._saving])  # the thread of a cancelled save still runs
        self.transactions.note_progress()
        write = self.offsets.progress()
        if write is not None:
            self._saving = asyncio.ensure_future(in_thread(partial(self._write, write)))
            await asyncio.shield(self._saving)

    def _write(self, write: Callable[[], None]) -> None:
        self.store.flush()  # no saved progress may be behind messages that a crash can lose
        write()
