"""The strategies behind the append: dispatchers, followers, store extensions.

A dispatcher may have optional interfaces, by which its files are read, trimmed, and checked against
the log. Checks only read files: nothing is completed or repaired. A store extension adds methods to
open stores, such as finding by queue and key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from lakelog.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lakelog.files.filesystem import FileSystem
    from lakelog.format.queue_offsets import Queue, Units
    from lakelog.format.record_batch import RecordBatch


@runtime_checkable
class Dispatcher(Protocol):
    """Derives files from the log, such as queues or an index, which can be rebuilt from it.

    If it also has ``forget_topic(topic, end_offset)``, that method removes all entries of a topic,
    and ignores its records below ``end_offset`` from now on. It is called between two dispatches,
    and notes the removal durably before it removes anything. It raises ``OSError`` if nothing was
    removed, and :class:`~lakelog.errors.StoreError` if the topic was removed but files remain.

    If it also has ``settle_offsets(next_offsets, minimum)``, that method is called once when a
    closed store is opened for writing, after :meth:`resume` and before the first append.
    ``next_offsets`` has the next queue offset of each queue with records or files. The method adds
    queues that continue at a higher offset than 0 without them, and sets progress beyond the ends
    back to them.

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
    """One file of a hash index.

    :ivar own_map: a memory map of the file, made and used by compiled code only, and ``None`` at
        first; ``False`` if another process writes the file, and may cut it
    """

    own_map: object

    def fileno(self) -> int:
        """The descriptor of the open file, valid as long as this object."""


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


class DispatchedLog(NamedTuple):
    """The log of an open store and its dispatchers, for a store extension.

    :ivar path: the store directory
    :ivar files: all access to files goes through it
    :ivar settings: the settings in force, a ``lakelog.settings.effective.Settings``
    :ivar read_only: whether no file may be changed
    :ivar reader: a ``LogReader``
    :ivar dispatchers: by name, in their order
    :ivar dispatching: the ``DispatchRunner`` of a process with the services; ``None`` elsewhere,
        where the extension brings the dispatchers up to date with the log
    :ivar sync: makes the log durable, see ``Appender.sync``; ``None`` if ``read_only``
    """

    path: Path
    files: FileSystem
    settings: Any
    read_only: bool
    reader: Any
    dispatchers: Mapping[str, Dispatcher]
    dispatching: Any | None = None
    sync: Callable[[], bool] | None = None


class StoreExtension(Protocol):
    """Adds methods to open stores; a process uses at most one."""

    @property
    def store_class(self) -> type[Any]:
        """The class of open stores, a subclass of ``LogStore``.

        Its methods find the result of :meth:`extend` in ``self._current.now().extension``.
        """

    def extend(self, log: DispatchedLog) -> Any:
        """Build the resources for ``log``: at open, after a fork, and when the role changes.

        Called for every open store, so it should defer slow work to the first use.

        :returns: an object with ``waits``, the ``DispatchWait`` of the store (how far the
            dispatchers are, and waiting for them), and ``close()``, called before the log is closed
        """


class Problem(NamedTuple):
    """One fault in files that were built from the log.

    :ivar path: the file, or the folder that lacks one
    :ivar position: byte position in the file
    :ivar what: the kind of problem, in the same words for all of one kind
    :ivar expected: the expected content, in words; empty if unknown
    :ivar found: the actual content
    :ivar recoverable: whether a crash can cause it and recovery repairs it from the log: missing
        units at the end, or units beyond the log. After a clean close it is an ordinary problem.
    """

    path: Path
    position: int
    what: str
    expected: str = ""
    found: str = ""
    recoverable: bool = False

    def __str__(self) -> str:
        """Format it for a terminal."""
        pairs = (("expected", self.expected), ("found", self.found))
        more = ", ".join(f"{name} {text}" for name, text in pairs if text)
        return f"{self.path}: at byte {self.position}: {self.what}{': ' if more else ''}{more}"


class Verifier(Protocol):
    """A check in progress, alongside one scan of the log; used by one thread."""

    def take(self, batch: RecordBatch) -> Iterator[Problem]:
        """Compare with the next run of records, in log order; iterate to the end."""

    def finish(self, end_offset: int) -> Iterator[Problem]:
        """Compare the remainder: the log was read up to ``end_offset`` bytes."""

    def close(self) -> None:
        """Close files."""


@runtime_checkable
class DamageAware(Protocol):
    """A verifier that also receives damage of the log, which is no fault of its own files."""

    def pass_damage(self, offset: int, end_offset: int) -> None:
        """Record that these bytes are not a whole record; called in log order."""


class DamagedRanges:
    """The damaged ranges of the log found so far."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, offset: int, end_offset: int) -> None:
        """Add the next range, in log order."""
        self._starts.append(offset)
        self._ends.append(end_offset)

    def hits(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of ``offsets`` lie inside a damaged range."""
        if not self._starts:
            return np.zeros(len(offsets), np.bool_)
        numbers = np.searchsorted(self._starts, offsets, side="right") - 1
        inside: NDArray[np.bool_] = (numbers >= 0) & (offsets < np.array(self._ends)[numbers])
        return inside


@runtime_checkable
class Verifiable(Protocol):
    """A read-only dispatcher whose files can be compared with the log."""

    def verifier(self, minimum: int, *, living: bool) -> Verifier:
        """Start a check, before the scan of the log starts.

        :param minimum: start of the log; units of earlier records are not checked
        :param living: whether an owner writes meanwhile, so that missing units at the end are
            normal
        """
