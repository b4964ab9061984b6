"""Correct flush strategies, and one for each mistake that a kit must find."""

from __future__ import annotations

import threading
from concurrent.futures import Future

from lakelog.errors import StoreFailed
from lakelog.interfaces import Flushable, Outcome
from lakelog.status import PutStatus


class Inline:
    """Syncs in each put that waits."""

    def start(self, log: Flushable) -> None:
        self.log = log

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        if wait and self.log.flushed < end_offset:
            self.log.sync()
        return PutStatus.PUT_OK

    def close(self) -> None:
        if self.log.flushed < self.log.appended:
            self.log.sync()


class Group:
    """Syncs in a thread, once for all waiting puts."""

    def start(self, log: Flushable) -> None:
        self.log = log
        self.waiting: list[tuple[int, Future[PutStatus]]] = []
        self.wake = threading.Condition()
        self.closing = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        if not wait:
            return PutStatus.PUT_OK
        if self.is_called_back():
            self.log.sync()
            return PutStatus.PUT_OK
        future: Future[PutStatus] = Future()
        with self.wake:
            self.waiting.append((end_offset, future))
            self.wake.notify()
        return future

    def is_called_back(self) -> bool:
        """Whether a callback puts in the thread that releases puts: it must not wait for itself."""
        return threading.current_thread() is self.thread

    def close(self) -> None:
        with self.wake:
            self.closing = True
            self.wake.notify()
        self.thread.join()
        if self.log.flushed < self.log.appended:
            self.log.sync()

    def _run(self) -> None:
        while not self.closing or self.waiting:
            with self.wake:
                self.wake.wait_for(lambda: self.waiting or self.closing)
                group, self.waiting = self.waiting, []
            self.serve(group)

    def serve(self, group: list[tuple[int, Future[PutStatus]]]) -> None:
        try:
            self.log.sync()
        except StoreFailed as error:
            for _, future in group:
                future.set_exception(error)
        else:
            for _, future in group:
                future.set_result(PutStatus.PUT_OK)


class Held(Inline):
    """Syncs although the put must not wait."""

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        self.log.sync()
        return PutStatus.PUT_OK


class Forgetful(Inline):
    """Does not flush at close."""

    def close(self) -> None: ...


class Early(Group):
    """Releases a put before the sync returned."""

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        super().submit(end_offset, wait)
        return PutStatus.PUT_OK


class Generous(Group):
    """Releases all waiting puts after a sync, including those it does not cover."""

    def serve(self, group: list[tuple[int, Future[PutStatus]]]) -> None:
        self.log.sync()
        with self.wake:
            late, self.waiting = self.waiting, []
        for _, future in group + late:
            future.set_result(PutStatus.PUT_OK)


class Hopeful(Inline):
    """Ignores a failed sync."""

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        try:
            return super().submit(end_offset, wait)
        except StoreFailed:
            return PutStatus.PUT_OK


class Refusing(Inline):
    """Returns a status that means the message is not in the log."""

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        return PutStatus.SERVICE_NOT_AVAILABLE


class Endless(Inline):
    """Leaves a thread running."""

    def start(self, log: Flushable) -> None:
        super().start(log)
        self.over = threading.Event()
        threading.Thread(target=self.over.wait, args=(5,), daemon=True).start()


class Abandoning(Group):
    """Leaves waiting puts without a status at close."""

    def serve(self, group: list[tuple[int, Future[PutStatus]]]) -> None: ...
