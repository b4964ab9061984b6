"""lakelog for event loops: the methods of a store and its consumers, none of which blocks the loop.

::

    async with lakelog.aio.open("/tmp/events") as store:
        result = await store.put(lakelog.Message("orders", b"hello"))
        async for message in store.read("orders", 0, follow=True):
            print(message.body)

One thread begins the puts of a loop, in the order of the calls. Files are read, and strategies are
called, in threads of the loop. No thread waits for messages.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import deque
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from functools import partial, wraps
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar

from lakelog import Store
from lakelog.arguments import span_ms, whole
from lakelog.dispatch import Lag
from lakelog.errors import DispatchStopped, PutRefused, StoreClosed, ThreadNotStarted
from lakelog.format.queue_offsets import Queue
from lakelog.log.put_future import AwaitableFuture
from lakelog.message import Body, Message, MessageColumns, StoredMessage, body_column
from lakelog.results import PutResult, PutStatus
from lakelog.runtime.threads import Background, in_thread, soon_done
from lakelog.settings.effective import Settings
from lakelog.store.log_store import Producer
from lakelog.store.open import open_store
from lakelog.store.parts import Role

if TYPE_CHECKING:
    from lakelog import Consumer, Delivery, GroupConsumer, RecoveryReport
    from lakelog_queues.consumers.consumer import StartPosition
    from lakelog_queues.readers import CurrentArrivals

__all__ = [
    "AsyncConsumer",
    "AsyncGroupConsumer",
    "AsyncOpening",
    "AsyncProducer",
    "AsyncStore",
    "open",
]

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
Begun: TypeAlias = "asyncio.Future[AwaitableFuture[Any]]"
Given: TypeAlias = "tuple[Callable[[Any], AwaitableFuture[Any]], Any, Begun]"
MOST_AT_ONCE: Final = 256
"""Number of puts that are begun before the loop is notified."""
_STEP: Final = 256
"""Number of items that an iterator yields per call in a thread."""
_BATCH_MESSAGES: Final = 32
_NAP_S: Final = 0.5
"""Interval at which a waiting consumer checks whether it was closed, or a queue was added."""


# --- opening ---


def open(path: str | os.PathLike[str], **arguments: Any) -> AsyncOpening:  # noqa: A001  # lakelog.aio.open, like lakelog.open
    """Open the store in ``path``; use ``async with``, which closes it at the end.

    With ``await`` instead, the caller must ``await store.close()``. A thread opens the store:
    recovering a log, or waiting for an owner, may take long.

    :param arguments: those of :func:`lakelog.open`, which also documents the errors
    """
    return AsyncOpening(partial(open_store, path, **arguments))


class AsyncOpening:
    """A store to be opened: use it in ``async with``, or await it once."""

    def __init__(self, make: partial[Store]) -> None:
        self._make = make
        self._store: AsyncStore | None = None

    def __await__(self) -> Generator[Any, None, AsyncStore]:
        return self._open().__await__()

    async def _open(self) -> AsyncStore:
        opening = asyncio.ensure_future(in_thread(self._make))
        try:
            return AsyncStore(await asyncio.shield(opening))
        except asyncio.CancelledError:
            opening.add_done_callback(_close)  # the caller cannot close it any more
            raise

    async def __aenter__(self) -> AsyncStore:
        self._store = await self._open()
        return self._store

    async def __aexit__(self, *_: object) -> None:
        if self._store is not None:
            await self._store.close()


def _close(opening: asyncio.Future[Store]) -> None:
    """Close, in a thread, a store whose caller was cancelled."""
    if not opening.cancelled() and opening.exception() is None:
        close = opening.result().close
        soon_done(partial(asyncio.get_running_loop().run_in_executor, None), "asyncio", close)


# --- consumers ---


async def _arrival(arrivals: CurrentArrivals, seen: int, longest_s: float) -> None:
    """Wait until the version of ``arrivals`` is not ``seen`` any more, or for some seconds."""
    with suppress(TimeoutError):
        await asyncio.wait_for(arrivals.wait_async(seen), longest_s)


class AsyncConsumer:
    """The asynchronous form of :class:`~lakelog.Consumer`; used by one task at a time.

    A cancelled call loses no message: the next call returns what it fetched.

    :ivar group: the consumer group
    :ivar topic: the topic
    """

    def __init__(self, consumer: Consumer, store: Store) -> None:
        self.group = consumer.group
        self.topic = consumer.topic
        self._consumer = consumer
        self._arrivals = store.arrivals
        self._under_way: asyncio.Future[Any] | None = None
        self._closed = False

    # --- reading ---

    async def poll(
        self, max_messages: int = _BATCH_MESSAGES, wait_ms: float = 0
    ) -> list[StoredMessage]:
        """The next messages, in the order of the log.

        :param wait_ms: longest wait for the first message
        :returns: at most ``max_messages``; empty on timeout
        """
        max_messages = whole("max_messages", max_messages, 1)
        end = asyncio.get_running_loop().time() + span_ms("wait_ms", wait_ms) / 1000
        await self._await_some(max_messages, end)
        return list(self._ready(max_messages))

    async def messages(self, *, follow: bool = True) -> AsyncIterator[StoredMessage]:
        """Yield one message after the other.

        A message counts as delivered once it is yielded. With the commit policy ``batch`` it is
        committed when the following ones are fetched.

        :param follow: wait for more at the end, until the consumer or its store is closed
        """
        while not self._closed:
            patience = _NAP_S if follow else 0
            end = asyncio.get_running_loop().time() + patience
            if not await self._await_some(_BATCH_MESSAGES, end) and (
                not follow or self._arrivals.closed
            ):
                return
            for message in self._ready(_BATCH_MESSAGES):
                yield message

    def __aiter__(self) -> AsyncIterator[StoredMessage]:
        """Yield all messages, then new ones as they arrive."""
        return self.messages()

    async def _await_some(self, max_messages: int, end: float) -> bool:
        """Wait until messages are ready, or until ``end``; returns whether there are any."""
        loop = asyncio.get_running_loop()
        while True:
            seen, found = await self._in_thread(self._look, max_messages)
            left = end - loop.time()
            if found or left <= 0 or self._arrivals.closed:
                return found
            await _arrival(self._arrivals, seen, min(left, _NAP_S))

    def _look(self, max_messages: int) -> tuple[int, bool]:
        """The arrivals version before the fetch, and whether the fetch found messages."""
        seen = self._arrivals.version
        return seen, self._consumer.fetch(max_messages)

    def _ready(self, most: int) -> Iterator[StoredMessage]:
        return islice(iter(self._consumer.take, None), min(most, sys.maxsize))

    async def fetch(self, max_messages: int = _BATCH_MESSAGES) -> bool:
        """Fetch messages for :meth:`take`; returns whether there are any."""
        return await self._in_thread(self._consumer.fetch, max_messages)

    def take(self) -> StoredMessage | None:
        """The next fetched message, which now counts as delivered; reads no file."""
        return self._consumer.take()

    # --- positions ---

    def position(self, queue_id: int) -> int:
        """The queue offset after the last delivered message."""
        return self._consumer.position(queue_id)

    async def commit(self) -> None:
        """Commit the position after the last delivered message of every queue, durably."""
        await self._in_thread(self._consumer.commit)

    async def committed(self) -> dict[int, int]:
        """The committed next offset, by queue id."""
        return await self._in_thread(self._consumer.committed)

    async def seek(self, queue_id: int, offset: int) -> None:
        """Continue at ``offset`` in a queue."""
        await self._in_thread(self._consumer.seek, queue_id, offset)

    async def reset(self, to: StartPosition | int) -> None:
        """Continue at another place in all queues, and commit it."""
        await self._in_thread(self._consumer.reset, to)

    async def lag(self) -> dict[int, int]:
        """The number of messages not delivered yet, by queue id."""
        return await self._in_thread(self._consumer.lag)

    # --- end ---

    async def close(self) -> None:
        """Stop reading; with the commit policy ``batch``, commit what was delivered."""
        await self.__aexit__(None, None, None)

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(self, *raised: Any) -> None:
        """Close; after an error without a commit, so that the batch is delivered again."""
        self._closed = True
        await self._in_thread(self._consumer.__exit__, *raised)

    async def _in_thread(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Run ``work`` in a thread, after any call whose task was cancelled."""
        # Cancelling a task does not stop its thread, and the consumer is not thread-safe. So the
        # next call waits for that thread first.
        while self._under_way is not None and not self._under_way.done():
            await asyncio.wait([self._under_way])
        under_way = asyncio.ensure_future(in_thread(work, *arguments, **named))
        self._under_way = under_way
        return await asyncio.shield(under_way)


class AsyncGroupConsumer:
    """The asynchronous form of :class:`~lakelog.GroupConsumer`; any task may use it.

    A cancelled poll loses no message: the next one returns what it fetched.

    :ivar group: the consumer group
    :ivar member: the number of this member in the store
    """

    def __init__(self, consumer: GroupConsumer, store: Store) -> None:
        self.group = consumer.group
        self.member = consumer.member
        self._consumer = consumer
        self._arrivals = store.arrivals
        self._fetched: deque[Delivery] = deque()
        self._closed = False

    async def poll(self, max_messages: int = _BATCH_MESSAGES, wait_ms: float = 0) -> list[Delivery]:
        """The next messages of this member's queues; empty on timeout."""
        most, wait = whole("max_messages", max_messages, 1), span_ms("wait_ms", wait_ms)
        deadline = time.monotonic() + wait / 1000
        while True:
            found = self._ready(most)
            if found:
                return found
            seen, nap_s = await in_thread(self._look, most)
            found, left = self._ready(most), deadline - time.monotonic()
            if found or left <= 0 or self._arrivals.closed:
                return found
            await _arrival(self._arrivals, seen, min(left, nap_s))

    def _look(self, most: int) -> tuple[int, float]:
        """Fetch, in a thread; return the version of arrivals before, and the longest wait."""
        seen = self._arrivals.version
        self._fetched.extend(self._consumer.fetch(most))
        return seen, self._consumer.nap_s()

    def _ready(self, most: int) -> list[Delivery]:
        """Fetched messages whose time is not over."""
        found: list[Delivery] = []
        while self._fetched and len(found) < most:
            each = self._fetched.popleft()
            if each.visible_ms > time.time_ns() // 1_000_000:
                found.append(each)
        return found

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        """Yield messages as they arrive, until the consumer or its store is closed."""
        while not (self._closed or self._arrivals.closed):
            try:
                found = await self.poll(1, _NAP_S * 1000)
            except StoreClosed:
                return
            for each in found:
                yield each

    async def ack(self, *deliveries: Delivery) -> bool:
        """As :meth:`GroupConsumer.ack <lakelog.GroupConsumer.ack>`."""
        return await in_thread(self._consumer.ack, *deliveries)

    async def nack(self, delivery: Delivery, delay_ms: float | None = None) -> bool:
        """As :meth:`GroupConsumer.nack <lakelog.GroupConsumer.nack>`."""
        return await in_thread(self._consumer.nack, delivery, delay_ms)

    async def renew(self, delivery: Delivery, invisible_ms: float | None = None) -> bool:
        """As :meth:`GroupConsumer.renew <lakelog.GroupConsumer.renew>`."""
        return await in_thread(self._consumer.renew, delivery, invisible_ms)

    async def commit(self) -> None:
        """As :meth:`GroupConsumer.commit <lakelog.GroupConsumer.commit>`."""
        await in_thread(self._consumer.commit)

    def assigned(self) -> list[Queue]:
        """Topic and queue id of each queue in which this member looks for messages."""
        return self._consumer.assigned()

    async def close(self) -> None:
        """Leave the group, and commit; messages not acknowledged are visible at once."""
        self._closed = True
        await asyncio.shield(in_thread(self._consumer.close))

    async def __aenter__(self) -> AsyncGroupConsumer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


# --- the store ---


def _in_thread(
    method: Callable[Concatenate[Store, P], T],
) -> Callable[Concatenate[AsyncStore, P], Coroutine[Any, Any, T]]:
    """A method of :class:`~lakelog.Store`, with its arguments and docstring, run in a thread."""
    return _made(method, lambda result, _store: result)


def _made(
    method: Callable[Concatenate[Store, P], T], adapt: Callable[[T, Store], R]
) -> Callable[Concatenate[AsyncStore, P], Coroutine[Any, Any, R]]:
    """As :func:`_in_thread` for a method that makes a consumer."""

    @wraps(method)
    async def call(self: AsyncStore, /, *arguments: P.args, **named: P.kwargs) -> R:
        return adapt(await in_thread(method, self._store, *arguments, **named), self._store)

    return call


def _stepped(
    method: Callable[Concatenate[Store, P], Iterator[T]], step: int = _STEP
) -> Callable[Concatenate[AsyncStore, P], AsyncIterator[T]]:
    """As :func:`_in_thread` for an iterator, which is created and advanced only in threads.

    :param step: number of items per call in a thread
    """

    @wraps(method)
    async def call(self: AsyncStore, /, *arguments: P.args, **named: P.kwargs) -> AsyncIterator[T]:
        iterator = await in_thread(method, self._store, *arguments, **named)
        while found := await in_thread(lambda: list(islice(iterator, step))):
            for each in found:
                yield each

    return call


def _prepared(
    method: Callable[Concatenate[Store, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[AsyncStore, P], Coroutine[Any, Any, T]]:
    """A coroutine of :class:`~lakelog.Store`, called once the objects for reading are built."""

    @wraps(method)
    async def call(self: AsyncStore, /, *arguments: P.args, **named: P.kwargs) -> T:
        await self._prepare()
        return await method(self._store, *arguments, **named)

    return call


def _prepared_each(
    method: Callable[Concatenate[Store, P], AsyncIterator[T]],
) -> Callable[Concatenate[AsyncStore, P], AsyncIterator[T]]:
    """As :func:`_prepared` for an asynchronous iterator."""

    @wraps(method)
    async def call(self: AsyncStore, /, *arguments: P.args, **named: P.kwargs) -> AsyncIterator[T]:
        await self._prepare()
        async for each in method(self._store, *arguments, **named):
            yield each

    return call


class AsyncStore:
    """An open store in an event loop; created by :func:`lakelog.aio.open`.

    Methods take, return and raise the same as those of :class:`~lakelog.Store`, where they are
    described. Attributes that may read files are coroutines here: ``await store.max_offset()``.
    ``put``, ``get``, ``read`` and ``watch`` stand for the methods of the store with ``_async`` in
    their names. If the task of a put is cancelled, a put that has not begun is withdrawn. Any other
    call runs to its end in its thread.
    """

    def __init__(self, store: Store) -> None:
        """Use ``store`` in a loop; the caller must not close it otherwise."""
        self._store = store
        self._put_thread = PutThread()
        self._is_prepared = False

    async def in_thread(
        self, work: Callable[Concatenate[Store, P], T], *arguments: P.args, **named: P.kwargs
    ) -> T:
        """Run any function of the store in a thread, such as ``lambda store: store.topics()``."""
        return await in_thread(work, self._store, *arguments, **named)

    # --- what it is ---

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
        """``owner``, ``attach``, ``read`` or ``replica``; see ``Store.role``."""
        return self._store.role

    @property
    def is_writable(self) -> bool:
        """Whether puts are accepted."""
        return self._store.is_writable

    @property
    def read_only(self) -> bool:
        """Whether the store was opened for reading."""
        return self._store.read_only

    @property
    def puts_wait(self) -> bool:
        """Whether a put may wait for a sync or for copies."""
        return self._store.puts_wait

    @property
    def recovery(self) -> RecoveryReport | None:
        """The report of the recovery by this owner; ``None`` in any other role."""
        return self._store.recovery

    @property
    def dispatch_failure(self) -> DispatchStopped | None:
        """The dispatcher's error if dispatching has stopped; puts continue."""
        return self._store.dispatch_failure

    @property
    def arrivals(self) -> CurrentArrivals:
        """Notifies of new messages; ``await store.arrivals.wait_async(version)`` waits for them."""
        return self._store.arrivals

    # --- writing ---

    async def put(self, message: Message) -> PutResult:
        """Append one message; concurrent puts of many tasks share one wait."""
        result: PutResult = await self._put_thread.put(self._store.put_async, message)
        return result

    async def put_batch(self, messages: Sequence[Message]) -> Sequence[PutResult]:
        """Append many messages, in order and adjacent."""
        begin = self._store.put_batch_async
        results: Sequence[PutResult] = await self._put_thread.put(begin, messages)
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
        shared = queue_ids, tags, keys, properties
        columns = await in_thread(lambda: MessageColumns(topic, body_column(bodies), *shared))
        return await self.put_batch(columns)

    def producer(
        self, topic: str, *, tags: str | None = None, queue: int | None = None
    ) -> AsyncProducer:
        """A producer for messages of one topic; raises like the store's method."""
        return AsyncProducer(self, Producer(topic, tags, queue))

    flush = _in_thread(Store.flush)

    # --- the log ---

    look_up = _in_thread(Store.look_up)
    look_up_record = _in_thread(Store.look_up_record)
    scan = _stepped(Store.scan)
    """Its ``on_damage`` is called in a thread."""
    scan_pieces = _stepped(Store.scan_pieces, step=1)
    wait_flushed = _in_thread(Store.wait_flushed)
    """It occupies a thread."""

    async def min_offset(self) -> int:
        """Offset of the first byte still in the log."""
        return await self.in_thread(lambda store: store.min_offset)

    async def oldest_offset(self) -> int:
        """First readable offset, in the archive or in the log."""
        return await self.in_thread(lambda store: store.oldest_offset)

    async def max_offset(self) -> int:
        """Offset where reads stop: the end of the last acknowledged message."""
        return await self.in_thread(lambda store: store.max_offset)

    async def flushed_offset(self) -> int:
        """Durable end of the log; 0 if unknown."""
        return await self.in_thread(lambda store: store.flushed_offset)

    async def is_flushed_known(self) -> bool:
        """Whether the durable end of the log is known."""
        return await self.in_thread(lambda store: store.is_flushed_known)

    # --- by queue, time and key ---

    get = _prepared(Store.get_async)
    """It occupies no thread while it waits."""
    read = _prepared_each(Store.read_async)
    watch = _prepared_each(Store.watch_async)
    get_columns = _in_thread(Store.get_columns)
    get_records = _in_thread(Store.get_records)
    topics = _in_thread(Store.topics)
    queues = _in_thread(Store.queues)
    queue_bounds = _in_thread(Store.queue_bounds)
    queue_units = _in_thread(Store.queue_units)
    offset_by_time = _in_thread(Store.offset_by_time)
    earliest_time = _in_thread(Store.earliest_time)
    query = _in_thread(Store.query)
    query_offsets = _in_thread(Store.query_offsets)

    # --- consumer groups ---

    consumer = _made(Store.consumer, AsyncConsumer)
    subscribe = _made(Store.subscribe, AsyncGroupConsumer)
    groups = _in_thread(Store.groups)
    group_status = _in_thread(Store.group_status)
    commit_offsets = _in_thread(Store.commit_offsets)
    forget_offsets = _in_thread(Store.forget_offsets)

    # --- dispatching and deletion ---

    async def dispatched_offset(self) -> int:
        """Offset up to which the log is dispatched to queues and index."""
        return await self.in_thread(lambda store: store.dispatched_offset)

    async def dispatch_lag(self) -> Lag:
        """The distance of queues and index from the end of the log."""
        return await self.in_thread(lambda store: store.dispatch_lag)

    wait_dispatched = _in_thread(Store.wait_dispatched)
    """It occupies a thread."""
    resume_dispatch = _in_thread(Store.resume_dispatch)
    delete_topic = _in_thread(Store.delete_topic)
    delete_unused_topics = _in_thread(Store.delete_unused_topics)
    delete_expired = _in_thread(Store.delete_expired)
    disk = _in_thread(Store.disk)

    # --- lifecycle ---

    async def close(self) -> None:
        """Append queued puts, flush and close."""
        try:
            await asyncio.shield(in_thread(self._close))
        except ThreadNotStarted:
            self._close()  # closing must always succeed, even if it blocks the loop

    def _close(self) -> None:
        self._put_thread.close()
        self._store.close()

    async def __aenter__(self) -> AsyncStore:
        return self

    async def __aexit__(self, *_: object) -> None:
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
        """Put the same messages as ``checked``, a :class:`~lakelog.store.log_store.Producer`."""
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


class PutThread:
    """The queue of puts from one event loop, and its thread.

    ``put_async`` itself may block: for its turn to append, for a new segment, or for room if very
    many puts wait. The thread takes all queued puts at once, and wakes the loop once for them.
    """

    def __init__(self) -> None:
        self._given: deque[Given] = deque()
        self._closed = False
        self._thread = Background("lakelog-aio", self._begin_given)

    async def put(self, begin: Callable[[Any], AwaitableFuture[Any]], what: Any) -> Any:
        """Have the thread call ``begin(what)``; then wait for the result of its future.

        Cancellation withdraws a put that has not begun yet.
        """
        begun: Begun = asyncio.get_running_loop().create_future()
        self._give((begin, what, begun))
        return await (await begun)

    def _give(self, given: Given) -> None:
        if self._closed:
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, "the store is closed")
        self._given.append(given)
        try:
            self._thread.wake()
        except ThreadNotStarted as error:
            self._given.remove(given)
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, str(error)) from error
        if self._closed:  # meanwhile: the thread may have ended before
            self._begin_given()

    def _begin_given(self) -> None:
        while burst := self._next():
            those = [(each, _begin(each)) for each in burst]
            with suppress(RuntimeError):  # no task waits in a closed loop
                burst[0][2].get_loop().call_soon_threadsafe(_finish, those)

    def _next(self) -> list[Given]:
        """The first queued puts; two threads never take the same one."""
        burst = list[Given]()
        with suppress(IndexError):
            while len(burst) < MOST_AT_ONCE:
                burst.append(self._given.popleft())
        return burst

    def close(self) -> None:
        """Begin the queued puts, then stop; must not be called in the event loop."""
        self._closed = True
        self._thread.close()
        self._begin_given()


def _begin(given: Given) -> AwaitableFuture[Any] | Exception | None:
    begin, what, begun = given
    if begun.cancelled():
        return None
    try:
        return begin(what)
    except Exception as error:  # noqa: BLE001  # it is passed to the awaiting task
        return error


def _finish(those: list[tuple[Given, AwaitableFuture[Any] | Exception | None]]) -> None:
    """Give each waiting task the future of its put; runs in the loop."""
    for (_, _, begun), found in those:
        if begun.cancelled():
            continue
        if isinstance(found, AwaitableFuture):
            begun.set_result(found)
        elif found is not None:
            begun.set_exception(found)
