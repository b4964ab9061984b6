"""Pass after pass, until there is nothing left or somebody says stop."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType
from typing import Final

from lakelog_spark.landing.dispatcher import Landed
from lakelog_spark.landing.errors import MayPass

_LONGEST_PAUSE_SECONDS: Final = 30.0
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
) -> None:
    """Land what comes, looking every ``interval_seconds`` where nothing is left.

    Trouble that may pass ends nothing: ``on_trouble`` is told of it and of the seconds until the
    next try, which become more each time.
    """
    pause = interval_seconds
    while not stop.is_set():
        try:
            until_done(one_pass, stop, on_landed)
            pause = interval_seconds
        except MayPass as error:
            pause = min(2 * pause, max(_LONGEST_PAUSE_SECONDS, interval_seconds))
            on_trouble(error, pause)
        stop.wait(pause)


@contextmanager
def stopped_by_signals() -> Iterator[Event]:
    """An event that SIGTERM and Ctrl-C set: the pass under way is finished first.

    A second one ends the process as usual, which harms nothing.
    """
    stop = Event()
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}

    def set_stop(number: int, _frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, before[signal.Signals(number)])

    for each in before:
        signal.signal(each, set_stop)
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
