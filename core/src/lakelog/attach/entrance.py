"""Who puts into a ring next: one thread at a time, which may have to wait for room.

A callback may put, too. One that runs in a thread that waits for room itself puts behind what that
thread is putting; one that runs in the thread that looks for answers goes on looking until it has
its turn, for nobody else looks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, get_ident
from typing import Final

from lakelog.attach.call import Call
from lakelog.attach.turns import Turns

_NAP_SECONDS: Final = 1e-4


class Entrance:
    """The turn of those that put.

    :param place: puts a call into the ring, unless there is no room for it now
    :param turns: where one waits for room
    :param look: looks for answers once, for the thread whose turn it is to look
    """

    def __init__(
        self, place: Callable[[Call], bool], turns: Turns, look: Callable[[], object]
    ) -> None:
        self._place = place
        self._turns = turns
        self._look = look
        self._turn = Lock()
        self._holder = 0
        self._placing: deque[Call] = deque()
        self._room: Call | None = None

    def put(self, call: Call) -> None:
        """Place ``call``; nobody else gets in before. Raises what ``place`` does."""
        if self._holder == get_ident():
            self._place_behind(call)
            return
        self._take_turn()
        try:
            if not self._place(call):
                self._place_behind(call)
        finally:
            self._leave()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Nobody gets in, but for callbacks of what is settled in this thread meanwhile."""
        self._take_turn()
        try:
            yield
        finally:
            self._leave()

    def _take_turn(self) -> None:
        if not self._turn.acquire(blocking=False):
            self._wait_for_turn()
        self._holder = get_ident()

    def _wait_for_turn(self) -> None:
        if not self._turns.is_mine():
            self._turn.acquire()
            return
        while not self._turn.acquire(timeout=_NAP_SECONDS):
            self._look()

    def _leave(self) -> None:
        self._holder = 0
        self._turn.release()

    def _place_behind(self, call: Call) -> None:
        self._placing.append(call)
        try:
            self.wait_until(lambda: self._are_placed_to(call))
        finally:
            if call in self._placing:
                self._placing.remove(call)

    def _are_placed_to(self, call: Call) -> bool:
        """Place all up to ``call``, as far as there is room; a callback may have done so."""
        while call in self._placing and self._place(self._placing[0]):
            self._placing.popleft()
        return call not in self._placing

    # --- room ---

    def wait_until(self, true: Callable[[], bool]) -> None:
        """Wait for what :meth:`tell` tells of; for who has the turn.

        First it can be seen who waits, then there is another look.
        """
        before = self._room
        try:
            self._room = room = Call()
            while not true():
                self._turns.wait(room)
                self._room = room = Call()
        finally:
            self._room = before
            if before is not None:
                before.settle(None)  # it looks again whether there is something to wait for

    def tell(self) -> None:
        """There may be room, or whatever else is waited for."""
        room = self._room
        if room is not None:
            room.settle(None)
