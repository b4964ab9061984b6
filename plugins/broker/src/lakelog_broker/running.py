"""Runs a broker over an open store in the running event loop: its ports, and its regular work.

Similar log lines are limited: a failing disk or a looping client causes one line per message.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from lakelog import Store
from lakelog.errors import LakelogError, SettingsError, StoreFailed
from lakelog.runtime.threads import in_thread
from lakelog_broker.broker import Broker
from lakelog_broker.popping.checkpoints import revive_checkpoints
from lakelog_broker.remoting.sending import PlainSends
from lakelog_broker.remoting.server import RemotingServer
from lakelog_broker.settings import BrokerSettings
from lakelog_broker.state.traffic import SAMPLE_INTERVAL_S
from lakelog_daemon.file_lock import locked

if TYPE_CHECKING:
    from lakelog_broker.grpc.server import GrpcServer
    from lakelog_broker.popping.service import Popping

_LOG: Final = logging.getLogger("lakelog.broker")
MOST_LINES: Final = 10
INTERVAL_S: Final = 5.0
SAVE_INTERVAL_S: Final = 5.0
"""RocketMQ's ``flushConsumerOffsetInterval``."""
LOCK_FILE: Final = "broker.lock"
_SILENCE_INTERVAL_S: Final = 10.0
_ROLL_INTERVAL_S: Final = 60.0
_HEALTH_INTERVAL_S: Final = 1.0
_RETRY_S: Final = 1.0


class PortUnavailable(LakelogError):
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
    popping = cache(partial(_made_popping, broker))
    tasks: list[asyncio.Task[None]] = []

    def begin(name: str, work: Callable[[], Awaitable[None]]) -> None:
        tasks.append(asyncio.create_task(supervised(name, work)))

    async def open_grpc(port: int) -> None:
        grpc = _made_grpc_server(broker, popping())
        ports.push_async_callback(grpc.close)
        await grpc.start(port)
        broker.grpc_address = f"{settings.host}:{grpc.port}"
        begin("renewals", grpc.renew)

    async with contextlib.AsyncExitStack() as ports:
        server = RemotingServer(broker, popping, PlainSends(broker).answer)
        ports.push_async_callback(server.close)
        broker.open_grpc = open_grpc
        with _bind_errors(settings):
            await server.start()
            if settings.grpc_port is not None:
                await open_grpc(settings.grpc_port)
        begin("arrivals", broker.waits.run)
        begin("offsets", lambda: _every(SAVE_INTERVAL_S, broker.save))
        begin("delays", broker.delays.run)
        begin("timers", broker.timers.run)
        begin("transactions", broker.transactions.run)
        begin("health", lambda: _every(_HEALTH_INTERVAL_S, partial(_check_health, broker)))
        begin("statistics", lambda: _every(SAMPLE_INTERVAL_S, partial(_sample, broker)))
        begin("old timers", lambda: _every(_ROLL_INTERVAL_S, broker.timers.roll))
        begin("members", lambda: _every(_SILENCE_INTERVAL_S, partial(_remove_silent, broker)))
        try:
            yield broker
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await ports.aclose()
            if broker.failure is None:
                await broker.save()


def _made_popping(broker: Broker) -> Popping:
    from lakelog_broker.popping.service import Popping  # at the first pop

    return Popping(broker)


def _made_grpc_server(broker: Broker, popping: Popping) -> GrpcServer:
    try:
        from lakelog_broker.grpc.server import GrpcServer
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"the gRPC port needs lakelog-broker[grpc] ({error}): install it, or give no grpc_port"
        ) from error
    return GrpcServer(broker, popping)


@contextlib.contextmanager
def _bind_errors(settings: BrokerSettings) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise PortUnavailable(
            f"{settings.host}:{settings.port} cannot be bound: {why}; give another host or port"
        ) from error


async def _check_health(broker: Broker) -> None:
    """Note a failure of the store; a store that is paused by a full disk has not failed."""
    if broker.store.is_writable or broker.failure is not None:
        return
    try:
        await in_thread(broker.store.flush)
    except StoreFailed as error:
        broker.failure = error
        broker.has_failed.set()


async def supervised(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run ``work``; after an error, log it and start ``work`` again, so that none ends silently."""
    while True:
        try:
            await work()
        except Exception:  # noqa: BLE001  # logged; the work begins again
            _LOG.exception("the broker's work %r failed; it is started again", name)
            await asyncio.sleep(_RETRY_S)
        else:
            return


async def _every(interval_s: float, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(interval_s)
        await work()


async def _sample(broker: Broker) -> None:
    broker.traffic.sample(await in_thread(broker.traffic.topic_ends))


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
