"""What a store's role decides, as one thing: it is swapped when a process gets the services.

Roles: the ``owner`` appends, dispatches, deletes and writes the checkpoint; who is attached
(``attach``) appends, and reads the files; ``read`` only reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, Protocol, TypeAlias, runtime_checkable

import attrs

from lakelog.dispatch.wait import DispatchWait
from lakelog.errors import PutRefused, StoreReadOnly
from lakelog.files.state.group_offsets import Offsets
from lakelog.log.health import Health
from lakelog.log.put_future import BatchFuture, PutFuture
from lakelog.log.reading.log_reader import LogReader
from lakelog.message import Body, Message
from lakelog.results import PutResult
from lakelog.runtime.cached import cached_property
from lakelog.status import PutStatus
from lakelog.store.house import House
from lakelog.store.owner import OwnedLog
from lakelog.store.roles.asking import Answering
from lakelog.store.roles.managing import Manager

if TYPE_CHECKING:
    from lakelog.reading.finder import Finder

Role: TypeAlias = Literal["owner", "attach", "read"]


class Puts(Protocol):
    """Where messages go; an appender, which costs no call more."""

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
        """What puts a message of ``topic``, from its body and keys."""


class Closes(Protocol):
    """What has to be closed."""

    def close(self) -> None:
        """Let go."""


class Joined(Protocol):
    """The log of a store in a process that has none of its services."""

    @property
    def health(self) -> Health:
        """Whether it takes puts."""

    def close(self) -> None:
        """Leave; who is the last closes the store."""


@attrs.frozen
class NoPuts:
    """Refuses, in a store that cannot write.

    :ivar why: what is wrong, and what to do
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


class Swapping(Protocol):
    """The open store that has parts, as these see it."""

    def adopt(self, parts: Parts) -> None:
        """Close ``parts``, too, when it is closed."""

    def swap(self, parts: Parts) -> None:
        """Go on with ``parts``."""

    def give_up(self, parts: Parts, others: Parts) -> bool:
        """Go on with ``others``, and leave ``parts`` open; not while the store is being closed."""


def _ignored(_store: Swapping) -> None:
    """Nothing of the parts takes over."""


@attrs.define(slots=False, eq=False)
class Parts:
    """What one role works with.

    :ivar flush: makes durable what was put; the end of it
    :ivar offsets: what groups committed
    :ivar manager: deletes, and lets dispatching go on; ``None`` for who only reads
    :ivar make_finder: puts together what finds messages; it brings NumPy, so not before a question
    :ivar answering: answers processes that ask the owner to manage
    :ivar owned: the owner's log, if this is the owner
    :ivar joined: the log that this process appends to, if it has no services
    :ivar tell_store: to be told which store has these parts, for one that may get the services
    """

    role: Role
    reader: LogReader
    puts: Puts
    flush: Callable[[], int]
    waits: DispatchWait
    house: House
    offsets: Offsets
    make_finder: Callable[[], Finder]
    manager: Manager | None = None
    answering: Answering | None = None
    owned: OwnedLog | None = None
    joined: Joined | None = None
    tell_store: Callable[[Swapping], None] = _ignored

    @cached_property
    def finder(self) -> Finder:
        """What finds messages."""
        return self.make_finder()

    def close(self) -> None:
        """Let go of everything, in an order in which each has what it needs until its end."""
        with ExitStack() as closing:
            for ends in self._in_order():
                if ends is not None:
                    closing.callback(ends.close)

    def give_up(self) -> None:
        """Let another process have the services; the log stays open."""
        with ExitStack() as closing:
            if self.owned is not None:
                closing.callback(self.owned.give_up)
            for ends in (self.waits, self.offsets, self.answering, self.house):
                if ends is not None:
                    closing.callback(ends.close)

    def _in_order(self) -> tuple[Closes | None, ...]:
        """The last one is closed first."""
        return self.owned, self.joined, self.waits, self.offsets, self.answering, self.house

    def forked(self, why: str) -> None:
        """In a forked child: nothing of it works here.

        :param why: what is said to those who try
        """
        for each in (self.owned, self.joined):
            if each is not None:
                each.health.forked(why)


def no_flush(path: Path) -> int:
    """Nothing can be flushed by who only reads."""
    raise StoreReadOnly("the store is open for reading; its owner makes things durable", path=path)
