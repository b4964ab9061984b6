"""A correct strategy with shared syncs and a timeout, and one for each mistake to find."""

from __future__ import annotations

import threading
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress

from lakelog.errors import StoreFailed
from lakelog.interfaces import Flushable, Outcome
from lakelog.status import PutStatus
from plugins.testing.tests.strategies import Group


def answer(future: Future[PutStatus], status: PutStatus) -> None:
    with suppress(InvalidStateError):  # another thread was first
        future.set_result(status)


class Timely(Group):
    """Ends each put with its own timer; woken by puts that do not wait."""

    waits_for_disk = True

    def __init__(self, timeout_ms: int = 5_000) -> None:
        self.timeout_seconds = timeout_ms / 1000

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        if wait and self.is_called_back():
            self.log.sync()
            return PutStatus.PUT_OK
        future: Future[PutStatus] = Future()
        timer = threading.Timer(
            self.timeout_seconds, answer, (future, PutStatus.FLUSH_DISK_TIMEOUT)
        )
        timer.daemon = True
        future.add_done_callback(lambda _: timer.cancel())
        timer.start()
        with self.wake:
            self.waiting.append((end_offset, future))
            self.wake.notify()
        return future if wait else PutStatus.PUT_OK

    def serve(self, group: list[tuple[int, Future[PutStatus]]]) -> None:
        if not group:
            return
        try:
            self.log.sync()
        except StoreFailed as error:
            for _, future in group:
                with suppress(InvalidStateError):
                    future.set_exception(error)
        else:
            for _, future in group:
                answer(future, PutStatus.PUT_OK)


class Alone(Timely):
    """Syncs for each put separately."""

    def serve(self, group: list[tuple[int, Future[PutStatus]]]) -> None:
        for each in group:
            super().serve([each])


class Patient(Timely):
    """Waits without a limit."""

    def __init__(self, timeout_ms: int = 0) -> None:  # wrong on purpose
        super().__init__(60_000)


class Selfish(Timely):
    """Lets a callback wait for its own thread."""

    def is_called_back(self) -> bool:
        return False


class Deaf(Timely):
    """Is not woken by puts that do not wait."""

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        return super().submit(end_offset, wait) if wait else PutStatus.PUT_OK


class Blunt(Timely):
    """Hides why a sync failed."""

    def serve(self, group: list[tuple[int, Future[PutStatus]]]) -> None:
        try:
            self.log.sync()
        except StoreFailed:
            for _, future in group:
                with suppress(InvalidStateError):
                    future.set_exception(StoreFailed("it failed"))
        else:
            for _, future in group:
                answer(future, PutStatus.PUT_OK)


class Restless(Timely):
    """Syncs even if there is nothing to sync."""

    def start(self, log: Flushable) -> None:
        super().start(log)
        self.over = threading.Event()
        threading.Thread(target=self._again, daemon=True).start()

    def _again(self) -> None:
        while not self.over.wait(0.01):
            self.log.sync()

    def close(self) -> None:
        self.over.set()
        super().close()
