"""Every error that lakelog raises, in one tree.

::

    LakelogError
    ├── SettingsError            a value, a key or a source of settings is wrong
    │   └── UnknownSetting       an unknown key; names the nearest known one
    ├── PluginError              a plugin cannot be used as it is
    │   ├── MissingPlugin        the settings name a strategy that is not installed
    │   ├── DuplicateName        two plugins offer a strategy of the same name
    │   ├── BadHook              a hook is misspelt, or takes arguments that do not exist
    │   ├── BadStrategy          an object lacks a method of its Protocol
    │   ├── StrategyFailed       a flush strategy failed; the put's messages *are* in the log
    │   └── DecodeFailed         the original body cannot be restored; the record is whole
    ├── StoreError               a directory, or an open store, cannot do what was asked
    │   ├── NotAStore            the directory is missing, or holds something else
    │   ├── StoreLocked          another process has the store open in a conflicting mode
    │   ├── NoOwner              no process runs the store's services
    │   ├── AttachRefused        the files belong to another user
    │   ├── BadSegment           a file of the log has a wrong length, name or place
    │   ├── StoreReadOnly        the store was opened for reading only
    │   ├── StoreClosed          the store was closed
    │   ├── StoreFailed          a write or sync failed; close and reopen the store
    │   │   └── ReplicaStopped   the master's log does not continue this copy of it
    │   ├── ThreadNotStarted     the system refuses this process another thread
    │   ├── ReadFailed           a file cannot be read now; also an ``OSError``
    │   ├── CorruptQueue         a file of a consume queue has a wrong length, or holds wrong units
    │   ├── CorruptIndex         a file of the key index is damaged; a rebuild mends it
    │   ├── CorruptConfig        a JSON file of config/ cannot be read, nor its .bak
    │   ├── MissingIndex         no key index is installed, or the settings leave it out
    │   └── DispatchStopped      a dispatcher failed; queues or index lag behind the log
    ├── CorruptRecord            bytes of the log that are not the record they should be
    ├── OffsetOutOfRange         no record starts there
    ├── WrongType                an argument has a wrong type; also a ``TypeError``
    ├── WrongValue               an argument has a wrong value; also a ``ValueError``
    ├── IllegalMessage           a message that no record can hold
    ├── NotDurable               a put that *is* in the log, but not durable or copied in time
    └── PutRefused               a put that is *not* in the log, with RocketMQ's status

A message says what is wrong, where, and what to do; the parts are attributes too, for programs.

The errors of messages and records; ``LakelogError`` is the base class of all lakelog errors.
"""

from __future__ import annotations

import errno
import signal
from collections.abc import Sequence
from copy import copy
from functools import partial
from os import PathLike
from types import CodeType
from typing import TYPE_CHECKING, Any, Final, Self

from lakelog.arguments import LakelogError as LakelogError  # noqa: PLC0414  # exported: users import it from here, but the rooms put it above
from lakelog.arguments import WrongType as WrongType  # noqa: PLC0414  # exported: users import it from here, but the rooms put it above
from lakelog.arguments import WrongValue as WrongValue  # noqa: PLC0414  # exported: users import it from here, but the rooms put it above
from lakelog.results import PutStatus

if TYPE_CHECKING:
    from lakelog.results import PutResult


class CorruptRecord(LakelogError):
    """Bytes of the log that are not the whole, checked record expected there.

    :ivar offset: physical offset of the record's first byte
    :ivar expected: the value that a check expected
    :ivar found: the value found
    :ivar path: the segment file, if known
    """

    def __init__(
        self,
        what: str,
        *,
        offset: int,
        expected: object = None,
        found: object = None,
        path: str | PathLike[str] | None = None,
    ) -> None:
        place = f"{path}: " if path is not None else ""
        detail = "" if expected is None else f" (expected {expected}, found {found})"
        super().__init__(f"{place}record at offset {offset}: {what}{detail}")
        self.what = what
        self.offset = offset
        self.expected = expected
        self.found = found
        self.path = path


class IllegalMessage(LakelogError, ValueError):
    """A message that no record can hold.

    :ivar status: the status of the refused put
    """

    def __init__(self, what: str, *, status: PutStatus) -> None:
        super().__init__(what)
        self.status = status


class PutRefused(LakelogError):
    """A refused put: its messages are not in the log and will never be read.

    A batch larger than a segment is appended in pieces. If one piece is refused, the preceding
    pieces stay in the log.

    :ivar status: RocketMQ's name for the reason
    :ivar accepted: results of the leading messages of a batch that *are* in the log
    """

    accepted: Sequence[PutResult] = ()

    def __init__(self, status: PutStatus, what: str) -> None:
        super().__init__(f"{status.name}: {what}")
        self.status = status


class NotDurable(LakelogError):
    """A put whose messages are in the log, but were not made durable, or not copied, in time.

    They may become durable later, or be lost at a power cut; putting them again stores them twice.
    :meth:`~lakelog.Store.flush` makes them durable. The setting ``on_late = "return"`` lets such
    puts return their result in place of this error.

    :ivar status: ``FLUSH_DISK_TIMEOUT``, ``FLUSH_SLAVE_TIMEOUT`` or ``SLAVE_NOT_AVAILABLE``
    :ivar result: what the put would have returned: a :class:`~lakelog.PutResult` with that status,
        or a sequence of those of all messages of a batch
    """

    def __init__(self, status: PutStatus, result: Any, limit_ms: float | None = None) -> None:
        """Describe a late put.

        :param limit_ms: how long the put waited for its sync or copies at most, if known
        """
        many = isinstance(result, Sequence)
        first = result[0] if many else result
        these, its = (
            (f"the {len(result)} records are", "their") if many else ("the record is", "its")
        )
        they, them = ("they", "them") if many else ("it", "it")
        within = "in time" if limit_ms is None else f"in {limit_ms:g} ms"
        missing, loss = _LATE[status]
        super().__init__(
            f"{status.name}: {these} in the log at offset {first.physical_offset}, {its} "
            f"{missing.format(within)}; {they} may become durable later, or be lost at {loss}: do "
            f"not put {them} again blindly, see lakelog.NotDurable"
        )
        self.status = status
        self.result = result


_LATE: Final = {
    PutStatus.FLUSH_DISK_TIMEOUT: ("sync did not finish {}", "a power cut"),
    PutStatus.FLUSH_SLAVE_TIMEOUT: ("copies were not confirmed {}", "the loss of this machine"),
    PutStatus.SLAVE_NOT_AVAILABLE: (
        "copies are missing, as too few slaves are connected or near the end of the log",
        "the loss of this machine",
    ),
}


class SettingsError(LakelogError, ValueError):
    """A setting cannot be used.

    :ivar key: the dotted key, such as ``timed.flush_interval_ms``, or ``None``
    :ivar source: where the value came from, such as a file or a variable, or ``None``
    """

    def __init__(self, what: str, *, key: str | None = None, source: str | None = None) -> None:
        place = " in ".join(part for part in (key, source) if part)
        super().__init__(f"{place}: {what}" if place else what)
        self.key = key
        self.source = source


class UnknownSetting(SettingsError):
    """An unknown key; the message names the nearest known one."""


class PluginError(LakelogError):
    """A plugin cannot be used.

    :ivar plugin: the plugin's name, as ``lakelog plugins`` prints it
    :ivar distribution: the package that provides it and its version, if known
    """

    def __init__(
        self, what: str, *, plugin: str | None = None, distribution: str | None = None
    ) -> None:
        package = f" of {distribution}" if distribution else ""
        super().__init__(f"plugin {plugin!r}{package}: {what}" if plugin else what)
        self.plugin = plugin
        self.distribution = distribution


class MissingPlugin(PluginError):
    """The settings name a strategy that no installed plugin offers."""


class DuplicateName(PluginError):
    """Two plugins offer strategies of the same name."""


class BadHook(PluginError):
    """A hook implementation that pluggy would ignore or could not call."""


class BadStrategy(PluginError):
    """A factory returned an object that does not implement its Protocol."""


class StrategyFailed(PluginError):
    """A flush strategy or a replicator failed, or did not answer, after the append of a put.

    The messages are in the log and will be read; putting them again stores them twice. Only the
    guarantee of the strategy is missing. :meth:`~lakelog.Store.flush` makes them durable.

    :ivar status: ``FLUSH_DISK_TIMEOUT``, or ``FLUSH_SLAVE_TIMEOUT`` for a replicator
    :ivar accepted: results, with that status, of the messages in the log. These are all messages of
        the call. For a batch larger than a segment, pieces after the failed one were not appended.
    """

    status = PutStatus.FLUSH_DISK_TIMEOUT
    accepted: Sequence[PutResult] = ()

    def of(self, results: Sequence[PutResult]) -> StrategyFailed:
        """The same error for some of the messages."""
        error = copy(self)
        error.accepted, error.__cause__ = results, self.__cause__
        return error


class DecodeFailed(PluginError):
    """The append callback's ``decode`` failed: original bodies cannot be restored.

    The records are whole. The fault is in the callback or its settings, such as a wrong key.
    """


class StoreError(LakelogError):
    """A store directory, or an open store, cannot do what was asked.

    :ivar path: the file or directory concerned
    """

    def __init__(self, what: str, *, path: str | PathLike[str] | None = None) -> None:
        super().__init__(f"{path}: {what}" if path is not None else what)
        self.path = path


class NotAStore(StoreError):
    """The directory holds no store, or holds something else."""


class StoreLocked(StoreError):
    """Another process, or another open store of this process, has the directory open.

    :ivar owner_pid: the process that recovered it, if known
    """

    def __init__(
        self, what: str, *, path: str | PathLike[str], owner_pid: int | None = None
    ) -> None:
        super().__init__(what, path=path)
        self.owner_pid = owner_pid


class NoOwner(StoreError):
    """No process runs the services of the store."""


class AttachRefused(StoreError):
    """The owner of the store refuses this process; the message says why."""


class BadSegment(StoreError):
    """A file of the log has a wrong length or name, or leaves a gap.

    :ivar offset: physical offset of the fault in the log, in bytes
    :ivar expected: the expected value
    :ivar found: the value found
    """

    def __init__(
        self,
        what: str,
        *,
        path: str | PathLike[str],
        offset: int | None = None,
        expected: object = None,
        found: object = None,
    ) -> None:
        super().__init__(what, path=path)
        self.offset = offset
        self.expected = expected
        self.found = found


class UnreadableEnd(BadSegment):
    """The log ends in bytes that were durable and are no whole records; they are not set aside."""


class CorruptQueue(StoreError):
    """A file of a consume queue has a wrong length, or holds units that fit no record."""


class CorruptIndex(StoreError):
    """A file of the key index is damaged; ``lakelog rebuild --index`` mends it."""


class CorruptConfig(StoreError):
    """A JSON file of ``config/`` and its ``.bak`` cannot be read."""


class MissingIndex(StoreError):
    """The store has no key index: none is installed, or the settings leave it out."""


class DispatchStopped(StoreError):
    """A dispatcher failed; queues and index lag behind the log until the cause is removed.

    :ivar dispatcher: its name in the settings
    :ivar offset: physical offset of the record at which it failed
    """

    def __init__(
        self, what: str, *, dispatcher: str, offset: int, path: str | PathLike[str]
    ) -> None:
        super().__init__(what, path=path)
        self.dispatcher = dispatcher
        self.offset = offset


class StoreReadOnly(StoreError):
    """The store was opened for reading only."""


class StoreClosed(StoreError):
    """The store was closed."""


class StoreFailed(StoreError):
    """A write, sync or allocation failed; the store writes nothing more until it is reopened."""

    def for_waiter(self) -> StoreFailed:
        """A copy for one waiter: raising modifies an error, so threads must not share it."""
        error = copy(self)
        error.__cause__ = self.__cause__
        return error


class ReplicaStopped(StoreFailed):
    """The log of the master does not continue this copy of it; the text says what to do.

    :ivar offset: physical offset from which on they differ, or at which the copy ends
    :ivar is_mended: whether it is enough to open the store again, which then cuts the copy there
    """

    def __init__(
        self, what: str, *, path: str | PathLike[str], offset: int, is_mended: bool = False
    ) -> None:
        super().__init__(what, path=path)
        self.offset = offset
        self.is_mended = is_mended


class ReadFailed(StoreError, OSError):
    """A system call failed while a store was read; the read can be retried.

    The store itself need not be damaged. It is also an ``OSError``, so that existing handlers work.

    :ivar errno: the number of the operating system's error
    :ivar strerror: the operation, and the reason of the failure
    :ivar filename: the file or directory concerned
    """

    errno: int | None = None  # in __dict__, unlike that of an OSError, so that it is pickled
    strerror: str | None = None
    filename: str | None = None

    def __new__(cls, *words: object, **_parts: object) -> Self:
        """Bypass ``OSError.__new__``, which interprets its arguments as errno and message."""
        made = super().__new__(cls)
        made.args = words
        return made

    def __init__(self, what: str, *, path: str | PathLike[str], error: OSError) -> None:
        super().__init__(what, path=path)
        self.args = (f"{path}: {what}",)
        self.errno, self.strerror, self.filename = error.errno, error.strerror, str(path)


class NotOpened(ReadFailed):
    """A file or folder could not be opened for want of descriptors, memory or rights.

    A retry is safe. Nothing was done: it is no failed write or sync, and the store goes on.
    """


class ThreadNotStarted(StoreError):
    """The system refuses this process another thread; nothing was done, and a retry is safe.

    :ivar thread: the thread's name
    :ivar errno: ``EAGAIN``, the error of ``pthread_create``
    """

    def __init__(self, thread: str, why: object) -> None:
        super().__init__(
            f"the thread {thread!r} cannot be started ({why}); after EAGAIN, raise the limit of "
            "threads of the user or the container (ulimit -u, pids.max of the cgroup), or end some "
            "threads, then try again"
        )
        self.thread = thread
        self.errno = errno.EAGAIN


class OffsetOutOfRange(LakelogError, LookupError):
    """No record starts at the requested offset.

    :ivar offset: the requested offset
    """

    def __init__(self, what: str, *, offset: int) -> None:
        super().__init__(what)
        self.offset = offset


def raised_by_handler(error: BaseException) -> bool:
    """Whether ``error`` passed through a signal handler, and so is not a fault of the called code.

    The handler is recognised by its code object among the frames of the traceback.
    """
    codes = {_code(signal.getsignal(each)) for each in signal.valid_signals()} - {None}
    at = error.__traceback__
    while at is not None and at.tb_frame.f_code not in codes:
        at = at.tb_next
    return at is not None


def _code(handler: object) -> CodeType | None:
    while isinstance(handler, partial):
        handler = handler.func
    for each in (handler, getattr(handler, "__func__", None), type(handler).__call__):
        code = getattr(each, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None
