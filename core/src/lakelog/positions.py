"""How far a log has come; every position is an offset in bytes from the start of the log.

``minimum <= dispatched <= confirmed <= appended`` and ``flushed <= committed <= appended``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

import attrs

from lakelog.pages.positionspage import (
    APPENDED,
    COMMITTED,
    CONFIRMED,
    DISPATCHED,
    FLUSHED,
    MINIMUM,
    RECORDS,
    SYNC_US,
    SYNCS,
    WORDS,
)
from lakelog.yieldlock import YieldLock

Words: TypeAlias = "memoryview[int] | list[int]"
"""Words of 8 bytes: of a page that other processes see, or of nobody else's."""

_WORD: Final = (1 << 64) - 1


@attrs.define(slots=True, eq=False)
class Positions:
    """The positions of one store.

    :ivar minimum: first byte that is still there
    :ivar appended: end of what was appended
    :ivar committed: end of what is in the page cache or beyond, where other processes see it
    :ivar flushed: end of what a sync that returned has made durable
    :ivar confirmed: end of the longest prefix in which every put has its result; reads stop here
    :ivar dispatched: end of what queues and index know
    :ivar words: where those who move a position let other processes see it. ``confirmed`` and
        ``appended``, which every put moves, are plain attributes: who moves one stores its word
        beside it. That of ``appended`` is stored by the append alone, behind the last byte
    :ivar elsewhere: whether another process dispatches, and stores that word
    :ivar asked: its first number is not 0 while somebody in another process waits for a position
    :ivar wake: wakes them; called by who has moved one and finds that
    """

    _minimum: int
    appended: int
    _committed: int
    _flushed: int
    confirmed: int
    _dispatched: int
    words: Words = attrs.field(factory=lambda: [0] * WORDS, init=False, repr=False)
    _syncs: int = attrs.field(default=0, init=False)
    _sync_us: int = attrs.field(default=0, init=False)
    elsewhere: bool = attrs.field(default=False, init=False)
    asked: Words = attrs.field(factory=lambda: [0], init=False, repr=False)
    wake: Callable[[], None] = attrs.field(default=lambda: None, init=False, repr=False)

    @classmethod
    def at(cls, minimum: int, end: int) -> Positions:
        """The positions of a log that holds ``minimum`` to ``end``, all of it durable."""
        return cls(minimum, end, end, end, end, end)

    @property
    def minimum(self) -> int:
        """First byte that is still there."""
        return self._minimum

    @minimum.setter
    def minimum(self, offset: int) -> None:
        self._minimum = self.words[MINIMUM] = offset

    @property
    def committed(self) -> int:
        """End of what other processes see."""
        return self._committed

    @committed.setter
    def committed(self, offset: int) -> None:
        self._committed = self.words[COMMITTED] = offset
        if self.asked[0]:
            self.wake()

    @property
    def flushed(self) -> int:
        """End of what is durable."""
        return self._flushed

    @flushed.setter
    def flushed(self, offset: int) -> None:
        self._flushed = self.words[FLUSHED] = offset
        if self.asked[0] and offset <= self.confirmed:  # else who moves that wakes them right after
            self.wake()

    @property
    def dispatched(self) -> int:
        """End of what queues and index know."""
        return self._dispatched

    @dispatched.setter
    def dispatched(self, offset: int) -> None:
        self._dispatched = self.words[DISPATCHED] = offset

    def count_sync(self, took_us: int) -> None:
        """Let others see that one more sync returned, and how long it took."""
        self._syncs += 1
        self._sync_us += took_us
        self.words[SYNCS], self.words[SYNC_US] = self._syncs, self._sync_us

    def publish(self, words: Words) -> None:
        """Let other processes see the positions from now on; nobody moves one meanwhile."""
        self.words = words
        words[MINIMUM], words[APPENDED] = self._minimum, self.appended
        words[COMMITTED], words[FLUSHED] = self._committed, self._flushed
        words[CONFIRMED], words[DISPATCHED] = self.confirmed, self._dispatched

    def count_records(self, count: int) -> None:
        """Let others see that ``count`` more records were dispatched."""
        self.words[RECORDS] = (self.words[RECORDS] + count) & _WORD  # whoever has written to it

    def mend(self) -> None:
        """Store every word anew that is not as it should be, while others may move positions.

        Each is looked at again after it was stored, so that what comes last is what counts.
        """
        self._mend(MINIMUM, lambda: self._minimum)
        self._mend(APPENDED, lambda: self.appended)
        self._mend(COMMITTED, lambda: self._committed)
        self._mend(FLUSHED, lambda: self._flushed)
        self._mend(CONFIRMED, lambda: self.confirmed)
        if not self.elsewhere:
            self._mend(DISPATCHED, lambda: self._dispatched)

    def _mend(self, at: int, value: Callable[[], int]) -> None:
        while self.words[at] != (known := value()):
            self.words[at] = known


OpenPut: TypeAlias = list[int]
"""A put on its way: empty, then with the offset behind it once it is appended, then ended."""
_ENDED: Final = -1
_ENDED_ONCE: Final = 2
"""How long a put is that has ended; longer, where that had to be said again."""


class Confirmations:
    """Moves ``confirmed`` over puts that have their results, whatever order these come in.

    A put that an exception of a signal's handler ends, wherever it is, leaves nothing that the ones
    behind it wait for.

    :ivar begin: called inside the append lock with a put that is about to be written; bound to the
        queue itself, since a call through Python costs as much as the rest of it
    :ivar wake: called once when ``confirmed`` has moved, then forgotten; for one who sleeps
    """

    def __init__(self, positions: Positions) -> None:
        self.wake: Callable[[], None] | None = None
        self._positions = positions
        self._open: deque[OpenPut] = deque()
        self.begin: Callable[[OpenPut], None] = self._open.append
        self._lock = YieldLock()
        self._take, self._release = self._lock.take, self._lock.release

    def cancel(self, put: OpenPut) -> bool:
        """Nothing of it was appended after all; whether it had begun. Inside the append lock."""
        has_begun = bool(self._open) and self._open[-1] is put
        if has_begun:
            self._open.pop()
        return has_begun

    def end(self, put: OpenPut) -> None:
        """It has its result, whatever that is; may be called again where a call was cut short."""
        put.append(_ENDED)
        try:
            if not self._take(False):
                self._lock.acquire()
            moved = self._move()
        except BaseException:
            if self._lock.is_mine():
                self._release()
            raise
        self._release()
        if not (moved or len(put) > _ENDED_ONCE):  # the latter was cut short, perhaps behind a move
            return
        if self.wake is not None:
            self.rouse()
        positions = self._positions
        if positions.asked[0]:
            positions.wake()

    def _move(self) -> bool:
        """Over all that have ended. The handler of a signal may put, too: between any two calls."""
        moved, waiting, positions = False, self._open, self._positions
        while waiting:
            first = waiting[0]
            if len(first) < _ENDED_ONCE:
                break
            if waiting and waiting[0] is first:
                positions.confirmed = positions.words[CONFIRMED] = first[0]
                waiting.popleft()
                moved = True
        return moved

    def rouse(self) -> None:
        """Wake who sleeps: a position moved that it waits for."""
        wake = self.wake
        if wake is not None:
            self.wake = None
            wake()
