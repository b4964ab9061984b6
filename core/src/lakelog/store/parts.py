"""The parts of an open store by its role, and their replacement at a take-over or after a fork.

Roles: ``owner`` appends, dispatches, deletes and writes the checkpoint; ``attach`` appends and
reads the files; ``read`` only reads them; ``replica`` is an owner whose log comes from a master.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread, get_ident, main_thread
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import attrs

from lakelog.errors import (
    LakelogError,
    PluginError,
    PutRefused,
    StoreClosed,
    StoreReadOnly,
    ThreadNotStarted,
)
from lakelog.files.filesystem import FileSystem, RealFileSystem
from lakelog.hooks import Clock, Context, DispatchedLog, Kind, StoreExtension
from lakelog.lazy import cached_property
from lakelog.log.store_directory import readable
from lakelog.processes.ownership import is_followed
from lakelog.registry import Registry
from lakelog.registry.loading import kind_text
from lakelog.results import PutStatus
from lakelog.runtime.forks import register_forked
from lakelog.runtime.locks import Mutex
from lakelog.runtime.threads import ThreadTask, is_inside, started
from lakelog.settings.effective import Settings
from lakelog.store.strategies import with_accelerator

if TYPE_CHECKING:
    from lakelog.dispatch import DispatchRunner, DispatchWait, NamedDispatcher
    from lakelog.log.appender import Appender
    from lakelog.log.log_reader import LogReader
    from lakelog.maintenance.rounds import MaintenanceRounds, RemoteMaintenance
    from lakelog.store.joining import JoinedLog
    from lakelog.store.open_log import OpenLog
    from lakelog.store.owner import OwnedStore
    from lakelog.store.requests import Answering

NO_WRITING: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
"""Errors of the system for files that this user may not write."""

Built = TypeVar("Built")
Running: TypeAlias = "OwnedStore | JoinedLog | RoleParts | RoleState"
"""Has threads, which its ``close`` ends; further calls of that do nothing."""


@attrs.define(slots=False, eq=False, repr=False)
class OpenRequest:
    """A store about to be opened; none of its files is changed yet.

    :ivar path: the store directory
    :ivar settings: the settings in force
    :ivar registry: the strategies on offer
    :ivar files: all access to files goes through it
    :ivar clock: replaces the clock of delays and maintenance, for tests
    :ivar serves: whether delayed messages are delivered; not by a recovery, which puts nothing
    :ivar begun: what runs already, until the open ends; an error closes it
    """

    path: Path
    settings: Settings
    registry: Registry
    files: FileSystem
    clock: Clock | None = None
    serves: bool = True
    begun: list[Running] = attrs.field(factory=list)

    def trying(self, build: Callable[[], Built]) -> Built:
        """Return what ``build`` returns; on an error, close what it has begun, and its files.

        A function returns without a point at which signal handlers run, other than a context
        manager. So nothing gets lost between the one that owns it and the next.
        """
        try:
            built = build()
            del self.begun[:]  # no call either
            return built
        except BaseException:  # Ctrl-C too
            try:
                for each in reversed(self.begun):
                    with suppress(LakelogError, OSError):
                        each.close()
            finally:
                release(self.files)
            raise

    def context(self, *, read_only: bool) -> Context:
        """Build the context for making strategies."""
        context = Context(
            self.path,
            self.settings.core,
            self.files,
            read_only=read_only,
            owner_follows=read_only and is_followed(self.files, self.path),
            clock=self.clock,
        )
        return with_accelerator(self.registry, self.settings, context)

    @cached_property
    def extension(self) -> StoreExtension | None:
        """The extension of open stores, if one is installed.

        Raises :class:`~lakelog.errors.PluginError` if several are installed.
        """
        kind = Kind.STORE_EXTENSION
        names = self.registry.names(kind)
        if len(names) > 1:
            raise PluginError(
                f"of the kind {kind_text(kind)!r}, {', '.join(names)} are installed, and a process "
                "uses one: switch the other plugins off"
            )
        if not names:
            return None
        plain = Context(self.path, self.settings.core, self.files, read_only=True)
        made: StoreExtension = self.registry.build(kind, names[0], self.settings, plain)
        with self.registry.blaming(names[0], "store_class"):
            made.store_class  # noqa: B018  # a property, which may raise
        return made

    def extended(
        self,
        reader: LogReader,
        dispatchers: Sequence[NamedDispatcher],
        dispatching: DispatchRunner | None = None,
        appender: Appender | None = None,
    ) -> Any:
        """Build the resources of the extension for one role; see ``DispatchedLog``.

        :param appender: appends in this process; ``None`` if no file may be changed
        """
        if self.extension is None:
            return None
        log = DispatchedLog(
            path=self.path,
            files=self.files,
            settings=self.settings,
            read_only=appender is None,
            reader=reader,
            dispatchers={each.name: each.dispatcher for each in dispatchers},
            dispatching=dispatching,
            sync=None if appender is None else appender.sync,
        )
        (name,) = self.registry.names(Kind.STORE_EXTENSION)
        with self.registry.blaming(name, "extend()", files=True):
            return self.extension.extend(log)


Role: TypeAlias = Literal["owner", "attach", "read", "replica"]

Manager: TypeAlias = Callable[..., Any]
"""Called with a management verb and its arguments, as ``Managing``."""


class RefusingWriter:
    """Refuses all puts, in a store that cannot write.

    :param path: the store directory
    :param why: the reason, and what to do
    :param sync: flushes the log of a replica; ``None`` for a reader
    """

    answers_at_once = True

    def __init__(self, path: Path, why: str, sync: Callable[[], int] | None = None) -> None:
        self.path = path
        self.why = why
        self.sync = sync

    def put(self, *_: object) -> Any:
        """Raise :class:`~lakelog.errors.PutRefused`."""
        raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, self.why)

    put_batch = put_async = put_batch_async = put

    def bound(self, *_: object) -> Callable[..., Any]:
        """Return a function that refuses."""
        return self.put

    def flush(self) -> int:
        """Flush a replica; raises :class:`~lakelog.errors.StoreReadOnly` in a reader."""
        if self.sync is not None:
            return self.sync()
        raise StoreReadOnly(
            "the store is open for reading; its owner makes things durable", path=self.path
        )


@attrs.define(slots=False, eq=False, repr=False)
class RoleParts:
    """The parts of one role.

    :ivar request: the input to opening, with the settings in force
    :ivar role: the role
    :ivar reader: reads the log
    :ivar puts: appends, or refuses to
    :ivar waits: the state of dispatching
    :ivar maintain: begins the maintenance of disk space
    :ivar extension: the resources of the store extension, if one is installed
    :ivar manager: executes one of :data:`~.requests.VERBS`, or requests it from the process with
        the services; ``None`` in a reader
    :ivar answering: serves requests of other processes
    :ivar owned: the owner's log, if this process has the services
    :ivar joined: takes the services and releases them, if other processes may have them
    """

    request: OpenRequest
    role: Role
    reader: LogReader
    puts: Appender | RefusingWriter
    waits: DispatchWait
    maintain: Callable[[], MaintenanceRounds | RemoteMaintenance]
    extension: Any
    manager: Manager | None = None
    answering: Answering | None = None
    owned: OwnedStore | None = None
    joined: JoinedLog | None = None

    @cached_property
    def maintenance(self) -> MaintenanceRounds | RemoteMaintenance:
        """The maintenance of disk space, begun at open or on first use."""
        return self.maintain()

    @property
    def log(self) -> OpenLog | None:
        """The log to which this process appends; ``None`` in a reader."""
        return self.owned or (None if self.joined is None else self.joined.log)

    def close(self) -> None:
        """Close everything; each part is closed before the ones that it uses."""
        with ExitStack() as closing:
            log = self.owned or self.joined
            if log is not None:
                closing.callback(log.close)
            closing.callback(self.close_services)

    def give_up(self) -> None:
        """Release the services to another process; the log stays open."""
        with ExitStack() as closing:
            if self.owned is not None:
                closing.callback(self.owned.give_up)
            closing.callback(self.close_services)

    def close_services(self) -> None:
        """Close the parts that depend on the role, of the extension too."""
        with ExitStack() as closing:
            for ends in (self.extension, self.answering, vars(self).get("maintenance")):
                if ends is not None:  # the last one is closed first
                    closing.callback(ends.close)

    def forked(self, why: str) -> None:
        """Disable these parts in a forked child.

        :param why: the reason given to callers
        """
        if self.log is not None:
            self.log.health.forked(why)


def release(files: FileSystem) -> None:
    """Close what is still open of ``files``, unless they were given by the caller of ``open``."""
    if isinstance(files, RealFileSystem):
        files.release()


FORKED: Final = (
    "this process was forked from the one that opened the store, and cannot use it; open the store "
    "in each process, or open it with attach={'on_fork': 'attach'}"
)

_READING: Final = "the store is open for reading; open it with mode='write'"


class RoleState:
    """Holds the current parts of a :class:`~lakelog.Store`; thread-safe.

    :ivar path: the store directory
    :ivar parts: the parts of the current role
    :ivar closed: whether the store was closed
    :ivar on_swap: called with the parts after they were replaced, and at the close
    """

    def __init__(self, parts: RoleParts, again: Callable[[], RoleParts] | None) -> None:
        """Store the parts that opening has built.

        :param again: builds parts in a forked child; ``None`` forbids it
        """
        self.path = parts.request.path
        self.parts = parts
        self.closed = False
        self.on_swap: Callable[[RoleParts], None] = lambda _parts: None
        self._events = parts.request.registry.events
        self._again = again
        self._open = list[RoleParts]()
        self._refused = False
        self._stale = False
        self._lock = Mutex()
        self._closing = ThreadTask(self._close)
        self._is_close_reported = False
        parts.request.begun.append(self)
        self.adopt(parts)
        register_forked(self)

    # --- access ---

    def now(self) -> RoleParts:
        """The current parts; raises :class:`~lakelog.errors.StoreClosed` if there are none."""
        if self._stale:
            self._renew()
        if self._refused:
            raise StoreClosed(FORKED)
        if self.closed:
            raise StoreClosed("the store is closed")
        return self.parts

    def last(self) -> RoleParts:
        """The current parts, even of a closed store, whose puts then refuse."""
        if self._stale:
            self._renew()
        return self.parts

    def manager(self) -> Manager:
        """The manager; raises :class:`~lakelog.errors.StoreReadOnly` in a reader."""
        manager = self.now().manager
        if manager is None:
            raise StoreReadOnly(_READING, path=self.path)
        return manager

    # --- changes ---

    def adopt(self, parts: RoleParts) -> None:
        """Register ``parts`` to be closed with the store."""
        with self._lock:
            self._open.append(parts)
        if parts.joined is not None:
            parts.joined.store = self

    def swap(self, parts: RoleParts) -> None:
        """Replace the parts; the former ones stay open for reads in progress."""
        with self._lock:
            self.parts = parts
        self.on_swap(parts)

    def give_up(self, parts: RoleParts, others: RoleParts) -> bool:
        """Replace ``parts`` by ``others``, unless the store is being closed.

        ``parts`` stay open and are no longer closed with the store.
        """
        with self._lock:
            if self.closed or parts not in self._open:
                return False
            self._open = [each for each in self._open if each not in (parts, others)] + [others]
        self.swap(others)
        return True

    def close(self) -> None:
        """Flush and close; a second call waits for the first one.

        In the main thread, where signal handlers run, another thread does it: an exception of a
        handler ends only the wait in here, and the next call waits again. Code that runs inside of
        a call of lakelog (a callback, a handler, a finalizer) closes in its own thread, which may
        have locks that the close needs. It does not wait for another thread that closes.
        """
        closing, self.closed = self._closing, True
        self.on_swap(self.parts)  # bound methods must not use parts that are being closed
        inside = is_inside()
        if not closing.has_begun:
            if inside or get_ident() != main_thread().ident:
                closing.run()
            else:
                try:
                    thread = started(Thread(target=closing.run, name="lakelog-close", daemon=False))
                    thread.join()
                except ThreadNotStarted:
                    closing.run()
        if inside and not closing.done():
            return
        closing.exception()
        if not self._is_close_reported:
            self._is_close_reported = True
            closing.result()

    def _close(self) -> None:
        if self._refused or self._stale:
            return
        try:
            self._close_parts()
        except OSError as error:
            raise readable(error, self.path) from error
        finally:
            release(self.parts.request.files)
            self._events.store_closed(self.path)

    def _close_parts(self) -> None:
        """Close all parts, also those added meanwhile: a put that settles may cause a take-over."""
        try:
            while self._open:
                self._open.pop(0).close()
        finally:
            for each in self._open:  # the first error is raised
                each.close()

    def forked(self) -> None:
        """Disable, in a forked child, the parts of the parent, whose threads do not exist here."""
        self._lock = Mutex()  # the parent's may be held by a thread that does not exist here
        self._closing = ThreadTask(self._close)  # nor does a thread that closes
        parts, self._open = self._open, []
        self._stale = self._again is not None and not self.closed
        self._refused = not self._stale
        self._refuse_all()
        for each in parts:
            each.forked(FORKED)
        release(self.parts.request.files)

    def _refuse_all(self) -> None:
        """Replace the parts by refusing ones, so that no bound put uses the parent's."""
        self.parts = attrs.evolve(
            self.parts,
            puts=RefusingWriter(self.path, FORKED),
            manager=None,
            answering=None,
            owned=None,
            joined=None,
        )
        self.on_swap(self.parts)

    def _renew(self) -> None:
        """Open new parts in a forked child, once."""
        with self._lock:
            if not self._stale or self._again is None:
                return
            parts = self._again()
            self._stale = False
            self.adopt(parts)
            self.swap(parts)
