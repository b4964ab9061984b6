"""Appends to a log, and rolls it, during its commits and syncs.

The order of threads is controlled: at a chosen moment of a commit or sync, its thread stops, and
others put messages until the log has rolled. Their bytes are then in the log; whether they wait for
durability, and with which result, continues beside the commit or sync. While queues and index are
flushed, a message is put and dispatched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from random import Random
from threading import Lock, Thread, get_ident
from typing import Any, Final

from lakelog.store.owner import OwnedStore

_MOST_PUTS: Final = 12
"""Limit for one roll: a put may be refused, or another thread may just have started a segment."""
_RECORD_BYTES: Final = 2_000
"""A record exceeds its body by less than this."""
_MOST_SMALL_BYTES: Final = 40
_MOST_FLUSHED: Final = 6
_LOOK_SECONDS: Final = 0.0001


class Interleaving:
    """The interleaving for one open store.

    :param put: puts one message with a body of the given size in bytes
    :param rng: chooses the moments
    :param rolls: largest number of rolls
    :param rolled: called after each roll with the moment, in the committing or syncing thread
    """

    def __init__(
        self,
        owned: OwnedStore,
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
        """Wrap ``call`` with moments before and after it; the file system provides those inside."""

        def watched(*offsets: int) -> Any:
            with self._within(self._roll):
                self.moment(f"before {name}")
                result = call(*offsets)
                self.moment(f"behind {name}")
            return result

        return watched

    @contextmanager
    def _within(self, act: Callable[[str], None]) -> Iterator[None]:
        """Let this thread stop at its next moments, until ``act`` has returned.

        Calls may nest: a thread that waits for queues while these are flushed may commit the log.
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
        """Possibly roll the log now; only in a thread that commits or syncs it.

        A thread that appends holds the append lock, and would wait for itself.
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
        """Within the block, this thread flushes queues or index; at some moments, messages are put.

        :param dispatched: waits until all puts are dispatched
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
        """The bytes left in the active segment."""
        segments = self._segments
        return segments.active_offset + segments.size_bytes - self._positions.appended

    def _append(self, body_bytes: int) -> None:
        """Start a put, and wait until it is in the log, or has ended without an append."""
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
        """Wait for all puts; raises the exception of the first that failed."""
        while self._threads:
            self._threads.pop().join()
        if self._failures:
            raise self._failures.pop(0)

    @contextmanager
    def still(self) -> Iterator[None]:
        """Within the block, no thread puts and nothing rolls."""
        with self._one_at_a_time:
            self.settle()
            yield
