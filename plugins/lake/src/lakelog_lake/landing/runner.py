"""Pass after pass, until there is nothing left or somebody says stop."""

from __future__ import annotations

import logging
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType
from typing import Final, Protocol

import attrs

from lakelog.runtime.signals import soon
from lakelog_lake.errors import MayPass
from lakelog_lake.landing.alive import Alive
from lakelog_lake.landing.dispatcher import Landed
from lakelog_lake.landing.waiting import AppendWaiter

_log = logging.getLogger("lakelog_lake")
_LONGEST_PAUSE_SECONDS: Final = 30.0
_SHARE: Final = 0.2
"""Of the time, for commits."""
_LOOKED_AT: Final = 8
Pass = Callable[[], Landed | None]


def until_done(one_pass: Pass, stop: Event, on_landed: Callable[[Landed], None]) -> bool:
    """Land what is there now; a log that grows faster than it lands never ends this.

    Returns whether nothing was left; ``False`` where ``stop`` ended it before that was known.
    """
    while not stop.is_set():
        landed = one_pass()
        if landed is None:
            return True
        on_landed(landed)
    return False


def until_stopped(
    one_pass: Pass,
    stop: Event,
    interval_seconds: float,
    on_landed: Callable[[Landed], None],
    on_trouble: Callable[[MayPass, float], None],
    waits: LandingWaits | None = None,
) -> None:
    """Land what comes.

    Passes begin ``interval_seconds`` apart, so that messages that trickle in do not make a commit
    each; but at once if it is known that more is there, and if nothing had come for so long. Where
    commits become dear, they begin further apart, see :class:`Spacing`.

    Trouble that may pass ends nothing: ``on_trouble`` is told of it and of the seconds until the
    next try, which become more each time.

    :param waits: sleeps in between; without it, ``interval_seconds`` where nothing is left
    """
    waits, spacing = waits or Pausing(stop, interval_seconds), Spacing(interval_seconds)
    pause = interval_seconds
    while not stop.is_set():
        begun = time.monotonic()
        try:
            landed = one_pass()
        except MayPass as error:
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
    """How far apart passes begin: so that commits take a fifth of the time at most.

    What counts is the fastest one of the last few: a machine that is busy for a moment does not
    make a table slower.
    """

    interval_seconds: float
    _took: deque[float] = attrs.field(factory=lambda: deque(maxlen=_LOOKED_AT))
    _told: float = attrs.field(default=attrs.Factory(lambda self: self.interval_seconds, True))

    def after(self, landed: Landed) -> float:
        """Seconds from the begin of the pass that has ``landed`` to the next one's."""
        self._took.append(landed.commit_seconds)
        most = max(_LONGEST_PAUSE_SECONDS, self.interval_seconds)
        found = min(max(self.interval_seconds, min(self._took) / _SHARE), most)
        if not 1 / 2 < found / self._told < 2:
            self._told = found
            took = min(self._took)
            _log.warning("passes begin %.1f s apart, as a commit takes %.2f s", found, took)
        return found


class LandingWaits(Protocol):
    """How time is passed; each ends when somebody says stop."""

    def sleep(self, seconds: float) -> None:
        """So long; not at all where that is no more than 0."""

    def for_more(self) -> None:
        """Until a pass may find something."""


@attrs.frozen
class Pausing:
    """Looks again and again."""

    stop: Event
    interval_seconds: float

    def sleep(self, seconds: float) -> None:
        """See :class:`LandingWaits`."""
        self.stop.wait(max(seconds, 0))

    def for_more(self) -> None:
        """See :class:`LandingWaits`."""
        self.stop.wait(self.interval_seconds)


@attrs.frozen
class Woken:
    """Sleeps until there is something, and lets somebody know that all is well."""

    stop: Event
    interval_seconds: float
    newcoming: AppendWaiter
    alive: Alive

    def sleep(self, seconds: float) -> None:
        """See :class:`LandingWaits`."""
        self.alive.sleep(self.stop, seconds)

    def for_more(self) -> None:
        """See :class:`LandingWaits`."""
        self.newcoming.wait(self.stop, self.interval_seconds, self.alive)


@contextmanager
def stopped_by_signals() -> Iterator[Event]:
    """An event that SIGTERM and Ctrl-C set: the pass under way is finished first.

    A second one ends the process as usual, which harms nothing.
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
