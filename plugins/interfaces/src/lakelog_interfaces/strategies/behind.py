"""The strategies behind the append: dispatchers with their optional interfaces, and followers."""

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
    """Derives files from the log, such as queues or an index, which can be rebuilt from it.

    All calls except reads and :meth:`flush` come from one thread. Any error stops dispatching.

    :ivar directories: names of folders in the store directory; they hold all files of the
        dispatcher and nothing else, and a rebuild creates them anew; a folder whose files depend on
        those of another one comes after it
    """

    directories: Sequence[str]

    def resume(self, minimum: int, end: int) -> int:
        """Examine the existing files; return the offset from which the log must be dispatched.

        Called once, before the first :meth:`dispatch`. Entries of records at or behind ``end`` must
        be removed.

        :param minimum: offset of the first byte of the log
        :param end: offset behind its last byte
        :returns: an offset of the log; ``end`` if no entry is missing
        """

    def dispatch(self, batch: RecordBatch) -> None:
        """Add the entries of the next run of records, in log order.

        A run may be repeated, whole or in part, and must then change nothing. If this raises,
        dispatching stops; the same run is repeated once dispatching is resumed.
        """

    def truncate(self, end_offset: int) -> None:
        """Remove all entries of records at or behind ``end_offset``."""

    def flush(self) -> None:
        """Make all entries dispatched before this call durable; may be called by any thread."""

    def close(self) -> None:
        """Flush, then close the files."""


@runtime_checkable
class QueueReader(Protocol):
    """A dispatcher that finds the records of a queue; reads from any thread."""

    def queues(self) -> Sequence[Queue]:
        """Every existing queue, in no order."""

    def bounds(self, queue: Queue, minimum: int) -> tuple[int, int] | None:
        """The first queue offset and the one behind the last; ``None`` if the queue is missing.

        :param minimum: offset of the log's first byte; units of records before it do not count
        """

    def units(self, queue: Queue, first: int, count: int) -> Units:
        """At most ``count`` units from queue offset ``first`` on, as stored, without a check.

        Empty if ``first`` is outside the queue. In a queue of batches, the first unit is the one
        that contains ``first``.
        """

    def kind(self, queue: Queue) -> str:
        """``SimpleCQ``, or ``BatchCQ`` for a queue of batches."""


@runtime_checkable
class TopicRemover(Protocol):
    """A dispatcher that can remove a topic."""

    def forget_topic(self, topic: str, end_offset: int) -> None:
        """Remove all entries of ``topic``, and ignore its records below ``end_offset`` from now on.

        Called between two dispatches. The dispatcher notes the removal durably before it removes
        anything. Raises ``OSError`` if nothing was removed, and
        :class:`~lakelog.errors.StoreError` if the topic was removed but files remain.
        """


@runtime_checkable
class FrontRemover(Protocol):
    """A dispatcher that can delete files older than the log."""

    def remove_before(self, minimum: int) -> int:
        """Delete the files that hold only entries of records before ``minimum``.

        The oldest file is deleted first, each durably before the next. The last file stays: it
        shows where to continue. Called between two dispatches, once the log begins at ``minimum``.

        :returns: the number of deleted files

        Raises ``OSError`` and :class:`~lakelog.errors.StoreError`; the call is then repeated later.
        """


@runtime_checkable
class KeyIndex(Protocol):
    """A dispatcher that finds records by key; reads from any thread."""

    def offsets(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Yield the physical offsets of records that may have ``key``, the newest first.

        The caller checks topic and key, since records with other keys may be among them. Store
        times are compared with the precision of the index.

        :param begin_ms: earliest store time, in ms since 1970; ``end_ms`` is the latest

        Raises :class:`~lakelog.errors.CorruptIndex` if the index is damaged, after all offsets that
        could be found.
        """


class HashFile(Protocol):
    """One file of a hash index."""

    @property
    def map(self) -> mmap:
        """A map of the whole file."""


HashMemory: TypeAlias = Callable[[int, int, int], list[int]]
"""Returns offsets of records, the newest first, by the hash of a key and two store times in ms."""

HashChains: TypeAlias = tuple[tuple[HashFile, ...], HashMemory | None, int, int, int, int]
"""Index files, the oldest first; a search of entries that are in no file yet; the range of offsets
of valid entries, as start and end; the numbers of slots and of entries of a file. The tuple of
files is replaced, never changed.
"""


@runtime_checkable
class HashFiles(Protocol):
    """A key index of RocketMQ's files, whose chains compiled code may follow."""

    def hash_files(self) -> HashChains | None:
        """The files and the entries in memory; ``None`` while only Python can search them."""


@runtime_checkable
class Follower(Protocol):
    """Reads the log with its own cursor; it cannot delay the queues.

    ``lakelog serve`` runs each follower named by the settings in a process of its own. It restarts
    the process if it ends or hangs. So a follower must tolerate being killed at any time.
    """

    def start(self) -> None:
        """Begin to follow the log, then return."""

    def stop(self) -> None:
        """Stop soon; return once stopped."""


@runtime_checkable
class WatchedFollower(Protocol):
    """A follower that reports whether it makes progress."""

    def is_well(self) -> bool:
        """Whether it makes progress; if not for ``serve.hang_timeout_ms``, it is restarted.

        Called periodically, from another thread than those that follow the log. It must return at
        once. It may raise if only a restart can help; the error ends the follower.
        """


@runtime_checkable
class FollowerProgram(Protocol):
    """A follower that is a program of its own under ``lakelog serve``."""

    def command(self) -> Sequence[str]:
        """The program and its arguments, which ``lakelog serve`` runs instead of ``start``.

        Any user of the machine can read them: hand over secrets in an inherited file.

        The program must stop on SIGTERM. It may send ``READY=1`` and ``WATCHDOG=1``, as in
        sd_notify(3).
        """
