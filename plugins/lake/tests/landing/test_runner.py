"""The pace of passes: at once where more is there, else some time apart."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from threading import Event

import attrs
import pytest

from lakelog_lake.errors import WorkerLost
from lakelog_lake.landing.dispatcher import Landed
from lakelog_lake.landing.runner import stopped_by_signals, until_stopped

LANDED = Landed(0, 10, 1, 1, 0, won=True)
MORE = attrs.evolve(LANDED, is_more=True)


@attrs.define
class Life:
    """Passes and what they find, and the time, which stands still but for sleeps."""

    finds: Iterator[Landed | Exception | None]
    stop: Event = attrs.Factory(Event)
    now: float = 100.0
    did: list[str] = attrs.Factory(list)

    def one_pass(self) -> Landed | None:
        found = next(self.finds, self)
        if found is self:
            self.stop.set()
            return None
        self.did.append("pass")
        self.now += 1
        if isinstance(found, Exception):
            raise found
        assert not isinstance(found, Life)
        return found

    def sleep(self, seconds: float) -> None:
        self.did.append(f"sleep {seconds:g}")

    def for_more(self) -> None:
        if not self.stop.is_set():
            self.did.append("wait")


@pytest.mark.parametrize(
    ("finds", "did"),
    [
        ([MORE, MORE, LANDED], ["pass", "pass", "pass", "sleep 4"]),
        ([LANDED, None, LANDED], ["pass", "sleep 4", "pass", "wait", "pass", "sleep 4"]),
        ([None, None], ["pass", "wait", "pass", "wait"]),
        (
            [WorkerLost(), WorkerLost(), LANDED, WorkerLost()],
            ["pass", "sleep 10", "pass", "sleep 20", "pass", "sleep 4", "pass", "sleep 10"],
        ),
    ],
)
def test_when_passes_begin(
    finds: list[Landed | Exception | None], did: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(iter(finds))
    monkeypatch.setattr(time, "monotonic", lambda: life.now)
    until_stopped(life.one_pass, life.stop, 5, lambda _: None, lambda *_: None, life)
    assert life.did == did


def dear(*seconds: float) -> list[Landed | Exception | None]:
    return [attrs.evolve(LANDED, commit_seconds=each) for each in seconds]


@pytest.mark.parametrize(
    ("seconds", "pauses"),
    [
        ([0.9, 1.0], [4, 4]),
        ([2, 2, 3], [9, 9, 9]),
        ([9, 1], [29, 4]),
        ([2, *[0.1] * 8, *[4] * 8], [9, *[4] * 15, 19]),
        ([0.5, 50], [4, 4]),
    ],
)
def test_passes_begin_further_apart_where_commits_are_dear(
    seconds: list[float],
    pauses: list[int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not for one slow commit, and no more than 30 seconds."""
    life = Life(iter(dear(*seconds)))
    monkeypatch.setattr(time, "monotonic", lambda: life.now)
    until_stopped(life.one_pass, life.stop, 5, lambda _: None, lambda *_: None, life)
    assert life.did == [what for each in pauses for what in ("pass", f"sleep {each}")]
    assert ("s apart" in caplog.text) is (max(pauses) >= 9)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_while_it_begins_to_wait_stops_it(number: signal.Signals) -> None:
    """The event's lock is held then: to take it in the handler would wait for ever."""
    with stopped_by_signals() as stop:
        with stop._cond:  # type: ignore[attr-defined]  # as Event.wait does, for a moment
            signal.raise_signal(number)
        assert stop.wait(60)
