"""Starts producers and dispatchers in processes of their own, and kills dispatchers."""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from uuid import uuid4

import attrs

from plugins.lake.tests.landing import producer, program
from tests.support.waiting import until
from tests.support.working import working

LONGEST_SECONDS = 60
_STEP_SECONDS = 0.0001
_log = logging.getLogger(__name__)


def producing(store: Path) -> AbstractContextManager[list[str]]:
    """A producer in a process of its own, which stops cleanly at the end."""
    return working([sys.executable, producer.__file__, str(store)], LONGEST_SECONDS)


@attrs.frozen
class Running:
    """A dispatcher that was started."""

    process: BaseProcess
    pipe: Connection
    errors: Path

    def hear(self, word: str) -> bool:
        """Wait until it says ``word``; ``False`` if it came to its end first."""
        while self.pipe.poll(LONGEST_SECONDS):
            try:
                if self.pipe.recv() == word:
                    return True
            except EOFError:
                return False
        raise AssertionError(f"it never says {word!r}")

    def stop(self) -> Counter[str]:
        """End one that follows; what it says of its passes."""
        self.pipe.send("stop")
        assert self.pipe.poll(LONGEST_SECONDS), "it hangs"
        passes: Counter[str] = self.pipe.recv()
        return passes

    def kill(self) -> None:
        self.process.kill()

    def signal(self, number: int) -> None:
        """Nothing if it has ended."""
        assert self.process.pid is not None
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def wait(self) -> int:
        """Its return code; that of a dispatcher that ends by an error fails the test."""
        self.process.join(LONGEST_SECONDS)
        code = self.process.exitcode
        assert code in (0, -signal.SIGKILL), self.errors.read_text() if code else "it hangs"
        assert code is not None
        return code


def start(orders: program.Orders) -> Running:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([program.__name__, "pyiceberg.catalog.sql", "deltalake"])
    ours, theirs = context.Pipe()
    errors = orders.store.with_name(f"errors-{uuid4().hex}")
    process = context.Process(target=program.run, args=(orders, theirs, errors), daemon=True)
    process.start()
    theirs.close()
    return Running(process, ours, errors)


def race(
    orders: program.Orders, landed_to: Callable[[], object], seconds: float
) -> tuple[list[int], list[int]]:
    """Let two follow one store beside a producer; passes that each of them won, and lost."""
    with producing(orders.store):
        pair = [start(orders) for _ in range(2)]
        assert all(each.hear("ready") for each in pair)
        time.sleep(seconds)
        until(landed_to, "nothing lands", seconds=LONGEST_SECONDS)
        passes = [each.stop() for each in pair]
        assert [each.wait() for each in pair] == [0, 0]
    _log.info("%s: %s", orders.table, [dict(each) for each in passes])
    return [each["won"] for each in passes], [each["lost"] for each in passes]


def kill_at(orders: program.Orders) -> bool:
    """Kill a dispatcher that has come to a point and stays there; whether it came there."""
    running = start(orders)
    if running.hear("here"):
        running.kill()
    return running.wait() != 0


def kill_sometime(orders: program.Orders, longest_seconds: float) -> bool:
    """Kill one at any time after its start."""
    running = start(orders)
    assert running.hear("ready")
    time.sleep(random.uniform(0, longest_seconds))
    running.kill()
    return running.wait() != 0


def kill_committing(orders: program.Orders, longest_seconds: float) -> bool:
    """Kill one at any time after the start of a commit."""
    running = start(orders)
    if running.hear("committing"):
        time.sleep(random.uniform(0, longest_seconds))
        running.kill()
    return running.wait() != 0


def kill_when(orders: program.Orders, happens: Callable[[], bool]) -> bool:
    """Kill one whose commit has come to a point that can be seen from outside only.

    It runs in short steps, and stands still while somebody looks.
    """
    running = start(orders)
    if running.hear("committing"):
        while running.process.exitcode is None:
            running.signal(signal.SIGSTOP)
            if happens():
                running.kill()
                break
            running.signal(signal.SIGCONT)
            time.sleep(_STEP_SECONDS)
    return running.wait() != 0
