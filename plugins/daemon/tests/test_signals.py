"""What a signal's handler asks for happens, whatever the main thread was in the middle of."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from threading import Event
from types import FrameType

import pytest

from lakelog.runtime.signals import soon
from lakelog_daemon import follower

PATIENCE_SECONDS = 60


@pytest.fixture
def former_handlers() -> Iterator[None]:
    numbers = (signal.SIGTERM, signal.SIGINT)
    former = {each: signal.getsignal(each) for each in numbers}
    yield
    for each, handler in former.items():
        signal.signal(each, handler)


def as_in_a_wait(event: Event, number: signal.Signals) -> bool:
    """The signal comes while the main thread holds the lock of ``event``; whether it was set."""
    with event._cond:  # type: ignore[attr-defined]  # as Event.wait does, for a moment
        signal.raise_signal(number)
    return event.wait(PATIENCE_SECONDS)


@pytest.mark.usefixtures("former_handlers")
def test_an_event_is_set_while_its_lock_is_held() -> None:
    event = Event()

    def set_it(_number: int, _frame: FrameType | None) -> None:
        soon(event.set)

    signal.signal(signal.SIGTERM, set_it)
    assert as_in_a_wait(event, signal.SIGTERM)


@pytest.mark.usefixtures("former_handlers")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_follower_is_stopped_while_it_begins_to_wait(number: signal.Signals) -> None:
    assert as_in_a_wait(follower._stopped_by_signals(), number)
