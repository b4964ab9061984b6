"""Does one thing again and again in a thread, while a test goes on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from threading import Event, Thread
from typing import Generic, TypeVar

import attrs

from tests.support.waiting import until

T = TypeVar("T")


@attrs.define
class Repeating(Generic[T]):
    """Calls ``act`` with 0, 1, and so on until the end of a block, or until that fails.

    :ivar found: what it returned, but for None
    :ivar error: what ended it
    """

    act: Callable[[int], T | None]
    pause_s: float = 0.0
    found: list[T] = attrs.field(factory=list)
    error: Exception | None = None
    _over: Event = attrs.field(factory=Event)
    _thread: Thread = attrs.field(factory=Thread)

    def __enter__(self) -> Repeating[T]:
        self._thread = Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def more(self, count: int) -> None:
        """Wait until it has returned something so many times more."""
        due = len(self.found) + count
        until(lambda: len(self.found) >= due or self.error, "nothing is acknowledged", seconds=120)
        assert self.error is None

    def _run(self) -> None:
        for number in itertools.count():
            if self._over.wait(self.pause_s):
                return
            try:
                found = self.act(number)
            except Exception as error:  # noqa: BLE001  # the test looks at it
                self.error = error
                return
            if found is not None:
                self.found.append(found)
