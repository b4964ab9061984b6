"""A store for event loops: the methods of :class:`~lakelog.Store` as coroutines.

A thread that passes an event loop's puts to a store, in order.

``put_async`` itself may block: for its turn to append, for a new segment, or for room if very many
puts wait. The thread takes all queued puts at once, and wakes the loop once for them.

Runs a blocking iterator in threads, one batch of items at a time.

Opens a store in a thread: recovering a log, or waiting for an owner, may take long.
"""

from __future__ import annotations

import asyncio
import os
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
from threading import Condition, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar

from lakelog import Store
from lakelog.errors import PutRefused, ThreadNotStarted
from lakelog.log.put_future import AwaitableFuture
from lakelog.message import Body, Message, MessageColumns, StoredMessage
from lakelog.results import PutResult, PutStatus
from lakelog.runtime.threads import in_thread, soon_done, started
from lakelog.settings.effective import Settings
from lakelog.store.log_store import Producer
from lakelog.store.open import open_store
from lakelog.store.parts import Role
from lakelog_queues.aio.consumer import AsyncConsumer, AsyncGroupConsumer

if TYPE_CHECKING:
    from lakelog_queues.consumers.consumer import CommitPolicy
    from lakelog_queues.consumers.queueaccess import StartPosition

Begun: TypeAlias = "asyncio.Future[AwaitableFuture[Any]]"
Given: TypeAlias = "tuple[Callable[[Any], AwaitableFuture[Any]], Any, Begun]"
MOST_AT_ONCE: Final = 256
"""Number of puts that are begun before the loop is notified."""


class PutThread:
    """The queue of puts from one event loop, and its thread."""

    def __init__(self) -> None:
        self._given: deque[Given] = deque()
        self._changed = Condition()
        self._closed = False
        self._thread: Thread | None = None

    async def put(self, begin: Callable[[Any], AwaitableFuture[Any]], what: Any) -> Any:
        """Have the thread call ``begin(what)``; then wait for the result of its future.

        Cancellation withdraws a put that has not begun yet.
        """
        begun: Begun = asyncio.get_running_loop().create_future()
        self._give((begin, what, begun))
        return await (await begun)

    def _give(self, given: Given) -> None:
        with self._changed:
            if self._closed:
                raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, "the store is closed")
            if self._thread is None:
                self._start()
            self._given.append(given)
            if len(self._given) == 1:
                self._changed.notify()

    def _start(self) -> None:
        try:
            self._thread = started(Thread(target=self._run, name="lakelog-aio", daemon=True))
        except ThreadNotStarted as error:
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, str(error)) from error

    def _run(self) -> None:
        while burst := self._next():
            _schedule_finish([(each, _begin(each)) for each in burst])

    def _next(self) -> list[Given]:
        """The queued puts; empty once the queue is closed and drained."""
        with self._changed:
            while not (self._given or self._closed):
                self._changed.wait()
            count = min(len(self._given), MOST_AT_ONCE)
            return [self._given.popleft() for _ in range(count)]

    def close(self) -> None:
        """Begin the queued puts, then stop; must not be called in the event loop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()


def _begin(given: Given) -> AwaitableFuture[Any] | Exception | None:
    begin, what, begun = given
    if begun.cancelled():
        return None
    try:
        return begin(what)
    except Exception as error:  # noqa: BLE001  # it is passed to the awaiting task
        return error


def _schedule_finish(those: list[tuple[Given, AwaitableFuture[Any] | Exception | None]]) -> None:
    loop = those[0][0][2].get_loop()
    with suppress(RuntimeError):  # no task waits in a closed loop
        loop.call_soon_threadsafe(_finish, those)


def _finish(those: list[tuple[Given, AwaitableFuture[Any] | Exception | None]]) -> None:
    """Give each waiting task the future of its put; runs in the loop."""
    for (_, _, begun), found in those:
        if begun.cancelled():
            continue
        if isinstance(found, AwaitableFuture):
            begun.set_result(found)
        elif found is not None:
            begun.set_exception(found)


T = TypeVar("T")
BATCH: Final = 256
"""Number of items taken per call in a thread."""


async def stepped(make: Callable[[], Iterator[T]], batch: int = BATCH) -> AsyncIterator[T]:
    """Yield the items of the iterator from ``make``; it is created and advanced only in threads."""
    iterator = await in_thread(make)
    while found := await in_thread(_some, iterator, batch):
        for each in found:
            yield each


def _some(iterator: Iterator[T], count: int) -> list[T]:
    return list(islice(iterator, count))


P = ParamSpec("P")


def _in_thread(
    method: Callable[Concatenate[Store, P], T],
) -> Callable[Concatenate[AsyncStore, P], Coroutine[Any, Any, T]]:
    """A method of :class:`~lakelog.Store`, with its arguments and docstring, run in a thread."""

    @wraps(method)
    async def call(self: AsyncStore, /, *arguments: P.args, **named: P.kwargs) -> T:
        return await in_thread(method, self._store, *arguments, **named)

    return call


def _stepped(
    method: Callable[Concatenate[Store, P], Iterator[T]], batch: int = BATCH
) -> Callable[Concatenate[AsyncStore, P], AsyncIterator[T]]:
    """As :func:`_in_thread` for an iterator, ``batch`` items at a time."""

    @wraps(method)
    def call(self: AsyncStore, /, *arguments: P.args, **named: P.kwargs) -> AsyncIterator[T]:
        return stepped(partial(method, self._store, *arguments, **named), batch)

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


class AsyncStore:
    """An open store in an event loop; created by :func:`lakelog.aio.open`.

    Methods take, return and raise the same as those of :class:`~lakelog.Store`, where they are
    described. If the task of a put is cancelled, a put that has not begun is withdrawn. Any other
    call runs to its end in its thread.
    """

    def __init__(self, store: Store) -> None:
        """Use ``store`` in a loop; the caller must not close it otherwise."""
        self._store = store
        self._put_thread = PutThread()
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
        """``owner``, ``attach``, ``read`` or ``replica``; see ``Store.role``."""
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
        make = partial(_columns, topic, bodies, queue_ids, tags, keys, properties)
        return await self.put_batch(await in_thread(make))

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
    scan_pieces = _stepped(Store.scan_pieces, batch=1)

    # --- by queue, time and key ---

    get = _prepared(Store.get_async)
    """It occupies no thread while it waits."""
    get_columns = _in_thread(Store.get_columns)
    get_records = _in_thread(Store.get_records)

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

    async def watch(
        self, topic: str | None = None, *, since: Mapping[tuple[str, int], int] | None = None
    ) -> AsyncIterator[dict[tuple[str, int], int]]:
        """Yield the queues that have new messages; see ``Store.watch_async``."""
        await self._prepare()
        async for grown in self._store.watch_async(topic, since=since):
            yield grown

    topics = _in_thread(Store.topics)
    queues = _in_thread(Store.queues)
    queue_bounds = _in_thread(Store.queue_bounds)
    offset_by_time = _in_thread(Store.offset_by_time)
    query = _in_thread(Store.query)

    # --- consumer groups ---

    async def consumer(
        self,
        group: str,
        topic: str,
        queue_ids: Sequence[int] | None = None,
        *,
        start: StartPosition = "latest",
        commit: CommitPolicy = "explicit",
        tags: str | None = None,
    ) -> AsyncConsumer:
        """A consumer that continues at its group's committed offsets."""
        work = partial(Store.consumer, start=start, commit=commit, tags=tags)
        made = await self.in_thread(work, group, topic, queue_ids)
        return AsyncConsumer(made, self._store.arrivals)

    async def subscribe(
        self,
        group: str,
        topics: str | Sequence[str] | Mapping[str, str | None],
        **options: Any,
    ) -> AsyncGroupConsumer:
        """Join a group whose members share the queues; options as in ``Store.subscribe``."""
        made = await self.in_thread(partial(Store.subscribe, **options), group, topics)
        return AsyncGroupConsumer(made, self._store.arrivals)

    groups = _in_thread(Store.groups)
    commit_offsets = _in_thread(Store.commit_offsets)
    forget_offsets = _in_thread(Store.forget_offsets)

    # --- dispatching and deletion ---

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


def _columns(topic: str, bodies: Any, *columns: Any) -> MessageColumns:
    from lakelog.message import body_column  # imports NumPy

    return MessageColumns(topic, body_column(bodies), *columns)


def open_async(path: str | os.PathLike[str], **arguments: Any) -> AsyncOpening:
    """Open the store in ``path``; use ``async with``, which closes it at the end.

    With ``await`` instead, the caller must ``await store.close()``.

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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._store is not None:
            await self._store.close()


def _close(opening: asyncio.Future[Store]) -> None:
    """Close, in a thread, a store whose caller was cancelled."""
    if not opening.cancelled() and opening.exception() is None:
        close = opening.result().close
        soon_done(partial(asyncio.get_running_loop().run_in_executor, None), "asyncio", close)
