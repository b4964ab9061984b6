"""Keeps one process running for as long as that is wanted: starts it, listens, starts it again.

All of it happens in one thread, since the system kills the process when the thread ends that
started it.
"""

from __future__ import annotations

import logging
import os
import select
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Condition, Thread
from typing import Final, Protocol

from lakelog.errors import ThreadNotStarted
from lakelog.runtime.forks import tell_of_forks
from lakelog.runtime.threads import started
from lakelog.services.channel import KIND, Packet
from lakelog.services.process import Process

_LOG: Final = logging.getLogger("lakelog")
HANG_SECONDS: Final = 10.0
"""A process of which nothing was heard for so long is killed, and started again."""
STOP_SECONDS: Final = 60.0
"""How long a process may take to stop in order; it may have much to sync."""
END_SECONDS: Final = 5.0
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 10.0
_CALM_SECONDS: Final = 10.0
"""Who has run for so long is started again at once."""
MANY_DEATHS: Final = 5


class Heeds(Protocol):
    """Whom a supervisor tells."""

    def started(self, process: Process) -> None:
        """A process runs."""

    def heard(self, process: Process, packet: Packet) -> None:
        """It said something."""

    def ended(self, process: Process, *, unasked: bool) -> None:
        """It is gone."""


class Supervisor:
    """One process, and the thread that looks after it.

    :ivar deaths: how often in a row it died before it was ready
    :ivar last_words: why it died last
    :ivar process: the one that runs now
    """

    def __init__(self, start: Callable[[], Process], heeds: Heeds, name: str) -> None:
        self.deaths = 0
        self.last_words = ""
        self.process: Process | None = None
        self._start = start
        self._heeds = heeds
        self._name = name
        self._wanted = False
        self._finish = False
        self._starting = False
        self._ending = False
        self._due = 0.0
        self._begun = 0.0
        self._heard = 0.0
        self._told = 0.0
        self._changed = Condition()
        self._kick = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = Thread(target=self._run, name=f"lakelog-{name}", daemon=True)
        tell_of_forks(self)

    def begin(self) -> None:
        """Start the thread, and with it the process."""
        self._wanted = True
        try:
            started(self._thread)
        except ThreadNotStarted:
            self._close_kick()
            raise

    def want(self, wanted: bool, *, finish: bool = False) -> None:
        """Let it run, or stop in order."""
        with self._changed:
            self._wanted, self._finish = wanted, finish
            if wanted:
                self._due = 0.0
        self._rouse()

    def wait_stopped(self) -> None:
        """Until it is gone, in order or killed; to be called once it is not wanted any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped() or not self._thread.is_alive())

    def _is_stopped(self) -> bool:
        return self.process is None and not self._starting

    def end(self) -> None:
        """End the thread; a process that still runs is stopped, as it was told if it was."""
        self.want(False, finish=self._finish)
        self._ending = True
        self._rouse()
        if self._thread.is_alive():
            self._thread.join()
        self._close_kick()

    def ready(self) -> None:
        """It has come so far that what it died of before counts no more."""
        self.deaths = 0

    def forked(self) -> None:
        """Let go in a forked child: else the process would not see its owner end."""
        process = self.process
        if process is not None:
            process.channel.close()
        self._close_kick()

    def _close_kick(self) -> None:
        kick, self._kick = self._kick, -1
        if kick >= 0:
            os.close(kick)

    def _rouse(self) -> None:
        with suppress(OSError):
            os.eventfd_write(self._kick, 1)

    # --- the thread ---

    def _run(self) -> None:
        while self.process is not None or not self._ending:
            try:
                self._turn()
            except Exception:  # noqa: BLE001  # nothing may end this thread but the owner
                _LOG.exception("the %s process cannot be looked after", self._name)
                time.sleep(_FIRST_PAUSE_S)

    def _turn(self) -> None:
        process = self.process
        if process is None:
            self._start_or_wait()
            return
        if not self._wanted and not process.told_to_stop:
            process.stop(finish=self._finish)
            self._told = time.monotonic()
        self._listen(process)

    def _start_or_wait(self) -> None:
        left = self._due - time.monotonic() if self._wanted else None
        if left is not None and left <= 0:
            self._started()
        else:
            self._await(None, left)

    def _started(self) -> None:
        with self._changed:
            if not self._wanted:  # any more
                return
            self._starting = True
        process: Process | None = None
        try:
            process = self._start()
        except OSError as error:
            self._died(f"it cannot be started: {error}")
        finally:
            self._has_started(process)
        if process is not None:
            self._heeds.started(process)

    def _has_started(self, process: Process | None) -> None:
        self._begun = self._heard = time.monotonic()
        with self._changed:
            self.process, self._starting = process, False
            self._changed.notify_all()

    def _listen(self, process: Process) -> None:
        if not self._await(process, self._patience(process)):
            if self._patience(process) <= 0:
                self._give_up(process)
            return
        packet = process.channel.receive()
        if packet is None:
            self._gone(process, process.end(END_SECONDS))
            return
        self._heard = time.monotonic()
        self._heed(process, packet)

    def _heed(self, process: Process, packet: Packet) -> None:
        if packet.get(KIND) == "closed":
            process.said_closed, process.error = True, packet.get("error")
        elif packet.get(KIND) == "ready":
            self.ready()
        self._heeds.heard(process, packet)

    def _patience(self, process: Process) -> float:
        """How many seconds more we wait for a word of it."""
        now = time.monotonic()
        left = self._heard + HANG_SECONDS - now
        return min(left, self._told + STOP_SECONDS - now) if process.told_to_stop else left

    def _await(self, process: Process | None, timeout_s: float | None) -> bool:
        """Wait for a word of the process, or a wish of ours; whether there is a word."""
        poll = select.poll()
        poll.register(self._kick, select.POLLIN)
        if process is not None:
            poll.register(process.channel.fileno(), select.POLLIN)
        found = poll.poll(None if timeout_s is None else max(0, timeout_s) * 1000 + 1)
        with suppress(BlockingIOError):
            os.eventfd_read(self._kick)
        return any(fd != self._kick for fd, _ in found)

    def _give_up(self, process: Process) -> None:
        _LOG.warning(
            "the %s process %d says nothing any more; it is killed", self._name, process.pid
        )
        self._gone(process, process.kill())

    def _gone(self, process: Process, status: int) -> None:
        unasked = not process.told_to_stop
        if unasked:
            self._died(process.error or f"process {process.pid} ended with status {status}")
        self._heeds.ended(process, unasked=unasked)
        with self._changed:
            self.process = None
            self._changed.notify_all()

    def _died(self, words: str) -> None:
        """Note it, and when to try again."""
        calm = time.monotonic() - self._begun >= _CALM_SECONDS
        self.deaths = 1 if calm else self.deaths + 1
        pause = 0.0 if calm else min(_FIRST_PAUSE_S * 2 ** (self.deaths - 1), _LONGEST_PAUSE_S)
        self._due = time.monotonic() + pause
        self.last_words = words
        if self._wanted:
            _LOG.warning("the %s process died (%s); it is started again", self._name, words)
