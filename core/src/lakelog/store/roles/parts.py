"""The parts of a store that depend on its role; replaced when a process takes the services.

Roles: ``owner`` appends, dispatches, deletes and writes the checkpoint; ``attach`` appends and
reads the files; ``read`` only reads them; ``replica`` is an owner whose log comes from a master.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, NoReturn, Protocol, TypeAlias

import attrs

from lakelog.dispatch.runner import DispatchWait
from lakelog.log.put_future import BatchFuture, PutFuture
from lakelog.log.reading.log_reader import LogReader
from lakelog.store.open_log import OpenLog
from lakelog.store.owner import OwnedStore
from lakelog.store.roles.prepared import OpenRequest
from lakelog_format.message import Body, Message
from lakelog_format.results import PutResult
from lakelog_format.status import PutStatus
from lakelog_interfaces.errors import PutRefused, StoreReadOnly
from lakelog_interfaces.strategies import Extended, Maintenance, Requests, SharedLog

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
    maintenance: Maintenance
    extension: Extended | None
    manager: Manager | None = None
    answering: Requests | None = None
    owned: OwnedStore | None = None
    joined: SharedLog | None = None

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
