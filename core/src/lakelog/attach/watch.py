"""Looks for answers that no thread waits for: those of asynchronous puts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Thread

from lakelog.attach.call import Call
from lakelog.errors import ThreadNotStarted
from lakelog.gate import Gate
from lakelog.threads import started


class Watch:
    """One thread, from the first asynchronous put on.

    :param wait: comes back when the call that it is given is done
    """

    def __init__(self, wait: Callable[[Call], None]) -> None:
        self._wait = wait
        self._calls: deque[Call] = deque()
        self._changed = Gate()
        self._thread: Thread | None = None
        self._closed = False

    def add(self, call: Call) -> None:
        """Let ``call`` be settled soon after its answer comes."""
        with self._changed:
            if self._has_thread():
                self._calls.append(call)
                if self._changed.sleepers:
                    self._changed.notify_all()
                return
        self._wait(call)  # what was handed over cannot be taken back: who put it waits for it here

    def _has_thread(self) -> bool:
        if self._thread is None:
            watch = Thread(target=self._run, name="lakelog-attach-watch", daemon=True)
            with suppress(ThreadNotStarted):
                self._thread = started(watch)
        return self._thread is not None

    def _run(self) -> None:
        while (call := self._next()) is not None:
            self._wait(call)

    def _next(self) -> Call | None:
        with self._changed:
            while not self._calls:
                if self._closed:
                    return None
                self._changed.wait()
            return self._calls.popleft()

    def close(self) -> None:
        """Settle what is left, then stop."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
