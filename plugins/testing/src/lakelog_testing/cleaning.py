"""A clock that a test advances, and a cleaner that deletes all but the newest segments."""

from __future__ import annotations

import time
from collections.abc import Sequence
from threading import Condition, Event
from typing import Final

import attrs

from lakelog import hooks
from lakelog.hooks.hookspecs import hookimpl

_PATIENCE_SECONDS: Final = 30.0
_AT_ONCE: Final = hooks.DeletionRate(interval_ms=0)
_LOOK_SECONDS: Final = 0.005
"""Polling interval for the event of a waiter, whose setting does not notify the clock."""


class FakeClock(hooks.Clock):
    """Pass it to ``lakelog.open(path, clock=...)``; store times of messages do not use it.

    :param now_ms: initial time in ms since 1970; by default the machine's
    :param instant: whether waits return at once and advance the clock themselves
    """

    def __init__(self, now_ms: int | None = None, *, instant: bool = False) -> None:
        self._now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        self._passed_ms = 0
        self._instant = instant
        self._waiting: list[int] = []
        self._waits = 0
        self._changed = Condition()

    def now_ms(self) -> int:
        """The clock's time."""
        return self._now_ms

    def monotonic_ms(self) -> int:
        """The time by which it was advanced; :meth:`set_back` does not count."""
        return self._passed_ms

    def wait(self, stop: Event, ms: int) -> bool:
        """Wait until the clock was advanced by ``ms`` in total, or ``stop`` is set."""
        if self._instant:
            self.advance(ms)
            return stop.is_set()
        with self._changed:
            due = self._passed_ms + ms
            self._waiting.append(due)
            self._waits += 1
            self._changed.notify_all()
            while self._passed_ms < due and not stop.is_set():
                self._changed.wait(_LOOK_SECONDS)
            self._waiting.remove(due)
            return stop.is_set()

    def advance(self, ms: int) -> None:
        """Advance the clock, and wake waits that are due."""
        with self._changed:
            self._passed_ms += ms
            self._now_ms += ms
            self._changed.notify_all()

    def set_back(self, ms: int) -> None:
        """Set the time back, as an operator may; waits are unaffected."""
        self._now_ms -= ms

    def advance_and_settle(self, ms: int) -> None:
        """Advance until the one waiting thread has done all due work, and waits again.

        The clock advances from wait to wait, so that no round is skipped. Raises ``TimeoutError``
        if no thread waits.
        """
        target = self._passed_ms + ms
        waits = 0
        while (due := self._next_due(waits)) <= target:
            waits = self._waits
            self.advance(due - self._passed_ms)
        self.advance(target - self._passed_ms)

    def _next_due(self, waits: int) -> int:
        """The end of a wait that is there, and that began after ``waits`` others."""
        with self._changed:
            has_begun = self._changed.wait_for(
                lambda: bool(self._waiting) and self._waits > waits, _PATIENCE_SECONDS
            )
            if not has_begun:
                raise TimeoutError("no thread waits for the clock")
            return self._waiting[0]


@attrs.define(eq=False)
class SurplusCleaner:
    """Use it with ``lakelog.open(path, plugins=[SurplusCleaner()], cleaner="surplus")``.

    :ivar keep: number of the newest sealed segments to keep
    :ivar forced: whether segments in use are deleted too
    """

    keep: int = 0
    pace: hooks.DeletionRate = _AT_ONCE
    remove_empty_queues: bool = False
    forced: bool = False

    def choose(
        self,
        segments: Sequence[hooks.SegmentInfo],
        situation: hooks.CleaningContext,  # noqa: ARG002  # required by Cleaner
    ) -> Sequence[hooks.Deletion]:
        """All but the newest, regardless of disks and clock."""
        surplus = segments[: max(0, len(segments) - self.keep)]
        return [hooks.Deletion(each.start_offset, "surplus", self.forced) for each in surplus]

    @hookimpl
    def lakelog_cleaners(self) -> list[hooks.Factory]:
        """Offer itself."""
        kind, settings = hooks.Kind.CLEANER, hooks.NoSettings
        return [hooks.Factory(kind, "surplus", settings, lambda _section, _context: self)]
