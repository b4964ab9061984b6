"""A condition variable that costs almost nothing until a thread waits.

``threading.Condition`` is created, entered and left by Python code, which is most of the cost of a
future. A gate is itself a reentrant lock, so that these three run in C.
"""

from __future__ import annotations

from threading import Lock, RLock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from threading import Condition as _Base
else:
    _Base = type(RLock())


class FastCondition(_Base):
    """The part of ``threading.Condition`` that :class:`concurrent.futures.Future` and a queue use.

    :ivar sleepers: one lock per waiting thread; if it is empty, ``notify_all`` is unnecessary
    """

    __slots__ = ("sleepers",)

    def __init__(self) -> None:
        self.sleepers: list[Any] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Release the gate, sleep until ``notify_all``, acquire it again; ``False`` on timeout.

        :param timeout: in seconds
        """
        sleeper = Lock()
        sleeper.acquire()
        self.sleepers.append(sleeper)
        state = self._release_save()  # type: ignore[attr-defined]  # the lock's, as Condition uses it
        try:
            return sleeper.acquire(timeout=-1 if timeout is None else max(timeout, 0))
        finally:
            self._acquire_restore(state)  # type: ignore[attr-defined]  # the lock's
            if sleeper in self.sleepers:
                self.sleepers.remove(sleeper)

    def notify_all(self) -> None:
        """Wake all waiting threads; the caller must hold the gate."""
        while self.sleepers:
            self.sleepers.pop().release()
