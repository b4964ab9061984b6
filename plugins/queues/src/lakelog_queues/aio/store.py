"""A store for event loops: the methods of :class:`~lakelog.Store` as coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar

from lakelog import Store
from lakelog.errors import ThreadNotStarted
from lakelog.housekeeping.report import CleaningReport
from lakelog.interfaces import DiskReport
from lakelog.log.reading.log_reader import OnDamage
from lakelog.log.reading.pieces import Piece
from lakelog.message import Body, Message, MessageColumns, StoredMessage
from lakelog.results import PutResult
from lakelog.runtime.threads import in_thread
from lakelog.settings.effective import Settings
from lakelog.store.producer import Producer
from lakelog.store.roles.parts import Role
from lakelog_queues.aio.consumer import AsyncConsumer
from lakelog_queues.aio.handing import Handing
from lakelog_queues.aio.stepping import stepped

if TYPE_CHECKING:
    from lakelog_queues.consumers.consumer import CommitPolicy
    from lakelog_queues.consumers.places import Place
    from lakelog_queues.finding.results import ColumnsResult, GetResult, QueueInfo

P = ParamSpec("P")
T = TypeVar("T")


class AsyncStore:
    """An open store in an event loop; created by :func:`lakelog.aio.open`.

    Methods return and raise the same as those of :class:`~lakelog.Store`. If the task of a put is
    cancelled, a put that has not begun is withdrawn. Any other call runs to its end in its thread.
    """

    def __init__(self, store: Store) -> None:
        """Use ``store`` in a loop; the caller must not close it otherwise."""
        self._store = store
        self._handing = Handing()
        self._is_prepared = False

    @property
    def path(self) -> Path:
        """The store directory."""
        return self._store.path

    @property
    def settings(self) -> Settings:
        """The settings it was opened with, with the origin of each value."""
        return self._store.settings

    @property
    def role(self) -> Role:
        """``owner``, ``attach`` or ``read``."""
        return self._store.role

    @property
    def is_writable(self) -> bool:
        """Whether puts are accepted."""
        return self._store.is_writable

    async def in_thread(
        self, work: Callable[Concatenate[Store, P], T], *arguments: P.args, **named: P.kwargs
    ) -> T:
        """Run any function of the store in a thread, such as ``lambda store: store.max_offset``."""
        return await in_thread(work, self._store, *arguments, **named)

    # --- writing ---

    async def put(self, message: Message) -> PutResult:
        """Append one message; concurrent puts of many tasks share one wait."""
        result: PutResult = await self._handing.put(self._store.put_async, message)
        return result

    async def put_batch(self, messages: Sequence[Message]) -> Sequence[PutResult]:
        """Append many messages, in order and adjacent."""
        begin = self._store.put_batch_async
        results: Sequence[PutResult] = await self._handing.put(begin, messages)
        return results

    async def put_columns(
        self,
        topic: str,
        bodies: Any,
        *,
        queue_ids: int | Sequence[int | None] | None = None,
        tags: str | Sequence[str | None] | None = None,
        keys: str | Sequence[str | Sequence[str] | None] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Sequence[PutResult]:
        """Append many messages of one topic, without an object for each."""
        make = partial(_columns, topic, bodies, queue_ids, tags, keys, properties)
        return await self.put_batch(await in_thread(make))

    def producer(
        self, topic: str, *, tags: str | None = None, queue: int | None = None
    ) -> AsyncProducer:
        """A producer for messages of one topic; raises like the store's method."""
        return AsyncProducer(self, Producer(topic, tags, queue))

    async def flush(self) -> int:
        """Make all earlier puts durable; returns the durable end."""
        return await self.in_thread(Store.flush)

    # --- the log ---

    async def look_up(self, where: int | str) -> StoredMessage:
        """The message at a physical offset, or with an offset message id."""
        return await self.in_thread(Store.look_up, where)

    def scan(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        on_damage: OnDamage | None = None,
    ) -> AsyncIterator[StoredMessage]:
        """Yield every message of the log from ``start`` to ``end``.

        :param on_damage: called in a thread
        """
        return stepped(partial(self._store.scan, start, end, on_damage=on_damage))

    def scan_pieces(
        self, start: int | None = None, end: int | None = None, *, verify: bool = True
    ) -> AsyncIterator[Piece]:
        """Yield record batches, blanks and damage in log order."""
        return stepped(partial(self._store.scan_pieces, start, end, verify=verify), batch=1)

    # --- by queue, time and key ---

    async def get(
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
        """Messages of a queue from a queue offset on; occupies no thread while it waits.

        :param wait_ms: longest wait for the first message
        """
        await self._prepare()
        return await self._store.get_async(
            topic, queue_id, offset, max_messages, max_bytes=max_bytes, tags=tags, wait_ms=wait_ms
        )

    async def get_columns(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int = 1024,
        *,
        columns: Iterable[str] | None = None,
        **more: Any,
    ) -> ColumnsResult:
        """The messages of :meth:`get` as an Arrow record batch.

        :param more: ``max_bytes``, ``tags``, ``decompress``, ``verify``
        """
        work = partial(Store.get_columns, columns=columns, **more)
        return await self.in_thread(work, topic, queue_id, offset, max_messages)

    async def read(
        self,
        topic: str,
        queue_id: int,
        start: int | None = None,
        *,
        follow: bool = False,
        tags: str | None = None,
    ) -> AsyncIterator[StoredMessage]:
        """Yield messages of a queue to its end; with ``follow``, until the store is closed."""
        await self._prepare()
        reading = self._store.read_async(topic, queue_id, start, follow=follow, tags=tags)
        async for message in reading:
            yield message

    async def topics(self) -> list[str]:
        """All topics that have a queue."""
        return await self.in_thread(Store.topics)

    async def queues(self, topic: str | None = None) -> list[QueueInfo]:
        """All queues, or those of one topic."""
        return await self.in_thread(Store.queues, topic)

    async def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """The first queue offset that exists, and the next one to be written."""
        return await self.in_thread(Store.queue_bounds, topic, queue_id)

    async def offset_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: int,
        boundary: Literal["lower", "upper"] = "lower",
    ) -> int:
        """The queue offset for a store time in ms since 1970; ``Store.offset_by_time``."""
        return await self.in_thread(Store.offset_by_time, topic, queue_id, timestamp_ms, boundary)

    async def query(
        self,
        topic: str,
        key: str,
        *,
        since_ms: int | None = None,
        until_ms: int | None = None,
        max_messages: int = 64,
    ) -> list[StoredMessage]:
        """Messages with a key, newest first."""
        work = partial(Store.query, since_ms=since_ms, until_ms=until_ms, max_messages=max_messages)
        return await self.in_thread(work, topic, key)

    # --- consumer groups ---

    async def consumer(
        self,
        group: str,
        topic: str,
        queue_ids: Sequence[int] | None = None,
        *,
        start: Place = "latest",
        commit: CommitPolicy = "explicit",
        tags: str | None = None,
    ) -> AsyncConsumer:
        """A consumer that continues at its group's committed offsets."""
        work = partial(Store.consumer, start=start, commit=commit, tags=tags)
        made = await self.in_thread(work, group, topic, queue_ids)
        return AsyncConsumer(made, self._store._arrivals)

    async def groups(self) -> dict[str, dict[str, dict[int, int]]]:
        """The committed offsets of every group, by topic and queue."""
        return await self.in_thread(Store.groups)

    # --- dispatching and deletion ---

    async def wait_dispatched(self, offset: int | None = None, timeout_ms: int = 10_000) -> bool:
        """Wait until queues and index reach a physical offset; occupies a thread.

        :param offset: ``None`` is the readable end of the log
        :returns: ``False`` on timeout
        """
        return await self.in_thread(Store.wait_dispatched, offset, timeout_ms)

    async def resume_dispatch(self) -> None:
        """Resume dispatching after the cause of a dispatcher's failure was removed."""
        await self.in_thread(Store.resume_dispatch)

    async def delete_topic(self, topic: str) -> None:
        """Remove the queues of ``topic`` permanently."""
        await self.in_thread(Store.delete_topic, topic)

    async def delete_unused_topics(self) -> list[str]:
        """Remove the queues of topics without remaining messages."""
        return await self.in_thread(Store.delete_unused_topics)

    async def delete_expired(self, *, dry_run: bool = False) -> CleaningReport:
        """Delete now the segments that the cleaner chooses."""
        return await self.in_thread(partial(Store.delete_expired, dry_run=dry_run))

    async def disk(self) -> DiskReport | None:
        """The usage of the disks."""
        return await self.in_thread(Store.disk)

    # --- lifecycle ---

    async def close(self) -> None:
        """Append queued puts, flush and close."""
        try:
            await asyncio.shield(in_thread(self._close))
        except ThreadNotStarted:
            self._close()  # closing must always succeed, even if it blocks the loop

    def _close(self) -> None:
        self._handing.close()
        self._store.close()

    async def __aenter__(self) -> AsyncStore:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<lakelog.aio.AsyncStore of {self._store!r}>"

    async def _prepare(self) -> None:
        """Build the objects for reading, in a thread, before the first read."""
        if not self._is_prepared:
            await in_thread(lambda: self._store._find)
            self._is_prepared = True


class AsyncProducer:
    """Puts messages of one topic; created by :meth:`AsyncStore.producer`."""

    def __init__(self, store: AsyncStore, checked: Producer) -> None:
        """Put the same messages as ``checked``, a :class:`~lakelog.store.producer.Producer`."""
        self._store = store
        self._of = checked

    async def put(self, body: Body, keys: str | Sequence[str] | None = None) -> PutResult:
        """Append one message."""
        of = self._of
        return await self._store.put(Message(of.topic, body, of.tags, keys, None, of.queue))

    async def put_many(
        self, bodies: Any, keys: str | Sequence[str | Sequence[str] | None] | None = None
    ) -> Sequence[PutResult]:
        """Append many adjacent messages."""
        of = self._of
        put = self._store.put_columns
        return await put(of.topic, bodies, queue_ids=of.queue, tags=of.tags, keys=keys)


def _columns(topic: str, bodies: Any, *columns: Any) -> MessageColumns:
    from lakelog.codec.body_column import body_column  # imports NumPy

    return MessageColumns(topic, body_column(bodies), *columns)
