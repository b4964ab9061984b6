"""The parts of a store that depend on its role; swapped when a process takes the services.

Roles: ``owner`` appends, dispatches, deletes and writes the checkpoint; ``attach`` appends and
reads the files; ``read`` only reads them; ``replica`` is an owner whose log comes from a master.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, NoReturn, Protocol, TypeAlias, runtime_checkable

import attrs

from lakelog.dispatch.wait import DispatchWait
from lakelog.errors import PutRefused, StoreReadOnly
from lakelog.interfaces import Extended
from lakelog.log.health import Health
from lakelog.log.put_future import BatchFuture, PutFuture
from lakelog.log.reading.log_reader import LogReader
from lakelog.message import Body, Message
from lakelog.results import PutResult
from lakelog.status import PutStatus
from lakelog.store.house import SpaceManager
from lakelog.store.owner import OwnedStore
from lakelog.store.roles.asking import Answering
from lakelog.store.roles.managing import Manager

Role: TypeAlias = Literal["owner", "attach", "read", "replica"]


class Puts(Protocol):
    """The target of puts; an appender, called directly."""

    def put(self, message: Message) -> PutResult:
        """Append one message."""

    def put_batch(self, messages: Sequence[Message]) -> Sequence[PutResult]:
        """Append many."""

    def put_async(self, message: Message) -> PutFuture:
        """Append one in the background."""

    def put_batch_async(self, messages: Sequence[Message]) -> BatchFuture:
        """Append many in the background."""


@runtime_checkable
class Bindable(Protocol):
    """Puts that can be bound to a topic."""

    def bound(
        self, topic: str, tags: str | None, queue_id: int | None
    ) -> Callable[[Body, str | Sequence[str] | None], PutResult]:
        """Return a function that puts a message of ``topic`` from its body and keys."""


class Closes(Protocol):
    """An object that has to be closed."""

    def close(self) -> None:
        """Release its resources."""


class JoinedStore(Protocol):
    """The log of a store in a process without its services."""

    @property
    def health(self) -> Health:
        """Whether puts are accepted."""

    def close(self) -> None:
        """Leave the store; the last process closes it."""


@attrs.frozen
class RefusingWriter:
    """Refuses all puts, in a store that cannot write.

    :ivar why: the reason, and what to do
    """

    why: str

    def put(self, _message: Message) -> PutResult:
        """Refuse."""
        self._refuse()

    def put_batch(self, _messages: Sequence[Message]) -> Sequence[PutResult]:
        """Refuse."""
        self._refuse()

    def put_async(self, _message: Message) -> PutFuture:
        """Refuse."""
        self._refuse()

    def put_batch_async(self, _messages: Sequence[Message]) -> BatchFuture:
        """Refuse."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, self.why)


class PartsHolder(Protocol):
    """The open store as its parts see it."""

    def adopt(self, parts: RoleParts) -> None:
        """Register ``parts`` to be closed with the store."""

    def swap(self, parts: RoleParts) -> None:
        """Replace the current parts."""

    def give_up(self, parts: RoleParts, others: RoleParts) -> bool:
        """Replace ``parts`` by ``others`` and leave ``parts`` open, unless the store is closing."""


def _ignored(_store: PartsHolder) -> None:
    """Ignore the store: these parts never take over."""


@attrs.define(slots=False, eq=False)
class RoleParts:
    """The parts of one role.

    :ivar flush: makes earlier puts durable; returns the durable end
    :ivar extension: the resources of the store extension, if one is installed
    :ivar manager: executes management calls; ``None`` in a reader
    :ivar answering: serves requests of other processes
    :ivar owned: the owner's log, if this process has the services
    :ivar joined: the log that this process appends to without having the services
    :ivar tell_store: receives the store, if this process may take over the services
    """

    role: Role
    reader: LogReader
    puts: Puts
    flush: Callable[[], int]
    waits: DispatchWait
    house: SpaceManager
    extension: Extended | None
    manager: Manager | None = None
    answering: Answering | None = None
    owned: OwnedStore | None = None
    joined: JoinedStore | None = None
    tell_store: Callable[[PartsHolder], None] = _ignored

    def close(self) -> None:
        """Close everything; each part is closed before the ones that it uses."""
        with ExitStack() as closing:
            for ends in self._in_order():
                if ends is not None:
                    closing.callback(ends.close)

    def give_up(self) -> None:
        """Release the services to another process; the log stays open."""
        with ExitStack() as closing:
            if self.owned is not None:
                closing.callback(self.owned.give_up)
            for ends in (self.waits, self.extension, self.answering, self.house):
                if ends is not None:
                    closing.callback(ends.close)

    def _in_order(self) -> tuple[Closes | None, ...]:
        """The last one is closed first."""
        return self.owned, self.joined, self.waits, self.extension, self.answering, self.house

    def forked(self, why: str) -> None:
        """Disable these parts in a forked child.

        :param why: the reason given to callers
        """
        for each in (self.owned, self.joined):
            if each is not None:
                each.health.forked(why)


def no_flush(path: Path) -> int:
    """Refuse: a reader cannot flush."""
    raise StoreReadOnly("the store is open for reading; its owner makes things durable", path=path)
