"""Completes queues and index in memory, for a store opened for reading.

The files lack entries after a crash, beside a living owner, or after they were removed. The missing
part is dispatched from the log to dispatchers that keep it in memory. Nothing on disk is changed,
and the code is the owner's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Final

import attrs

from lakelog.dispatch import DispatchCursor, Lag, NamedDispatcher, forget_topic, resume
from lakelog.errors import OffsetOutOfRange, StoreClosed
from lakelog.files.filesystem import FileSystem, identity_at
from lakelog.format.layout import ABORT_FILE, CHECKPOINT_FILE, LOCK_FILE
from lakelog.hooks import DispatchedLog
from lakelog.log.log_reader import LogReader
from lakelog.log.store_directory import unread
from lakelog.processes.ownership import is_owned
from lakelog.processes.positions import PageWaiter
from lakelog_queues.dispatching.tombstones import TombstoneFile
from lakelog_queues.readers.arrivals import PolledArrivals

LOOK_SECONDS: Final = 0.002
"""The minimum time between two checks of the log, unless a waiter was woken."""
_WAIT_S: Final = 0.01
"""Seconds between two checks of the log by :meth:`ReaderWait.wait`."""
_SETTLED_NS: Final = 2_000_000_000


class ReaderCatchUp:
    """The dispatch state of one reader."""

    def __init__(
        self,
        path: Path,
        reader: LogReader,
        dispatchers: Sequence[NamedDispatcher],
        clock: Callable[[], float] = time.monotonic,
        *,
        untouched: Callable[[], object | None] = lambda: None,
        tombstones: TombstoneFile | None = None,
    ) -> None:
        """Keep the collaborators; nothing is read yet.

        :param untouched: see :func:`untouched`
        :param tombstones: read before the dispatchers were built, if topics may be removed
            meanwhile
        """
        self._path = path
        self._reader = reader
        self._dispatchers = dispatchers
        self._clock = clock
        self._tombstones = tombstones
        self._removed: dict[str, int] = {}
        self._dispatching: DispatchCursor | None = None
        self._looked = float("-inf")
        self._untouched = untouched
        self._state: object | None = None
        self._found = 0  # the end of the log at the first check
        self._lock = Lock()

    @property
    def offset(self) -> int:
        """Offset up to which the log is in queues and index."""
        return self._dispatching.offset if self._dispatching is not None else 0

    def reach(self, *, now: bool = False) -> int:
        """Dispatch the new part of the log; return the offset reached.

        :param now: whether to ignore the minimum time between two checks

        Raises :class:`~lakelog.errors.DispatchStopped`, and :class:`~lakelog.errors.StoreError`
        for files and folders that cannot be read.
        """
        with self._lock:
            if self._tombstones is not None:
                self._removed.update(self._tombstones.changes())
            if now or self._removed or self._clock() - self._looked > LOOK_SECONDS:
                try:
                    self._forget()
                    self._take_in()
                except OSError as error:
                    raise unread(error, self._path) from error
                self._looked = self._clock()
        return self.offset

    def close(self) -> None:
        """Close the files of queues and index; a later read opens them again."""
        with self._lock:
            for each in self._dispatchers:
                each.dispatcher.close()

    def _forget(self) -> None:
        """Hide queues of removed topics; later messages of these topics are dispatched again."""
        if not self._removed:
            return
        dispatching = self._dispatching or self._begin()
        for topic, end_offset in self._removed.items():
            self._state = None  # earlier records are dispatched again
            forget_topic(self._dispatchers, topic, end_offset)
            again = max(end_offset, self._reader.min_offset)
            dispatching.offset = min(dispatching.offset, again)
        self._removed.clear()

    def _take_in(self) -> None:
        if not self._dispatchers:
            return
        found, state = None, None if self._dispatching else self._untouched()
        dispatching = self._dispatching
        if dispatching is None:
            dispatching, found = self._begin(), self._found
        if dispatching.failure is not None:
            raise dispatching.failure
        while True:
            known = self._reader.end_now(dispatching.offset)
            if known is None and found is None:  # the end of the log is unknown
                state = self._untouched()
                if state is not None and state == self._state:
                    return
            end = found if known is None else known
            if end is not None and end <= dispatching.offset:
                break
            try:
                dispatching.run(self._reader.pieces(dispatching.offset, end))
            except OffsetOutOfRange:
                if dispatching.offset >= self._reader.min_offset:
                    raise
                continue  # deleted meanwhile: the log now begins later
            break
        self._state = state if known is None else None

    def _begin(self) -> DispatchCursor:
        """Read the progress of the dispatchers; done at the first read: many queues take long."""
        minimum, end = self._reader.min_offset, self._reader.max_offset
        start = resume(self._dispatchers, minimum, end)
        self._found = end
        self._dispatching = DispatchCursor(self._path, self._dispatchers, start)
        return self._dispatching


@attrs.frozen
class ReaderWait:
    """The dispatch state of a process that dispatches on demand."""

    completion: ReaderCatchUp
    arrivals: PolledArrivals

    @classmethod
    def of(cls, log: DispatchedLog) -> ReaderWait:
        """Prepare; nothing is read yet."""
        # News are tombstones that are later than those with which the queues were built.
        seen = (getattr(each, "tombstones", None) for each in log.dispatchers.values())
        known: Mapping[str, int] = next((each for each in seen if each is not None), {})
        commitlog = log.settings.core.commitlog(log.path)
        completion = ReaderCatchUp(
            log.path,
            log.reader,
            [NamedDispatcher(name, each) for name, each in log.dispatchers.items()],
            untouched=partial(untouched, log.files, log.path, commitlog),
            tombstones=TombstoneFile(log.files, log.path, known=known),
        )
        page_waiter, look = PageWaiter(log.files, log.path), partial(completion.reach, now=True)
        return cls(completion, PolledArrivals(completion.reach, page_waiter, look))

    @property
    def offset(self) -> int:
        """The offset reached by dispatching now."""
        return self.completion.reach()

    @property
    def lag(self) -> Lag:
        """No lag: each query dispatches everything first."""
        return Lag(0, 0)

    @property
    def failure(self) -> None:
        """``None``: these dispatchers raise from the query."""
        return None

    def wait(self, offset: int, timeout_s: float) -> bool:
        """Check repeatedly whether the log is dispatched up to ``offset``; ``False`` on timeout.

        Raises :class:`~lakelog.errors.StoreClosed` if the store is closed meanwhile.
        """
        deadline = time.monotonic() + timeout_s
        while self.offset < offset:
            if self.arrivals.closed:
                raise StoreClosed("the store was closed meanwhile")
            if time.monotonic() >= deadline:
                return False
            time.sleep(_WAIT_S)
        return True

    def close(self) -> None:
        """Wake the waiting threads, and close the files."""
        self.arrivals.close()
        self.completion.close()


def untouched(
    files: FileSystem, path: Path, commitlog: Path, now_ns: Callable[[], int] = time.time_ns
) -> object | None:
    """A value that stays equal as long as a closed store is not written.

    ``None`` if a process has the store open, since writes through a map do not change file times.
    Also ``None`` just after a write, since another write could leave the same time.
    """
    if is_owned(files, path):
        return None
    names = [name for name, _ in files.list(commitlog)]
    last = identity_at(commitlog / names[-1]) if names else None
    if last is None or now_ns() - last.ctime_ns < _SETTLED_NS:
        return None
    others = (identity_at(path / name) for name in (ABORT_FILE, CHECKPOINT_FILE, LOCK_FILE))
    return len(names), names[-1], last, *others
