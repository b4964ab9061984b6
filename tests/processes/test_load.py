"""Threads, processes and signals: each call may be ended by an exception of a signal handler.

As :mod:`tests.processes.test_standing`, whose processes are also stopped and killed. The main
thread of each puts and reads, opens and closes, while a timer's handler raises in it; at times the
process has hardly any descriptors. Nothing acknowledged is lost, every process ends by itself, and
the longest wait is printed.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

import lakelog
from lakelog.errors import LakelogError, StoreFailed
from tests.faults.shortage import few_descriptors
from tests.processes.test_standing import ACKED, FAILED, SETTINGS, STRUCK, Member, run

MEAN_S = {"open": 0.3, "close": 0.05}
"""The mean time after which the handler raises: some calls end before; of others it is 4 ms."""


class Interrupted(Exception):
    """Raised by the handler."""


def is_of_handler(error: BaseException | None) -> bool:
    return error is not None and (
        isinstance(error, Interrupted) or is_of_handler(error.__cause__ or error.__context__)
    )


def is_closed(store: lakelog.Store) -> bool:
    store.close()
    return True


class InterruptedMember(Member):
    """Its main thread is interrupted in each call.

    :ivar is_in_call: whether the handler raises; the signal may come later than the timer's end, if
        another thread of the process gets it
    """

    is_in_call = False

    def interrupt(self, *_: object) -> None:
        if self.is_in_call:
            self.is_in_call = False
            raise Interrupted

    def struck(self, what: str, call: Callable[[], object]) -> object:
        """The result; ``None`` after an exception of the handler."""
        after_s = 1e-5 + self.dice.expovariate(1 / MEAN_S.get(what, 0.004))
        try:
            self.is_in_call = True
            signal.setitimer(signal.ITIMER_REAL, after_s)
            try:
                with self.timed(what):
                    return call()
            finally:
                self.is_in_call = False
        except LakelogError:
            raise
        except Exception as error:  # other packages may turn it into theirs
            if not is_of_handler(error):
                raise
            self.note(STRUCK, what)
            return None

    def round(self) -> None:
        signal.signal(signal.SIGALRM, self.interrupt)
        opened = list[lakelog.Store]()
        try:
            # Behind a call with `**` Python 3.11 looks for signals: the store would be lost.
            self.struck(
                "open", lambda: opened.append(lakelog.open(self.folder / "s", settings=SETTINGS))
            )
        except LakelogError:
            time.sleep(0.05)
            return
        if not opened:
            return
        [store] = opened
        until_s = time.monotonic() + self.dice.uniform(0.1, 2)
        with ThreadPoolExecutor(2) as threads:
            others = [threads.submit(self.puts, store, number, until_s) for number in range(2)]
            is_scarce = self.dice.random() < 0.2
            with (
                few_descriptors(self.dice.randrange(8), self.folder) if is_scarce else nullcontext()
            ):
                self.calls(store, until_s)
            for each in others:
                each.result()
        try:
            while not self.struck("close", lambda: is_closed(store)):
                pass
        except LakelogError as error:
            self.note(FAILED, error)

    def get(self, store: lakelog.Store, offset: int) -> None:
        """Each message is at the queue offset that the log states."""
        found = [each.queue_offset for each in store.get("t", 0, offset).messages]
        if found and found != list(range(found[0], found[0] + len(found))):
            self.note(FAILED, "queue offsets", *found)

    def calls(self, store: lakelog.Store, until_s: float) -> None:
        """Call methods of the store in the main thread."""
        number = 0
        while time.monotonic() < until_s:
            number += 1
            body = f"{self.name}.{os.getpid()}.main.{until_s}.{number}"
            message = lakelog.Message("t", body.encode())
            calls: dict[str, Callable[[], object]] = {
                "put": lambda: store.put(message),  # noqa: B023  # it is called in this turn
                "put_async": lambda: store.put_async(message).result(),  # noqa: B023  # it is called in this turn
                "put_batch": lambda: store.put_batch([message]),  # noqa: B023  # it is called in this turn
                "get": lambda: self.get(store, self.dice.randrange(1000)),
                "scan": lambda: next(iter(store.scan()), None),
                "wait_dispatched": lambda: store.wait_dispatched(timeout_ms=100),
            }
            what = self.dice.choice(list(calls))
            try:
                result = self.struck(what, calls[what])
            except StoreFailed as error:
                self.note(FAILED, error)
                return
            except LakelogError:
                time.sleep(0.01)
                continue
            if result is not None and what.startswith("put"):
                self.note(ACKED, body)


@pytest.mark.timeout(300)
def test_some_are_interrupted(tmp_path: Path) -> None:
    run(tmp_path, 3, 8, InterruptedMember)


@pytest.mark.soak
def test_many_are_interrupted_for_long(tmp_path: Path) -> None:
    members = int(os.environ.get("PROCESSES_MEMBERS", "16"))
    run(tmp_path, members, float(os.environ.get("PROCESSES_SECONDS", "600")), InterruptedMember)
