"""What a store's role decides, as one thing: it is swapped when an attached store takes over.

Roles: the ``owner`` appends; who is attached (``attach``) hands messages to an owner in another
process, and reads the files; ``read`` only reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, TypeAlias

import attrs

from lakelog.cached import cached_property
from lakelog.consumers.offsets import Offsets
from lakelog.dispatchwait import DispatchWait
from lakelog.errors import PutRefused, StoreReadOnly
from lakelog.keeping import House
from lakelog.logreader import LogReader
from lakelog.message import Message
from lakelog.owner import OwnedLog
from lakelog.putfuture import BatchFuture, PutFuture
from lakelog.results import PutResult
from lakelog.status import PutStatus

if TYPE_CHECKING:
    from lakelog.attach.attached import Attached
    from lakelog.reading.finder import Finder

Role: TypeAlias = Literal["owner", "attach", "read"]


class Puts(Protocol):
    """Where messages go; the owner's is its appender, which costs no call more."""

    def put(self, message: Message) -> PutResult:
        """Append one message."""

    def put_batch(self, messages: Sequence[Message]) -> Sequence[PutResult]:
        """Append many."""

    def put_async(self, message: Message) -> PutFuture:
        """Append one in the background."""

    def put_batch_async(self, messages: Sequence[Message]) -> BatchFuture:
        """Append many in the background."""


class Link(Puts, Protocol):
    """An attached store's way to the owner; a ``lakelog.attach`` producer."""

    @property
    def settings(self) -> Any:
        """What the owner said of its settings, by key."""

    def flush(self) -> int:
        """Let the owner make everything durable that was put; the end of it."""

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Let the owner keep the offsets of a group."""

    def close(self) -> None:
        """Wait for what was put, then let go of the owner."""


class HubPart(Protocol):
    """What lets others attach to an owner."""

    def clients(self) -> tuple[Attached, ...]:
        """Who is attached now."""

    def in_process(self) -> socket:
        """A connection for a producer of this process."""

    def close(self) -> None:
        """Answer what was taken, then let everybody go."""


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


def _ignored(_store: Swapping) -> None:
    """Nothing of the parts takes over."""


@attrs.define(slots=False, eq=False)
class Parts:
    """What one role works with.

    :ivar flush: makes durable what was put; the end of it
    :ivar offsets: what groups committed
    :ivar make_finder: puts together what finds messages; it brings NumPy, so not before a question
    :ivar owned: the owner's log, if this is the owner
    :ivar link: the way to the owner, if this is attached
    :ivar hub: what lets others attach, if this is an owner that does
    :ivar tell_store: to be told which store has these parts, for the one that may take over
    """

    role: Role
    reader: LogReader
    puts: Puts
    flush: Callable[[], int]
    waits: DispatchWait
    house: House
    offsets: Offsets
    make_finder: Callable[[], Finder]
    owned: OwnedLog | None = None
    link: Link | None = None
    hub: HubPart | None = None
    tell_store: Callable[[Swapping], None] = _ignored

    @cached_property
    def finder(self) -> Finder:
        """What finds messages."""
        return self.make_finder()

    def close(self) -> None:
        """Let go of everything, in an order in which each has what it needs until its end."""
        with ExitStack() as closing:
            for ends in (self.owned, self.link, self.waits, self.offsets, self.hub, self.house):
                if ends is not None:
                    closing.callback(ends.close)

    def forked(self, why: str) -> None:
        """In a forked child: nothing of it works here; link and hub see to themselves.

        :param why: what is said to those who try
        """
        if self.owned is not None:
            self.owned.health.forked(why)


def no_flush(path: Path) -> int:
    """Nothing can be flushed by who only reads."""
    raise StoreReadOnly("the store is open for reading; its owner makes things durable", path=path)
