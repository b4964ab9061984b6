"""The actions on a store before it crashes: seeded, and recorded in a ledger."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from random import Random
from threading import Thread
from typing import Final

import attrs

from lakelog import Store
from lakelog.errors import LakelogError
from lakelog.format.layout import COMMITLOG_DIR, TMP_DIR
from lakelog.format.properties import REPAIRED_TOPIC
from lakelog.message import Message
from lakelog.results import PutResult
from lakelog_testing.crash.filesystem import SimFileSystem
from lakelog_testing.crash.interleaving import Interleaving
from lakelog_testing.crash.ledger import Entry, Ledger
from lakelog_testing.crash.opener import Opener, owned_by
from lakelog_testing.crash.plan import CrashPlan

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
_SEGMENTS: Final = (COMMITLOG_DIR, TMP_DIR)
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
        failures: list[Exception] = []
        threads = range(self.rng.choice(_THREADS))
        work = [[self._message() for _ in range(self.rng.randint(1, 2))] for _ in threads]

        def put(messages: Sequence[Message]) -> None:
            try:
                for message in messages:
                    self._one(store, message)
            except Exception as error:  # noqa: BLE001  # raised by the thread that waits for this one
                failures.append(error)

        started = [Thread(target=put, args=(messages,)) for messages in work]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()
        if failures:
            raise failures[0]

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
        topics = [each for each in store.topics() if each != REPAIRED_TOPIC]
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
