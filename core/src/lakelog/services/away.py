"""Puts together what an owner needs to let another process dispatch, and to read beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import attrs

from lakelog.dispatch.arrivals import PolledArrivals
from lakelog.dispatch.catch_up import Completion
from lakelog.dispatch.run import Named
from lakelog.dispatch.wait import OwnedWait
from lakelog.errors import SettingsError
from lakelog.files.filesystem import FileSystem, RealFileSystem
from lakelog.files.pages.wake_page import Sleeper
from lakelog.files.state.tombstones import TombstoneFile
from lakelog.interfaces import Context
from lakelog.registry import Registry
from lakelog.services.order import Order, order_for
from lakelog.services.process import interpreter
from lakelog.services.remote import Held, RemoteReput
from lakelog.settings.catalog import SERVICES
from lakelog.settings.effective import Settings
from lakelog.store.strategies import make_dispatchers

if TYPE_CHECKING:
    from lakelog.errors import DispatchStopped
    from lakelog.store.owner import OwnedLog


class Contexts(Protocol):
    """Makes what strategies are made with."""

    def __call__(self, *, read_only: bool) -> Context:
        """A context as of now."""


@attrs.frozen
class OwnReads:
    """How an owner reads queues and index that another process writes: as every reader does.

    :ivar dispatchers: read the files, and keep in memory what they lack
    :ivar arrivals: to wait for what is put
    :ivar waits: to wait for what is dispatched
    """

    dispatchers: Sequence[Named]
    completion: Completion
    arrivals: PolledArrivals
    waits: OwnedWait


@attrs.define(eq=False)
class Service:
    """Makes the :class:`RemoteReput` of an owner.

    :ivar reads: what reads beside it, once it has begun
    """

    _files: FileSystem
    _order: Order
    _registry: Registry
    _settings: Settings
    _context: Contexts
    reads: OwnReads | None = attrs.field(default=None, init=False)

    def begin(self, owned: OwnedLog, failure: DispatchStopped | None) -> RemoteReput:
        """Start the process; queues and index are complete and closed by now."""
        path = owned.directory.path
        sleeper = Sleeper(self._files, path)
        tombstones = TombstoneFile(self._files, path)
        reading = self._made(owned, read_only=True)
        completion = Completion(path, owned.reader, reading, tombstones=tombstones)
        remote = RemoteReput(self._held(owned, completion), sleeper, failure)
        arrivals = PolledArrivals(completion.reach, sleeper, completion.reach_now)
        commit = owned.log.commit if owned.log.staged else None
        waits = OwnedWait(remote, remote.arrivals, commit, _closing(arrivals, completion))
        self.reads = OwnReads(reading, completion, arrivals, waits)
        remote.start()
        return remote

    def _held(self, owned: OwnedLog, completion: Completion) -> Held:
        def make(in_order: bool) -> Sequence[Named]:
            return self._made(owned, read_only=False, in_order=in_order)

        return Held(
            self._files,
            owned.directory.path,
            self._order,
            make,
            completion,
            owned.positions,
            owned.reader,
            owned.checkpoint,
            owned.lock.tell_followed,
        )

    def _made(
        self, owned: OwnedLog, *, read_only: bool, in_order: bool = False
    ) -> tuple[Named, ...]:
        context = self._context(read_only=read_only)
        context = attrs.evolve(context, checkpoint=owned.checkpoint, in_order=in_order)
        return make_dispatchers(self._registry, self._settings, context)


def service_for(
    path: Path, files: FileSystem, registry: Registry, settings: Settings, context: Contexts
) -> Service | None:
    """What the settings ask for; ``None`` where a thread of the owner dispatches.

    Raises :class:`~lakelog.errors.SettingsError` where no process can do it; nothing of the store
    is touched by then.
    """
    if settings.section(SERVICES).dispatch == "thread":
        return None
    if type(files) is not RealFileSystem:
        raise SettingsError(
            "files that stand in for the operating system's are in this process alone; use "
            "services.dispatch = 'thread'",
            key="services.dispatch",
        )
    interpreter()
    order = order_for(path, os.getpid(), registry, settings)
    return Service(files, order, registry, settings, context)


def _closing(arrivals: PolledArrivals, completion: Completion) -> Callable[[], None]:
    def close() -> None:
        arrivals.close()
        completion.close()

    return close
