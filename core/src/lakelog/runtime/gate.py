"""A condition variable that costs next to nothing until somebody waits at it.

``threading.Condition`` is made, entered and left by Python code, which is most of what a future
costs. A gate is a reentrant lock itself, so that these three are done in C.
"""

from __future__ import annotations

from threading import Lock, RLock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from threading import Condition as _Base
else:
    _Base = type(RLock())


class Gate(_Base):
    """What a :class:`concurrent.futures.Future` and a queue need of a ``threading.Condition``.

    :ivar sleepers: a lock for each who sleeps; who sees none inside need not call ``notify_all``
    """

    __slots__ = ("sleepers",)

    def __init__(self) -> None:
        self.sleepers: list[Any] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Leave the gate, sleep until ``notify_all``, enter again; ``False`` if not in time.

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
        """Wake all who sleep; for whoever is inside."""
        while self.sleepers:
            self.sleepers.pop().release()
