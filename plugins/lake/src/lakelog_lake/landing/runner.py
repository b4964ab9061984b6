"""Runs pass after pass, until nothing is left or a stop is requested.

Systemd's watchdog is notified while landing makes progress: ``WATCHDOG=1`` is sent after each task,
each commit and each check for new messages. A pass of minutes consists of tasks of seconds. So a
service manager can treat a process without notifications for longer as hung.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType
from typing import Final

import attrs

from lakelog.runtime.signals import soon
from lakelog_daemon.notify import READY, STATUS, STOPPING, WATCHDOG, Notifier
from lakelog_lake.errors import TemporaryError
from lakelog_lake.landing.dispatcher import Landed, LandingDispatcher

_BEATS: Final = 3
"""Notifications per watchdog interval."""


@attrs.define
class WatchdogNotifier:
    """Notifies the service manager; to be called after each step of progress, from any thread."""

    _manager: Notifier
    _watchdog_sent_s: float = float("-inf")

    @classmethod
    def of_this_process(cls) -> WatchdogNotifier:
        """Make the notifier for the service manager of the environment, if any."""
        return cls(Notifier.of(os.environ))

    def __call__(self, *_: object) -> None:
        """Report progress; sends at most three notifications per watchdog interval."""
        seconds, now = self._manager.watchdog_seconds, time.monotonic()
        if seconds is not None and now - self._watchdog_sent_s >= seconds / _BEATS:
            self._watchdog_sent_s = now
            self._manager.send(WATCHDOG)

    def ready(self) -> None:
        """Report that startup is complete; the watchdog counts from now on."""
        self._manager.send(READY)
        self()

    def send_status(self, what: str) -> None:
        """Send a status line for users."""
        self._manager.send(STATUS + what)

    def stopping(self) -> None:
        """Report that the process is stopping."""
        self._manager.send(STOPPING)

    def sleep(self, stop: Event, seconds: float) -> None:
        """Wait for ``stop`` for at most ``seconds``, and notify the watchdog meanwhile."""
        end = time.monotonic() + seconds
        longest = (self._manager.watchdog_seconds or seconds) / _BEATS
        while not stop.is_set() and (left := end - time.monotonic()) > 0:
            self()
            stop.wait(min(left, max(longest, 0.01)))


_log = logging.getLogger("lakelog_lake")
_LONGEST_PAUSE_SECONDS: Final = 30.0
_SHARE: Final = 0.2
"""Largest share of the time that commits may take."""
_LOOKED_AT: Final = 8
Pass = Callable[[], Landed | None]


def until_done(one_pass: Pass, stop: Event, on_landed: Callable[[Landed], None]) -> bool:
    """Run passes until one finds no messages, or until ``stop`` is set.

    :returns: ``True`` if no message was left, ``False`` if ``stop`` ended the run before
    """
    while not stop.is_set():
        landed = one_pass()
        if landed is None:
            return True
        on_landed(landed)
    return False


def until_stopped(
    one_pass: Pass,
    on_landed: Callable[[Landed], None],
    on_trouble: Callable[[TemporaryError, float], None],
    waits: LandingWaits,
) -> None:
    """Land messages as they arrive, until the stop of ``waits`` is set.

    Passes begin the interval of ``waits`` apart, so that single messages do not cause one commit
    each. A pass begins at once if further messages are known, or after an idle interval. If commits
    take long, passes begin further apart, see :class:`Spacing`.

    A temporary error does not end the run: ``on_trouble`` is called with the error and with the
    seconds until the next try, which increase each time.
    """
    pause = interval_seconds = waits.interval_seconds
    spacing = Spacing(interval_seconds)
    while not waits.stop.is_set():
        begun = time.monotonic()
        try:
            landed = one_pass()
        except TemporaryError as error:
            pause = min(2 * pause, max(_LONGEST_PAUSE_SECONDS, interval_seconds))
            on_trouble(error, pause)
            waits.sleep(pause)
            continue
        pause = interval_seconds
        if landed is None:
            waits.for_more()
            continue
        on_landed(landed)
        if not landed.is_more:
            waits.sleep(begun + spacing.after(landed) - time.monotonic())


@attrs.define
class Spacing:
    """The time between the starts of passes, so that commits take at most a fifth of the time.

    The fastest of the last few commits counts: a machine that is busy for a moment does not slow
    the table down.
    """

    interval_seconds: float
    _took: deque[float] = attrs.field(factory=lambda: deque(maxlen=_LOOKED_AT))
    _logged_seconds: float = attrs.field(
        default=attrs.Factory(lambda self: self.interval_seconds, True)
    )

    def after(self, landed: Landed) -> float:
        """Seconds from the start of the pass that has ``landed`` to the start of the next."""
        self._took.append(landed.commit_seconds)
        most = max(_LONGEST_PAUSE_SECONDS, self.interval_seconds)
        found = min(max(self.interval_seconds, min(self._took) / _SHARE), most)
        if not 1 / 2 < found / self._logged_seconds < 2:
            self._logged_seconds = found
            took = min(self._took)
            _log.warning("passes begin %.1f s apart, because a commit takes %.2f s", found, took)
        return found


@attrs.frozen
class LandingWaits:
    """Waits between passes, and notifies the watchdog meanwhile; a stop ends each wait early."""

    stop: Event
    interval_seconds: float
    lander: LandingDispatcher
    alive: WatchdogNotifier

    def sleep(self, seconds: float) -> None:
        """Sleep for ``seconds``; return at once if that is 0 or less."""
        self.alive.sleep(self.stop, seconds)

    def for_more(self) -> None:
        """Wait until a pass may find new messages."""
        self.lander.wait(self.stop, self.interval_seconds, self.alive)


@contextmanager
def stopped_by_signals() -> Iterator[Event]:
    """Yield an event that SIGTERM and Ctrl-C set, so that the pass under way is finished first.

    A second signal ends the process as usual, without harm to the tables.
    """
    stop = Event()
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}

    def set_stop(number: int, _frame: FrameType | None) -> None:
        soon(stop.set)
        signal.signal(number, before[signal.Signals(number)])

    for each in before:
        signal.signal(each, set_stop)
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
