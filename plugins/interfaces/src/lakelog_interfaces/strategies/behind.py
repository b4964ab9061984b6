"""Behind the append: dispatchers, what they can be asked, and followers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from mmap import mmap
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from lakelog_format.codec import RecordBatch
    from lakelog_format.fields.queue_offsets import Queue
    from lakelog_format.fields.units import Units


@runtime_checkable
class Dispatcher(Protocol):
    """Builds something from the log that can be rebuilt from it, such as a queue or an index.

    All calls but reads of what was built come from one thread.

    :ivar directories: the folders of the store directory that hold all that it writes, and
        nothing else; a rebuild makes them anew
    """

    directories: Sequence[str]

    def resume(self, minimum: int, end: int) -> int:
        """Look at what is there; the offset from which the log must be dispatched (again).

        Called once, before the first ``dispatch``. The log holds ``minimum`` to ``end`` bytes;
        what was built from records behind ``end`` is to be forgotten. ``end`` means that nothing
        is missing.
        """

    def dispatch(self, batch: RecordBatch) -> None:
        """Take the next run of records, in log order.

        A run may come again, whole or in part, and must then change nothing. If it raises,
        dispatching stops; the same run comes again once that was seen to.
        """

    def truncate(self, end_offset: int) -> None:
        """Forget everything that stems from records at or behind ``end_offset``."""

    def flush(self) -> None:
        """Make durable what was dispatched before this call; may be called by another thread."""

    def close(self) -> None:
        """Flush, then let go of files."""


@runtime_checkable
class QueueReader(Protocol):
    """A dispatcher that can say which records stand in a queue; reads from any thread."""

    def queues(self) -> Sequence[Queue]:
        """Every queue that is there, in no order."""

    def bounds(self, queue: Queue, minimum: int) -> tuple[int, int] | None:
        """The first queue offset that is there and the next that will be, ``None`` if no queue is.

        :param minimum: the log's first byte; units of records before it are not there
        """

    def units(self, queue: Queue, first: int, count: int) -> Units:
        """At most ``count`` units from queue offset ``first`` on, as they stand, unchecked.

        Empty where ``first`` is outside of the queue. In a queue of batches, from the unit that
        holds ``first`` on.
        """

    def kind(self, queue: Queue) -> str:
        """``SimpleCQ``, or ``BatchCQ`` for a queue of batches."""


@runtime_checkable
class TopicRemover(Protocol):
    """A dispatcher that can forget a topic."""

    def forget_topic(self, topic: str, end_offset: int) -> None:
        """Remove what was built for ``topic``; its records below ``end_offset`` never come back.

        Called between two dispatches. The dispatcher notes it durably before it removes anything.
        Raises ``OSError`` if nothing was removed, and :class:`~lakelog.errors.StoreError` if the
        topic is gone but files remain.
        """


@runtime_checkable
class FrontRemover(Protocol):
    """A dispatcher that can let go of what is older than the log."""

    def remove_before(self, minimum: int) -> int:
        """Remove the files that know of nothing but records before ``minimum``; how many.

        From the oldest on, each durably gone before the next, and never the last one, which says
        where to go on. Called between two dispatches, once the log begins at ``minimum``; raises
        ``OSError`` and :class:`~lakelog.errors.StoreError`, and is then asked again later.
        """


@runtime_checkable
class KeyIndex(Protocol):
    """A dispatcher that finds records by key; reads from any thread."""

    def offsets(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Physical offsets of records that may have ``key``, the newest first, lazily.

        Others may be among them: topic and key must be checked. Store times are compared as
        exactly as the index keeps them. Raises :class:`~lakelog.errors.CorruptIndex` where the
        index is damaged, after everything that could be found.
        """


class HashFile(Protocol):
    """One of them."""

    @property
    def map(self) -> mmap:
        """All of its bytes."""


HashMemory: TypeAlias = Callable[[int, int, int], list[int]]
"""Gives offsets of records, the newest first, by the hash of a key and store times in ms."""

HashChains: TypeAlias = tuple[tuple[HashFile, ...], HashMemory | None, int, int, int, int]
"""Index files, the oldest first; what is in no file yet; the offsets from which on, and before
which, both count; then the slots and entries of a file. The tuple of files is replaced, never
changed.
"""


@runtime_checkable
class HashFiles(Protocol):
    """A key index of RocketMQ's files, whose chains compiled code may walk."""

    def hash_files(self) -> HashChains | None:
        """What there is; ``None`` while Python has to look."""


@runtime_checkable
class Follower(Protocol):
    """Reads the log at its own pace, with its own cursor; can never hold up the queues.

    ``lakelog serve`` runs each that the settings name in a process of its own, and starts that
    again when it ends or hangs. So it must bear being killed at any time.
    """

    def start(self) -> None:
        """Begin to follow."""

    def stop(self) -> None:
        """Stop soon, and return when stopped."""


@runtime_checkable
class WatchedFollower(Protocol):
    """A follower that knows whether it gets on."""

    def is_well(self) -> bool:
        """Whether it does; if it does not for ``serve.hang_timeout_ms``, it is started again.

        Asked now and then from another thread than those that follow; returns at once. An error
        ends the follower, if it can never get on without a new start.
        """


@runtime_checkable
class FollowerProgram(Protocol):
    """A follower that another program does better."""

    def command(self) -> Sequence[str]:
        """The program and its arguments, which under ``lakelog serve`` run instead of ``start``.

        It stops on SIGTERM. It may tell ``READY=1`` and ``WATCHDOG=1`` as sd_notify(3) does.
        """
