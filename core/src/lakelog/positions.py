"""How far a log has come; every position is an offset in bytes from the start of the log.

``minimum <= dispatched <= confirmed <= appended`` and ``flushed <= committed <= appended``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import attrs

from lakelog.yieldlock import YieldLock


@attrs.define(slots=True, eq=False)
class Positions:
    """The positions of one store.

    :ivar minimum: first byte that is still there
    :ivar appended: end of what was appended
    :ivar committed: end of what is in the page cache or beyond, where other processes see it
    :ivar flushed: end of what a sync that returned has made durable
    :ivar confirmed: end of the longest prefix in which every put has its result; reads stop here
    :ivar dispatched: end of what queues and index know
    """

    minimum: int
    appended: int
    committed: int
    flushed: int
    confirmed: int
    dispatched: int

    @classmethod
    def at(cls, minimum: int, end: int) -> Positions:
        """The positions of a log that holds ``minimum`` to ``end``, all of it durable."""
        return cls(minimum, end, end, end, end, end)


class Confirmations:
    """Moves ``confirmed`` over puts that have their results, whatever order these come in.

    :ivar wake: called once when ``confirmed`` has moved, then forgotten; for one who sleeps
    """

    def __init__(self, positions: Positions) -> None:
        self.wake: Callable[[], None] | None = None
        self._positions = positions
        self._open: deque[int] = deque()
        self._done: set[int] = set()
        self._lock = YieldLock()
        self._take, self._release = self._lock.take, self._lock.release

    def begin(self, end_offset: int) -> None:
        """A put was appended up to ``end_offset``; called inside the append lock."""
        self._open.append(end_offset)

    def end(self, end_offset: int) -> None:
        """That put has its result, whatever it is."""
        if not self._take(False):
            self._lock.acquire()
        try:
            waiting = self._open
            if waiting[0] != end_offset:
                self._done.add(end_offset)
                return
            self._positions.confirmed = waiting.popleft()
            while waiting and waiting[0] in self._done:
                self._done.remove(waiting[0])
                self._positions.confirmed = waiting.popleft()
        finally:
            self._release()
        wake = self.wake
        if wake is not None:
            self.wake = None
            wake()
