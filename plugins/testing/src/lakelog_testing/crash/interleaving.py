"""Appends to a log, and rolls it, in the middle of its commits and syncs.

Which thread comes first is not left to chance: at a chosen moment of a commit or a sync, its thread
stands still, and others put messages until the log has rolled. Their bytes are in the log then;
whether they wait for durability, and how that ends, goes on beside the commit or the sync. While
queues and index are flushed, a message is put and dispatched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from random import Random
from threading import Lock, Thread, get_ident
from typing import Any, Final

from lakelog.store.owner import OwnedLog

_MOST_PUTS: Final = 12
"""For one roll: a put that is refused, or a segment that another thread has just begun."""
_RECORD_BYTES: Final = 2_000
"""A record is longer than its body by less than this."""
_MOST_SMALL_BYTES: Final = 40
_MOST_FLUSHED: Final = 6
_LOOK_SECONDS: Final = 0.0001


class Interleaving:
    """Of one store while it is open.

    :param put: puts one message with a body of so many bytes
    :param rng: chooses the moments
    :param rolls: how many rolls there are at most
    :param rolled: called in the thread that commits or syncs, with the moment, after each roll
    """

    def __init__(
        self,
        owned: OwnedLog,
        put: Callable[[int], None],
        rng: Random,
        rolls: int,
        rolled: Callable[[str], None],
    ) -> None:
        self._segments = owned.segments
        self._positions = owned.positions
        self._put = put
        self._rng = rng
        self._left = rolls
        self._chance = rng.choice((0.1, 0.4))
        self._rolled = rolled
        self._threads: list[Thread] = []
        self._failures: list[Exception] = []
        self._inside: dict[int, Callable[[str], None]] = {}
        self._one_at_a_time = Lock()
        for name in ("commit", "sync"):
            setattr(owned.segments, name, self._around(name, getattr(owned.segments, name)))

    def _around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """With moments before and behind; those inside come from the file system."""

        def watched(*offsets: int) -> Any:
            with self._within(self._roll):
                self.moment(f"before {name}")
                result = call(*offsets)
                self.moment(f"behind {name}")
            return result

        return watched

    @contextmanager
    def _within(self, act: Callable[[str], None]) -> Iterator[None]:
        """This thread may stand still at its next moments, until ``act`` has returned.

        Who waits for queues while these are flushed may commit the log: one within the other.
        """
        here, before = get_ident(), self._inside.get(get_ident())
        self._inside[here] = act
        try:
            yield
        finally:
            if before is None:
                del self._inside[here]
            else:
                self._inside[here] = before

    def moment(self, where: str) -> None:
        """Perhaps roll the log now; only in a thread that commits or syncs it.

        A thread that appends holds the append lock, and so would wait for itself.
        """
        act = self._inside.get(get_ident())
        if act is None or not self._one_at_a_time.acquire(blocking=False):
            return
        try:
            if self._left > 0 and self._rng.random() < self._chance:
                self._left -= 1
                act(where)
        finally:
            self._one_at_a_time.release()

    def flushing(self, dispatched: Callable[[], object]) -> AbstractContextManager[None]:
        """While this lasts, this thread flushes queues or index; at some moments, more is put.

        :param dispatched: waits until all that was put is dispatched
        """

        def act(_where: str) -> None:
            for _ in range(self._rng.randint(1, _MOST_FLUSHED)):
                self._append(self._rng.randint(0, _MOST_SMALL_BYTES))
                self._threads[-1].join()
            dispatched()

        return self._within(act)

    def _roll(self, where: str) -> None:
        start = self._segments.active_offset
        if self._rng.random() < 0.7 and self._room() > _RECORD_BYTES:
            self._append(self._rng.randint(0, _MOST_SMALL_BYTES))
        for _ in range(_MOST_PUTS):
            if self._segments.active_offset != start:
                self._rolled(where)
                return
            self._append(min(self._room(), self._segments.size_bytes - _RECORD_BYTES))

    def _room(self) -> int:
        """How many bytes the active segment has left."""
        segments = self._segments
        return segments.active_offset + segments.size_bytes - self._positions.appended

    def _append(self, body_bytes: int) -> None:
        """Start a put, and wait until it is in the log, or has ended without that."""
        appended = self._positions.appended
        thread = Thread(target=self._try_put, args=(body_bytes,), name="crash-put")
        thread.start()
        self._threads.append(thread)
        while thread.is_alive() and self._positions.appended == appended:
            thread.join(_LOOK_SECONDS)

    def _try_put(self, body_bytes: int) -> None:
        try:
            self._put(body_bytes)
        except Exception as error:  # noqa: BLE001  # raised by the thread that waits for this one
            self._failures.append(error)

    def settle(self) -> None:
        """Wait for all puts; raises what the first one that failed raised."""
        while self._threads:
            self._threads.pop().join()
        if self._failures:
            raise self._failures.pop(0)

    @contextmanager
    def still(self) -> Iterator[None]:
        """Nobody puts and nothing rolls, for as long as this lasts."""
        with self._one_at_a_time:
            self.settle()
            yield
