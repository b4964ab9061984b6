"""Runs a broker over an open store in the running event loop.

Limits similar log lines: a failing disk or a looping client causes one line per message.
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
from lakelog_broker.remoting.plainsends import PlainSends
from lakelog_broker.remoting.server import RemotingServer
from lakelog_broker.settings import BrokerSettings
from lakelog_broker.state.traffic import SAMPLE_INTERVAL_S
from lakelog_daemon.file_lock import locked

if TYPE_CHECKING:
    from lakelog_broker.grpc.server import GrpcServer
    from lakelog_broker.popping.service import Popping

MOST_LINES: Final = 10
INTERVAL_S: Final = 5.0


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


_LOG: Final = logging.getLogger("lakelog.broker")
SAVE_INTERVAL_S: Final = 5.0
"""RocketMQ's ``flushConsumerOffsetInterval``."""
LOCK_FILE: Final = "broker.lock"
_NOT_OPENED: Final = 3
_SILENCE_INTERVAL_S: Final = 10.0
_ROLL_INTERVAL_S: Final = 60.0
_HEALTH_INTERVAL_S: Final = 1.0
_RETRY_S: Final = 1.0


class PortUnavailable(LakelogError):
    """A port of the broker cannot be bound."""

    exit_code = _NOT_OPENED


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
    with locked(Path(store.path), LOCK_FILE, what), _limited_log():
        async with _serving(store, settings or BrokerSettings()) as broker:
            yield broker


@contextlib.contextmanager
def _limited_log() -> Iterator[None]:
    limit = LineLimit()
    _LOG.addFilter(limit)
    try:
        yield
    finally:
        _LOG.removeFilter(limit)


@contextlib.asynccontextmanager
async def _serving(store: Store, settings: BrokerSettings) -> AsyncIterator[Broker]:
    broker = Broker.over(store, settings)
    await revive_checkpoints(broker)

    @cache
    def popping() -> Popping:
        from lakelog_broker.popping.service import Popping  # at the first pop

        return Popping(broker)

    server, grpc_port = (
        RemotingServer(broker, popping, PlainSends(broker).answer),
        _GrpcPort(broker, popping),
    )
    broker.open_grpc = grpc_port.open
    try:
        await server.start()
        if settings.grpc_port is not None:
            await grpc_port.open(settings.grpc_port)
    except OSError as error:
        await server.close()
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise PortUnavailable(
            f"{settings.host}:{settings.port} cannot be bound: {why}; give another host or port"
        ) from error
    except BaseException:
        await server.close()
        raise
    tasks = [
        asyncio.create_task(supervised(name, work))
        for name, work in (
            ("arrivals", broker.waits.run),
            ("offsets", lambda: _every(SAVE_INTERVAL_S, broker.save)),
            ("delays", broker.delays.run),
            ("timers", broker.timers.run),
            ("transactions", broker.transactions.run),
            ("health", lambda: _every(_HEALTH_INTERVAL_S, partial(_check_health, broker))),
            ("statistics", lambda: _every(SAMPLE_INTERVAL_S, _sampling(broker))),
            ("old timers", lambda: _every(_ROLL_INTERVAL_S, broker.timers.roll)),
            ("members", lambda: _every(_SILENCE_INTERVAL_S, _removing(broker))),
        )
    ]
    try:
        yield broker
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await grpc_port.close()
        await server.close()
        if broker.failure is None:
            await broker.save()


async def _check_health(broker: Broker) -> None:
    """Note a failure of the store; a store that is paused by a full disk has not failed."""
    if broker.store.is_writable or broker.failure is not None:
        return
    try:
        await in_thread(broker.store.flush)
    except StoreFailed as error:
        broker.failure = error
        broker.has_failed.set()


class _GrpcPort:
    """The gRPC port, which can be opened while the broker runs."""

    def __init__(self, broker: Broker, popping: Callable[[], Popping]) -> None:
        self._broker, self._popping = broker, popping
        self._server: GrpcServer | None = None
        self._renewals: asyncio.Task[None] | None = None

    async def open(self, port: int) -> None:
        """Serve at ``port``; 0 is any free one.

        Raises :class:`~lakelog.errors.SettingsError` and ``OSError``.
        """
        try:
            from lakelog_broker.grpc.server import GrpcServer
        except ModuleNotFoundError as error:
            raise SettingsError(
                f"the gRPC port needs lakelog-broker[grpc] ({error}): install it, "
                "or give no grpc_port"
            ) from error
        server = GrpcServer(self._broker, self._popping())
        try:
            await server.start(port)
        except BaseException:
            await server.close()
            raise
        self._server = server
        self._broker.grpc_address = f"{self._broker.settings.host}:{server.port}"
        self._renewals = asyncio.create_task(supervised("renewals", server.renew))

    async def close(self) -> None:
        """Close the port, if it is open."""
        if self._renewals is not None:
            self._renewals.cancel()
            await asyncio.gather(self._renewals, return_exceptions=True)
        if self._server is not None:
            await self._server.close()


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


def _sampling(broker: Broker) -> Callable[[], Awaitable[None]]:
    async def sample() -> None:
        broker.traffic.sample(await in_thread(broker.traffic.topic_ends))

    return sample


def _removing(broker: Broker) -> Callable[[], Awaitable[None]]:
    async def remove() -> None:
        broker.members.remove_silent()

    return remove
