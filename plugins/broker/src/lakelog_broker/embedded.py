"""Runs a broker over an open store, in the running event loop or in a thread with its own.

The first has the broker's ports, and its regular work; the second is used without ``async``.
Similar log lines are limited: a failing disk or a looping client causes one line per message.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import attrs

import lakelog
from lakelog import Store, StoredMessage, errors
from lakelog.arguments import WrongValue, folder, shown, whole, wrong_type
from lakelog.runtime.threads import in_thread, never_wait, started
from lakelog_broker.broker import Broker
from lakelog_broker.popping.checkpoints import revive_checkpoints
from lakelog_broker.remoting.sending import PlainSends
from lakelog_broker.remoting.server import RemotingServer
from lakelog_broker.settings import BrokerSettings
from lakelog_broker.traffic import SAMPLE_INTERVAL_S
from lakelog_daemon.file_lock import locked
from lakelog_daemon.notify import STATUS, Notifier
from lakelog_rocketmq.config import TopicConfig

if TYPE_CHECKING:
    from lakelog_broker.popping.service import Popping

_LOG: Final = logging.getLogger("lakelog.broker")
MOST_LINES: Final = 10
INTERVAL_S: Final = 5.0
SAVE_INTERVAL_S: Final = 5.0
"""RocketMQ's ``flushConsumerOffsetInterval``."""
LOCK_FILE: Final = "broker.lock"
_SILENCE_INTERVAL_S: Final = 10.0
_HEALTH_INTERVAL_S: Final = 1.0
_LIMITS_INTERVAL_S: Final = 1.0
_RETRY_S: Final = 1.0


class PortUnavailable(errors.LakelogError):
    """A port of the broker cannot be bound."""

    exit_code = 3


@contextlib.asynccontextmanager
async def running_broker(
    store: Store, settings: BrokerSettings | None = None
) -> AsyncIterator[Broker]:
    """Serve ``store``, which this process owns, while the context lasts.

    The broker's ``has_failed`` is set when the store has failed; the caller should then leave the
    context. Raises :class:`~lakelog.errors.StoreLocked` if the store already has a broker, in this
    or another process, :class:`PortUnavailable`, and :class:`~lakelog.errors.SettingsError`, also
    if a gRPC port is set and grpcio is missing.
    """
    what = "another broker serves this store to RocketMQ's clients, and a store has one; stop it"
    limit = LineLimit()
    with locked(Path(store.path), LOCK_FILE, what):
        _LOG.addFilter(limit)
        try:
            async with _serving(store, settings or BrokerSettings()) as broker:
                yield broker
        finally:
            _LOG.removeFilter(limit)


@contextlib.asynccontextmanager
async def _serving(store: Store, settings: BrokerSettings) -> AsyncIterator[Broker]:
    broker = Broker(store, settings)
    await revive_checkpoints(broker)
    tasks: list[asyncio.Task[None]] = []

    @cache
    def popping() -> Popping:
        from lakelog_broker.popping.service import Popping  # at the first pop

        return Popping(broker)

    def begin(name: str, work: Callable[[], Awaitable[None]]) -> None:
        tasks.append(asyncio.create_task(supervised(name, work)))

    async def open_grpc(port: int) -> None:
        try:
            from lakelog_broker.grpc.server import GrpcServer
        except ModuleNotFoundError as error:
            what = f"the gRPC port needs lakelog-broker[grpc] ({error})"
            raise errors.SettingsError(f"{what}: install it, or give no grpc_port") from error
        grpc = GrpcServer(broker, popping())
        ports.push_async_callback(grpc.close)
        await grpc.start(port)
        broker.grpc_address = f"{settings.host}:{grpc.port}"
        begin("renewals", grpc.renew)

    async with contextlib.AsyncExitStack() as ports:
        server = RemotingServer(broker, popping, PlainSends(broker).answer)
        ports.push_async_callback(server.close)
        broker.open_grpc = open_grpc
        try:
            await server.start()
            if settings.grpc_port is not None:
                await open_grpc(settings.grpc_port)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
            what = f"{settings.host}:{settings.port} cannot be bound: {why}"
            raise PortUnavailable(f"{what}; give another host or port") from error
        begin("arrivals", broker.waits.run)
        begin("offsets", lambda: _every(SAVE_INTERVAL_S, broker.save))
        begin("transactions", broker.transactions.run)
        begin("health", lambda: _every(_HEALTH_INTERVAL_S, partial(_check_health, broker)))
        begin("statistics", lambda: _every(SAMPLE_INTERVAL_S, partial(_sample, broker)))
        begin("limits", lambda: _every(_LIMITS_INTERVAL_S, partial(_end_overdue, broker)))
        begin("members", lambda: _every(_SILENCE_INTERVAL_S, partial(_remove_silent, broker)))
        try:
            yield broker
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            broker.waits.close()
            await ports.aclose()
            if broker.failure is None:
                await broker.save()


async def _check_health(broker: Broker) -> None:
    """Note a failure of the store; a store that is paused by a full disk has not failed."""
    if broker.store.is_writable or broker.failure is not None:
        return
    try:
        await in_thread(broker.store.flush)
    except errors.StoreFailed as error:
        broker.failure = error
        broker.has_failed.set()


async def supervised(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run ``work``; after an error, log it and start ``work`` again, so that none ends silently."""
    while True:
        try:
            return await work()
        except Exception:  # noqa: BLE001  # logged; the work begins again
            _LOG.exception("the broker's work %r failed; it is started again", name)
            await asyncio.sleep(_RETRY_S)


async def _every(interval_s: float, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(interval_s)
        await work()


async def _sample(broker: Broker) -> None:
    broker.traffic.sample(await in_thread(broker.traffic.topic_ends))


async def _end_overdue(broker: Broker) -> None:
    broker.limits.end_overdue()


async def _remove_silent(broker: Broker) -> None:
    broker.members.remove_silent()


@attrs.define
class _Kind:
    """The number of lines of one message text since the start of an interval."""

    begun_s: float
    lines: int = 0
    left_out: int = 0


class LineLimit(logging.Filter):
    """Passes at most ``MOST_LINES`` records of one message text per interval, for any arguments.

    The first record of a later interval has the number of dropped ones.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[str, _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write a record."""
        now_s = self._clock()
        kind = self._kinds.setdefault(record.msg, _Kind(now_s))
        if now_s - kind.begun_s >= INTERVAL_S:
            if kind.left_out:
                record.msg, record.args = f"{record.getMessage()} (and {kind.left_out} more)", ()
            kind.begun_s, kind.lines, kind.left_out = now_s, 0, 0
        if kind.lines >= MOST_LINES:
            kind.left_out += 1
            return False
        kind.lines += 1
        return True


_DISPATCH_MS: Final = 60_000
_ANSWER_S: Final = 60.0
_MOST_QUEUES: Final = (1 << 31) - 1
"""RocketMQ reads their number as a Java ``int``."""
T = TypeVar("T")


class EmbeddedBroker:
    """A broker over the store in a folder, from :meth:`start` to :meth:`close`.

    ::

        with EmbeddedBroker("/data/store") as broker:
            print(broker.namesrv)

    A forked child does not serve: its copies of the ports are closed, and :meth:`close` only
    closes the child's copy of the store.

    :ivar has_endpoints_on_demand: whether the first use of :attr:`endpoints` opens the gRPC port
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        broker: BrokerSettings | None = None,
        /,
        **opening: Any,
    ) -> None:
        """Prepare; open nothing yet.

        :param path: the store directory; created if it is missing
        :param broker: the broker's settings; the default is any free port of the loopback address
        :param opening: further arguments of :func:`lakelog.open`; ``light_queues`` is true by
            default, as Lite topics need it
        """
        if not isinstance(broker, BrokerSettings | None):
            raise wrong_type("broker", broker, "a BrokerSettings, or None")
        self._path = folder("path", path)
        self._settings = BrokerSettings(port=0) if broker is None else broker
        self._opening = opening
        self._pid = os.getpid()
        self._store: Store | None = None
        self._broker: Broker | None = None
        self._thread: Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._answered = True
        self._failure: errors.StoreFailed | None = None
        self.has_endpoints_on_demand = False

    def start(self) -> None:
        """Open the store and serve it; return when clients can connect.

        Raises the errors of :func:`lakelog.open`, :class:`~lakelog.errors.StoreLocked` if the store
        already has a broker, and :class:`~lakelog_broker.embedded.PortUnavailable`. After an error
        everything is closed.
        """
        self._pid, self._stop, self._failure = os.getpid(), asyncio.Event(), None
        self._store = lakelog.open(self._path, **{"light_queues": True, **self._opening})
        try:
            loop, ready = asyncio.new_event_loop(), Future[Broker]()
            self._loop = loop
            thread = Thread(
                target=self._run, args=(loop, ready), name="lakelog-broker", daemon=True
            )
            try:
                self._thread = started(thread)
            except BaseException:
                loop.close()
                raise
            self._broker = ready.result()
        except BaseException:  # Ctrl-C too
            self.close()
            raise

    def close(self) -> None:
        """Stop serving, save the offsets of groups and close the store; may be called again.

        Raises as :meth:`lakelog.Store.close`.
        """
        thread, loop, store = self._thread, self._loop, self._store
        if thread is not None and loop is not None and self._pid == os.getpid():
            with suppress(RuntimeError):  # the loop has ended by itself
                loop.call_soon_threadsafe(self._stop.set)
            thread.join()
        if store is not None:
            store.close()
        self._thread = self._loop = self._store = self._broker = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, loop: asyncio.AbstractEventLoop, ready: Future[Broker]) -> None:
        never_wait()
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            try:
                runner.run(self._serve(ready))
            except BaseException as error:
                if ready.done():
                    raise  # printed with the name of this thread
                ready.set_exception(error)

    async def _serve(self, ready: Future[Broker]) -> None:
        async with running_broker(self.store, self._settings) as broker:
            ready.set_result(broker)
            ends = [asyncio.create_task(each.wait()) for each in (self._stop, broker.has_failed)]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for each in ends:
                each.cancel()
            self._failure = broker.failure

    # --- while it serves ---

    @property
    def store(self) -> Store:
        """The open store; raises ``RuntimeError`` if the broker does not run."""
        return _running(self._store)

    @property
    def broker(self) -> Broker:
        """The broker, to be used in its own event loop only.

        Raises ``RuntimeError`` if the broker does not run.
        """
        return _running(self._broker)

    @property
    def namesrv(self) -> str:
        """``host:port`` of name server and broker, for remoting clients."""
        return self.broker.address

    @property
    def endpoints(self) -> str | None:
        """``host:port`` for gRPC clients; ``None`` without a gRPC port."""
        if self.has_endpoints_on_demand and not self.broker.grpc_address:
            self._call(self._open_endpoints)
        return self.broker.grpc_address or None

    async def _open_endpoints(self) -> None:
        if not self.broker.grpc_address:  # another thread may have opened it meanwhile
            await self.broker.open_grpc(0)

    def is_well(self) -> bool:
        """Whether the event loop has run since the last call; does not block.

        Raises :class:`~lakelog.errors.StoreFailed` once the store has failed; the broker has
        stopped then, and can start again after :meth:`close`.
        """
        if self._failure is not None:
            raise self._failure
        answered, self._answered = self._answered, False
        loop = self._loop
        if loop is None or loop.is_closed():
            return False
        with suppress(RuntimeError):  # closed meanwhile
            loop.call_soon_threadsafe(self._answer)
        return answered

    def _answer(self) -> None:
        self._answered = True

    def create_topic(self, name: str, queues: int = 4, message_type: str | None = None) -> None:
        """Create or change a topic.

        :param queues: number of queues
        :param message_type: ``NORMAL``, ``FIFO``, ``DELAY``, ``TRANSACTION``, ``PRIORITY`` or
            ``LITE``; only the gRPC port checks it. ``None`` accepts the first four

        Raises :class:`~lakelog_broker.codes.Refused` for a name that RocketMQ refuses, and
        ``TimeoutError``; ``TypeError`` and ``ValueError`` for what ``topics.json`` cannot hold.
        """
        if not isinstance(name, str):
            raise wrong_type("name", name, "a str such as 'orders'")
        if not isinstance(message_type, str | None):
            raise wrong_type("message_type", message_type, "a str such as 'FIFO', or None")
        queues = whole("queues", queues, 1)
        if queues > _MOST_QUEUES:
            raise WrongValue(f"queues is {shown(queues)}; give {_MOST_QUEUES} or fewer")
        attributes = {} if message_type is None else {"message.type": message_type}

        async def create() -> None:
            self.broker.topics.set(TopicConfig(name, queues, queues, attributes=attributes))

        self._call(create)

    def _call(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run ``work`` in the broker's event loop; raises ``TimeoutError`` after ``_ANSWER_S``."""
        asyncio.run_coroutine_threadsafe(work(), _running(self._loop)).result(_ANSWER_S)

    def messages(self, topic: str) -> list[StoredMessage]:
        """Return all messages in the queues of a topic, in the order of the log.

        Every message whose send was answered before the call is included. Raises ``TimeoutError``
        if the ConsumeQueues do not reach the end of the log within 60 s.
        """
        store = self.store
        if not store.wait_dispatched(timeout_ms=_DISPATCH_MS):
            raise TimeoutError(f"the queues of {store.path} did not reach the end of the log")
        found = [
            message
            for queue in store.queues(topic)
            for message in store.read(topic, queue.queue_id)
        ]
        return sorted(found, key=lambda each: each.physical_offset)


def _running(part: T | None) -> T:
    if part is None:
        raise RuntimeError("this broker is not running; use it in a with statement")
    return part


class BrokerFollower(EmbeddedBroker):
    """The follower ``broker``; it tells the service manager its address.

    :ivar on_start: called once clients can connect
    """

    on_start: Callable[[EmbeddedBroker], None] | None = None

    def start(self) -> None:
        """Serve; raises as :meth:`EmbeddedBroker.start`."""
        super().start()
        Notifier.of(os.environ).send(f"{STATUS}name server and broker at {self.namesrv}")
        if self.on_start is not None:
            self.on_start(self)

    def stop(self) -> None:
        """Stop, and close the store; raises as :meth:`EmbeddedBroker.close`."""
        self.close()
