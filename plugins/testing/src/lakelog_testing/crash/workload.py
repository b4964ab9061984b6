"""The actions on a store before it crashes: seeded, and recorded in a ledger.

Some of them come during commits and syncs of the log, and roll it: see :class:`Interleaving`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from random import Random
from threading import Lock, Thread, get_ident
from typing import Any, Final

import attrs

from lakelog import Store
from lakelog.errors import LakelogError
from lakelog.format import layout, properties
from lakelog.message import Message
from lakelog.results import PutResult
from lakelog.store.owner import OwnedStore
from lakelog_testing.crash.filesystem import SimFileSystem
from lakelog_testing.crash.ledger import Entry, Ledger
from lakelog_testing.crash.opener import CrashPlan, Opener, owned_by

TOPICS: Final = ("orders", "Müll", "%RETRY%group")
KEYS: Final = (None, "k1", "k2", ("k3", "k4"))
TAGS: Final = (None, "TagA")
_SIZES: Final = ((0, 120), (0, 120), (150, 700), (1000, 2500))
_BATCHES: Final = ((2, 5), (2, 5), (2, 5), (8, 12))
"""Numbers of messages per batch; long batches are appended in pieces, in several segments."""
_LONG_TAG: Final = "T" * 60
_THREADS: Final = (3, 6)
_MOST_ROLLS: Final = 6
"""Largest number of rolls during commits and syncs of one open store."""
CLOSED: Final = "closed"
"""Name of the crash points after a clean close."""
_SEGMENTS: Final = (layout.COMMITLOG_DIR, layout.TMP_DIR)
"""The folders in which segments are opened: created in one, moved to the other."""


@attrs.define
class Workload:
    """Acts on one store below the root of a simulated file system.

    :ivar threads: whether several threads put at once
    :ivar interleave: whether each open store gets an interleaving
    :ivar interleaving: rolls the log during commits and syncs; ``None``: only puts do
    """

    path: Path
    opener: Opener
    system: SimFileSystem
    ledger: Ledger
    rng: Random
    plan: CrashPlan
    threads: bool
    interleave: bool
    interleaving: Interleaving | None = attrs.field(default=None, init=False)

    def run_to_failure(self, steps: int) -> None:
        """Open and act until a sync fails, or to the end."""
        self.system.fail_sync_in = self.rng.choice((_SEGMENTS, _SEGMENTS, ()))
        self.system.fail_sync_at = self.rng.randint(
            1, steps if self.system.fail_sync_in else 3 * steps
        )
        try:
            self.run(steps)
        except (LakelogError, OSError):
            if not self.system.has_failed:
                raise
        self.system.point("after a failure")

    def run(self, steps: int) -> None:
        """Open, act and close, once or twice."""
        sessions = self.rng.choice((1, 2))
        for _ in range(sessions):
            store = self.open()
            try:
                for _ in range(steps // sessions):
                    self.act(store)
            finally:
                self.close(store)

    def open(self) -> Store:
        """Open as the owner."""
        store = self.opener.open(self.path, self.system)
        positions = owned_by(store).positions
        seen = self.ledger.put_is_durable  # messages returned by reads are durable, and must stay
        self.ledger.flushed = lambda: max(  # also while the store is being closed
            positions.flushed, positions.readable if seen else 0
        )
        self.ledger.is_open = True
        if self.interleave:
            self._interleave(store)
        return store

    def _interleave(self, store: Store) -> None:
        rng = Random(self.rng.random())

        def put(body_bytes: int) -> None:
            self._one(store, attrs.evolve(self._message(), body=rng.randbytes(body_bytes)))

        self.interleaving = Interleaving(
            owned_by(store),
            put,
            rng,
            rng.randint(1, _MOST_ROLLS),
            lambda where: self.system.point(f"rolled {where}"),
        )
        self.system.moment = self.interleaving.moment

    def _still(self) -> AbstractContextManager[None]:
        """Keep other threads from putting."""
        return nullcontext() if self.interleaving is None else self.interleaving.still()

    def _meanwhile(self, store: Store) -> AbstractContextManager[None]:
        """Let other threads put while this one flushes queues or index."""
        if self.interleaving is None:
            return nullcontext()
        return self.interleaving.flushing(store.wait_dispatched)

    def close(self, store: Store) -> None:
        """Close; everything that was put is durable afterwards."""
        self.ledger.is_open = False
        try:
            with self._still():
                end = _appended(store)
                store.close()
        finally:
            store.close()
        self.ledger.flushed = lambda: end
        self.system.point(CLOSED, always=True)

    def act(self, store: Store) -> None:
        """One random action of a program."""
        action = self.rng.choices(
            (
                *(self._put, self._put_batch, self._put_async, self._burst, self._flush),
                *(self._delete, self._clean),
            ),
            (
                *(60, 12, 6, 30 if self.threads else 0, 8),
                *(4 if self.plan.deletions else 0, 8 if self.plan.cleaning else 0),
            ),
        )[0]
        action(store)
        if self.interleaving is not None:
            self.interleaving.settle()
        if self.rng.random() < 0.7:
            store.wait_dispatched()

    def _put(self, store: Store) -> None:
        self._one(store, self._message())

    def _one(self, store: Store, message: Message) -> None:
        entries = self.ledger.start([message])
        self._acknowledged(entries, [store.put(message)])

    def _put_batch(self, store: Store) -> None:
        count = self.rng.randint(*self.rng.choice(_BATCHES))
        messages = [self._message() for _ in range(count)]
        # one value for all: a batch waits if any of its messages does
        wait = self.rng.random() < 0.8
        messages = [attrs.evolve(each, wait_store_ok=wait) for each in messages]
        entries = self.ledger.start(messages)
        self._acknowledged(entries, list(store.put_batch(messages)))

    def _put_async(self, store: Store) -> None:
        messages = [self._message() for _ in range(self.rng.randint(2, 5))]
        entries = self.ledger.start(messages)
        futures = [store.put_async(message) for message in messages]
        for entry, future in zip(entries, futures, strict=True):
            self._acknowledged([entry], [future.result()])

    def _burst(self, store: Store) -> None:
        """Put from several threads at once; raises the first exception."""
        threads = range(self.rng.choice(_THREADS))
        work = [[self._message() for _ in range(self.rng.randint(1, 2))] for _ in threads]

        def put(messages: Sequence[Message]) -> None:
            for message in messages:
                self._one(store, message)

        with ThreadPoolExecutor(len(work)) as pool:
            for done in [pool.submit(put, messages) for messages in work]:
                done.result()

    def _acknowledged(self, entries: Sequence[Entry], results: Sequence[PutResult]) -> None:
        self.ledger.finish(entries, results)
        self.system.point("acknowledged")

    def _flush(self, store: Store) -> None:
        """Sync log, queues and index, which otherwise follow their own timers."""
        if self.rng.random() < 0.5:
            store.flush()
        store.wait_dispatched()
        for each in owned_by(store).dispatchers:
            with self._meanwhile(store):
                each.dispatcher.flush()

    def _delete(self, store: Store) -> None:
        store.wait_dispatched()
        # all but this one, which is never removed
        topics = [each for each in store.topics() if each != properties.REPAIRED_TOPIC]
        if topics:
            topic = self.rng.choice(topics)
            with self._still():
                deletion = self.ledger.begin_deletion(topic, _appended(store))
                store.delete_topic(topic)
                self.ledger.end(deletion)
            self.system.point("topic deleted")

    def _clean(self, store: Store) -> None:
        """Run the cleaner; every deleted file is a possible crash point."""
        store.wait_dispatched()
        with self._still():
            cleaning = self.ledger.begin_cleaning()
            try:
                store.delete_expired()
            finally:
                cleaning.minimum = store.min_offset
            self.ledger.end(cleaning)
        self.system.point("cleaned")

    def _message(self) -> Message:
        rng = self.rng
        if self.plan.body_bytes is not None:
            body = rng.randbytes(self.plan.body_bytes)
            wait = rng.random() < 0.8
            return Message(TOPICS[0], body, _LONG_TAG, queue_id=0, wait_store_ok=wait)
        return Message(
            rng.choices(TOPICS, (6, 3, 1))[0],
            rng.randbytes(8) + rng.randbytes(rng.randint(*rng.choice(_SIZES))),
            queue_id=int(rng.random() < 0.2),
            tags=rng.choice(TAGS),
            keys=rng.choice(KEYS) if self.plan.key_bytes is None else "K" * self.plan.key_bytes,
            wait_store_ok=rng.random() < 0.8,
        )


def _appended(store: Store) -> int:
    """End of the log, including puts that did not wait and are not readable yet."""
    return owned_by(store).positions.appended


_MOST_PUTS: Final = 12
"""Limit for one roll: a put may be refused, or another thread may just have started a segment."""
_RECORD_BYTES: Final = 2_000
"""A record exceeds its body by less than this."""
_MOST_SMALL_BYTES: Final = 40
_MOST_FLUSHED: Final = 6
_LOOK_SECONDS: Final = 0.0001


@attrs.define(eq=False)
class Interleaving:
    """Appends to the log of one open store, and rolls it, during its commits and syncs.

    The order of threads is controlled: at a chosen moment of a commit or sync, its thread stops,
    and others put messages until the log has rolled. Their bytes are then in the log; whether they
    wait for durability, and with which result, continues beside the commit or sync. While queues
    and index are flushed, a message is put and dispatched.

    :param put: puts one message with a body of the given size in bytes
    :param rng: chooses the moments
    :param rolls: largest number of rolls
    :param rolled: called after each roll with the moment, in the committing or syncing thread
    """

    _owned: OwnedStore
    _put: Callable[[int], None]
    _rng: Random
    _rolls: int
    _rolled: Callable[[str], None]
    _chance: float = attrs.field(init=False)
    _threads: list[Thread] = attrs.field(factory=list, init=False)
    _failures: list[Exception] = attrs.field(factory=list, init=False)
    _inside: dict[int, Callable[[str], None]] = attrs.field(factory=dict, init=False)
    _one_at_a_time: Lock = attrs.field(factory=Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self._chance, segments = self._rng.choice((0.1, 0.4)), self._owned.segments
        for name in ("commit", "sync"):
            setattr(segments, name, self._around(name, getattr(segments, name)))

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
            if self._rolls > 0 and self._rng.random() < self._chance:
                self._rolls -= 1
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
        segments, start = self._owned.segments, self._owned.segments.active_offset
        if self._rng.random() < 0.7 and self._room() > _RECORD_BYTES:
            self._append(self._rng.randint(0, _MOST_SMALL_BYTES))
        for _ in range(_MOST_PUTS):
            if segments.active_offset != start:
                self._rolled(where)
                return
            self._append(min(self._room(), segments.size_bytes - _RECORD_BYTES))

    def _room(self) -> int:
        """The bytes left in the active segment."""
        segments, positions = self._owned.segments, self._owned.positions
        return segments.active_offset + segments.size_bytes - positions.appended

    def _append(self, body_bytes: int) -> None:
        """Start a put, and wait until it is in the log, or has ended without an append."""
        positions, appended = self._owned.positions, self._owned.positions.appended
        thread = Thread(target=self._try_put, args=(body_bytes,), name="crash-put")
        thread.start()
        self._threads.append(thread)
        while thread.is_alive() and positions.appended == appended:
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
