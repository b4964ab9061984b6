"""The parts of a store that depend on its role; replaced when a process takes the services.

Roles: ``owner`` appends, dispatches, deletes and writes the checkpoint; ``attach`` appends and
reads the files; ``read`` only reads them; ``replica`` is an owner whose log comes from a master.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Protocol, TypeAlias

import attrs

from lakelog.dispatch import DispatchRunner, DispatchWait, NamedDispatcher
from lakelog.errors import PluginError, PutRefused, StoreReadOnly
from lakelog.files.filesystem import FileSystem
from lakelog.hooks import Clock, Context, DispatchedLog, Kind, StoreExtension
from lakelog.lazy import cached_property
from lakelog.log.log_reader import LogReader
from lakelog.log.put_future import BatchFuture, PutFuture
from lakelog.maintenance.rounds import MaintenanceRounds, RemoteMaintenance
from lakelog.message import Body, Message
from lakelog.processes.ownership import is_followed
from lakelog.registry import Registry
from lakelog.registry.loading import kind_text
from lakelog.results import PutResult, PutStatus
from lakelog.settings.effective import Settings
from lakelog.store.open_log import OpenLog
from lakelog.store.owner import OwnedStore
from lakelog.store.strategies import with_accelerator

if TYPE_CHECKING:
    from lakelog.store.joining import JoinedLog
    from lakelog.store.requests import Answering

NO_WRITING: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
"""Errors of the system for files that this user may not write."""


@attrs.frozen(slots=False)
class OpenRequest:
    """A store about to be opened; none of its files is changed yet.

    :ivar path: the store directory
    :ivar settings: the settings in force
    :ivar registry: the strategies on offer
    :ivar files: all access to files goes through it
    :ivar clock: replaces the clock of maintenance, for tests
    """

    path: Path
    settings: Settings
    registry: Registry
    files: FileSystem
    clock: Clock | None = None

    def context(self, *, read_only: bool) -> Context:
        """Build the context for making strategies."""
        context = Context(
            self.path,
            self.settings.core,
            self.files,
            read_only=read_only,
            owner_follows=read_only and is_followed(self.files, self.path),
        )
        return with_accelerator(self.registry, self.settings, context)

    @cached_property
    def extension(self) -> StoreExtension | None:
        """The extension of open stores, if one is installed."""
        made: StoreExtension | None = self._single(Kind.STORE_EXTENSION)
        return made

    def _single(self, kind: Kind) -> Any:
        """Build the only strategy of a kind; ``None`` without a plugin.

        Raises :class:`~lakelog.errors.PluginError` if several are installed.
        """
        names = self.registry.names(kind)
        if len(names) > 1:
            raise PluginError(
                f"of the kind {kind_text(kind)!r}, {', '.join(names)} are installed, and a process "
                "uses one: switch the other plugins off"
            )
        if not names:
            return None
        factory = self.registry.factory(kind, *names)
        section = self.settings.sections.get(factory.name) or factory.settings()
        plain = Context(self.path, self.settings.core, self.files, read_only=True)
        return self.registry.make(kind, factory.name, section, plain)

    def extended(
        self,
        reader: LogReader,
        dispatchers: Sequence[NamedDispatcher],
        dispatching: DispatchRunner | None = None,
        *,
        read_only: bool = False,
    ) -> Any:
        """Build the resources of the extension for one role; see ``DispatchedLog``."""
        if self.extension is None:
            return None
        return self.extension.extend(
            DispatchedLog(
                path=self.path,
                files=self.files,
                settings=self.settings,
                read_only=read_only,
                reader=reader,
                dispatchers={each.name: each.dispatcher for each in dispatchers},
                dispatching=dispatching,
            )
        )


Role: TypeAlias = Literal["owner", "attach", "read", "replica"]
Manager: TypeAlias = Callable[..., Any]
"""Called with a management verb and its arguments, as ``Managing``."""


class Puts(Protocol):
    """The interface of an open store to its appender; methods raise as those of ``LogStore``."""

    @property
    def answers_at_once(self) -> bool:
        """Whether no put waits for a sync or for copies."""

    def put(self, message: Message) -> PutResult:
        """Append one message."""

    def put_batch(self, messages: Sequence[Message]) -> Sequence[PutResult]:
        """Append many messages."""

    def put_async(self, message: Message) -> PutFuture:
        """Append one message, and wait in the background."""

    def put_batch_async(self, messages: Sequence[Message]) -> BatchFuture:
        """Append many messages, and wait in the background."""

    def bound(
        self, topic: str, tags: str | None, queue_id: int | None
    ) -> Callable[[Body, str | Sequence[str] | None], PutResult]:
        """Return a function that puts a message of ``topic`` from its body and keys."""

    def flush(self) -> int:
        """Make earlier puts durable; return the durable end."""


@attrs.frozen
class RefusingWriter:
    """Refuses all puts, in a store that cannot write.

    :ivar path: the store directory
    :ivar why: the reason, and what to do
    :ivar sync: flushes the log of a replica; ``None`` for a reader
    """

    path: Path
    why: str
    sync: Callable[[], int] | None = None

    def put(self, *_: object) -> NoReturn:
        """Raise :class:`~lakelog.errors.PutRefused`."""
        raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, self.why)

    put_batch = put_async = put_batch_async = put

    @property
    def answers_at_once(self) -> bool:
        """True: no put waits."""
        return True

    def bound(self, *_: object) -> Callable[..., NoReturn]:
        """Return a function that refuses."""
        return self.put

    def flush(self) -> int:
        """Flush a replica; raises :class:`~lakelog.errors.StoreReadOnly` in a reader."""
        if self.sync is not None:
            return self.sync()
        raise StoreReadOnly(
            "the store is open for reading; its owner makes things durable", path=self.path
        )


@attrs.define(slots=False, eq=False)
class RoleParts:
    """The parts of one role.

    :ivar request: the input to opening, with the settings in force
    :ivar role: the role
    :ivar reader: reads the log
    :ivar puts: appends, or refuses to
    :ivar waits: the state of dispatching
    :ivar maintenance: the maintenance of disk space
    :ivar extension: the resources of the store extension, if one is installed
    :ivar manager: executes one of :data:`~.managing.VERBS`, or requests it from the process with
        the services; ``None`` in a reader
    :ivar answering: serves requests of other processes
    :ivar owned: the owner's log, if this process has the services
    :ivar joined: takes the services and releases them, if other processes may have them
    """

    request: OpenRequest
    role: Role
    reader: LogReader
    puts: Puts
    waits: DispatchWait
    maintenance: MaintenanceRounds | RemoteMaintenance
    extension: Any
    manager: Manager | None = None
    answering: Answering | None = None
    owned: OwnedStore | None = None
    joined: JoinedLog | None = None

    @property
    def log(self) -> OpenLog | None:
        """The log to which this process appends; ``None`` in a reader."""
        return self.owned or (None if self.joined is None else self.joined.log)

    def close(self) -> None:
        """Close everything; each part is closed before the ones that it uses."""
        with ExitStack() as closing:
            log = self.owned or self.joined
            for ends in (log, self.extension, self.answering, self.maintenance):
                if ends is not None:  # the last one is closed first
                    closing.callback(ends.close)

    def give_up(self) -> None:
        """Release the services to another process; the log stays open."""
        with ExitStack() as closing:
            if self.owned is not None:
                closing.callback(self.owned.give_up)
            for ends in (self.extension, self.answering, self.maintenance):
                if ends is not None:
                    closing.callback(ends.close)

    def forked(self, why: str) -> None:
        """Disable these parts in a forked child.

        :param why: the reason given to callers
        """
        if self.log is not None:
            self.log.health.forked(why)
