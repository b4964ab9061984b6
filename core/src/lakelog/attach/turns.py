"""Many threads wait for answers out of one ring: one of them looks, the others sleep.

No thread is there for looking alone, so that a put needs no change of threads. Who looked and has
its own answer wakes one of the others to go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, get_ident

from lakelog.attach.call import Call


class Turns:
    """Decides who looks.

    :param look: looks until the call that it is given is done
    """

    def __init__(self, look: Callable[[Call], None]) -> None:
        self._look = look
        self._looking = Lock()
        self._looker = 0
        self._others: deque[Call] = deque()

    def is_mine(self) -> bool:
        """Whether this thread looks: it comes out of a callback then, and nobody else will."""
        return self._looker == get_ident()

    def wait(self, call: Call) -> None:
        """Come back when ``call`` is done."""
        while not call.done:
            if self._looking.acquire(blocking=False):
                self._lead(call)
            elif self.is_mine():
                self._look(call)
            else:
                self._follow(call)

    def end(self) -> None:
        """Come back when who looks is through with its callbacks; at once from one of them."""
        if self.is_mine():
            return
        with self._looking:
            pass
        if self._others:
            self._pass_on()

    def _lead(self, call: Call) -> None:
        try:
            self._looker = get_ident()
            self._look(call)
        finally:
            self._looker = 0
            self._looking.release()
            if self._others:
                self._pass_on()

    def _follow(self, call: Call) -> None:
        """Sleep while another one looks.

        First it can be seen that this one sleeps, then it looks whether the other is still there;
        who looks goes about it the other way round.
        """
        call.lie_down()
        self._others.append(call)
        try:
            if self._looking.locked() and not call.done:
                call.sleep()
        except BaseException:  # interrupted, maybe just when it was its turn
            self._pass_on()
            raise
        finally:
            with suppress(ValueError):
                self._others.remove(call)

    def _pass_on(self) -> None:
        for call in tuple(self._others):
            if not call.done:
                call.rouse()
                return
