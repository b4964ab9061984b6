"""What a process does to a store while a call fails under it; it tells every answer at once.

One JSON line per event, written before the next step: ``{"ack": KEY, ...}`` for a message that was
answered with ``PUT_OK``, ``{"failed": WHAT, ...}`` for one that was not.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import json
import os
import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from threading import Barrier
from typing import Any, Final

import attrs

import lakelog
from lakelog import Message, PutResult, PutStatus, Store

SPECIAL: Final = {"SHORT": -1, "KILL": -2, "SLOW": -3}
"""Errors that are none of the system, as the shim has them."""
SEGMENT_BYTES: Final = 8192
TOPIC: Final = "faults"
SIZES: Final = (10, 300, 900, 2500)
THREADS: Final = 4
OLD_TOPIC: Final = "old"
OLD_MESSAGES: Final = 6
"""Each fills a segment, so that those who delete these delete nothing that is to stay."""
KEPT_SEGMENTS: Final = 4
BESIDE: Final[Mapping[str, Any]] = {"segment_size_bytes": 1 << 20}
"""With what a store is opened by two processes, of which one has a sync that fails."""
OPEN: Final = "open"
GO: Final = "go"
"""Files beside a store: one has opened it; it may go on."""


@cache
def threads() -> ThreadPoolExecutor:
    """Threads of the test's own, running by now: it is not for them to fail."""
    pool, all_run = ThreadPoolExecutor(THREADS), Barrier(THREADS + 1)
    for _ in range(THREADS):
        pool.submit(all_run.wait)
    all_run.wait()
    return pool


@attrs.define
class Tell:
    """Writes events to a pipe, with how often the fault has struck.

    One event is one write, so that lines of threads do not mix.
    """

    writing: int
    shim: ctypes.CDLL | None = None
    job: dict[str, Any] = attrs.field(factory=dict)

    def __call__(self, event: Mapping[str, Any]) -> None:
        fired = self.shim.fault_fired() if self.shim is not None else 0
        os.write(self.writing, json.dumps({**event, "fired": fired}).encode() + b"\n")

    def arm(self) -> None:
        """Let the fault strike from now on, and count calls from now on."""
        self._arm(self.job["call"])

    def disarm(self) -> None:
        self._arm("none")

    def _arm(self, call: str) -> None:
        if self.shim is not None:
            job = self.job
            error = SPECIAL.get(job["error"]) or getattr(errno, job["error"])
            folder = os.fsencode(os.path.normpath(Path(job["path"], job["below"])))
            self.shim.fault_arm(call.encode(), error, job["nth"], job["forever"], folder)

    def seen(self) -> int:
        """How many calls there were that could have failed."""
        return int(self.shim.fault_seen()) if self.shim is not None else 0

    def struck_log(self) -> int:
        """How often the fault has struck a file of the log by now."""
        return int(self.shim.fault_fired_at_log()) if self.shim is not None else 0


def body_of(key: str) -> bytes:
    """The body that goes with a key, so that any reader can check it."""
    choose = random.Random(key)
    return choose.randbytes(choose.choice(SIZES))


def message_of(key: str, *, wait: bool = True) -> Message:
    """A message that its key tells all about."""
    return Message(TOPIC, body_of(key), queue_id=len(key) % 2, keys=key, wait_store_ok=wait)


def put_all(path: Path, settings: Mapping[str, Any], run: str, tell: Tell) -> None:
    """Open, put one by one, in a batch, from threads and in the background; close."""
    store = opened(path, settings, tell)
    if store is None:
        return
    putting = Putting(store, tell)
    try:
        putting.in_every_way(run)
        putting.once_more_if_failed(run)
    finally:
        _close(store, tell)


def put_until_killed(path: Path, settings: Mapping[str, Any], run: str, tell: Tell) -> None:
    """Open, and put in every way, until the process is killed, or the store fails."""
    store = opened(path, settings, tell)
    if store is None:
        return
    tell({"opened": True})
    putting = Putting(store, tell)
    for again in itertools.count():
        putting.in_every_way(f"{run}-{again}")
        if putting.has_failed:
            break
    _close(store, tell)


def put_while_slow(path: Path, settings: Mapping[str, Any], run: str, tell: Tell) -> None:
    """Some puts wait for a sync that takes seconds, others do not wait."""
    store = opened(path, settings, tell)
    if store is None:
        return
    putting = Putting(store, tell)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(putting.one, f"{run}-w{at}") for at in range(4)]
        for at in range(200):
            putting.one(f"{run}-n{at}", wait=False)
        [each.result() for each in waiting]
    _close(store, tell)


def put_beside(path: Path, settings: Mapping[str, Any], _run: str, tell: Tell) -> None:
    """Open; once told to go on, put until a sync fails, and die of that."""
    store = lakelog.open(path, on_late="return", **settings, **BESIDE)
    path.with_name(OPEN).touch()
    while not path.with_name(GO).exists():
        time.sleep(0.005)
    tell.arm()
    try:
        while True:
            store.put(Message("t", b"beside"))
    except lakelog.LakelogError:
        os.kill(os.getpid(), signal.SIGKILL)


def keep_house(path: Path, settings: Mapping[str, Any], run: str, tell: Tell) -> None:
    """Open; remove a topic, let retention delete segments that hold nothing else, read; close."""
    retention = {"max_segments": KEPT_SEGMENTS, "delete_interval_ms": 0}
    store = opened(path, {**settings, "cleaner": "retention", "retention": retention}, tell)
    if store is None:
        return
    putting = Putting(store, tell)
    try:
        for _ in range(OLD_MESSAGES):
            putting.attempt("old", lambda: store.put(Message(OLD_TOPIC, bytes(SEGMENT_BYTES // 2))))
        for at in range(6):
            putting.one(f"{run}-{at}")
        for what, act in _duties(store).items():
            putting.attempt(what, act)
        putting.one(f"{run}-behind")
        putting.once_more_if_failed(run)
    finally:
        _close(store, tell)


def _remove_old(store: Store) -> None:
    if OLD_TOPIC in store.topics():  # or no put of it was taken
        store.delete_topic(OLD_TOPIC)


def _duties(store: Store) -> Mapping[str, Callable[[], object]]:
    return {
        "dispatch": store.wait_dispatched,
        "group": lambda: store.consumer("group", TOPIC, commit="batch").close(),
        "old topic": lambda: _remove_old(store),
        "expired": store.delete_expired,
        "unused": store.delete_unused_topics,
        "get": lambda: store.get(TOPIC, 0, 0),
        "query": lambda: store.query(TOPIC, "first-1"),
        "scan": lambda: list(store.scan()),
        "flush": store.flush,
        "resume": store.resume_dispatch,
    }


def opened(path: Path, settings: Mapping[str, Any], tell: Tell) -> Store | None:
    """The store, as its owner; or tell why not."""
    try:
        return lakelog.open(path, on_late="return", segment_size_bytes=SEGMENT_BYTES, **settings)
    except lakelog.LakelogError as error:
        tell({"failed": "open", "why": why(error)})
        return None


@attrs.define
class Putting:
    """Puts, and tells each answer: where the log was durable by then, and what was before it.

    :ivar has_failed: whether some put was told that the store has failed
    """

    store: Store
    tell: Tell
    has_failed: bool = False

    def in_every_way(self, run: str) -> None:
        """One by one, in a batch, from threads and in the background."""
        for at in range(10):
            self.one(f"{run}-{at}")
        self._batch([f"{run}-b{at}" for at in range(6)])
        list(threads().map(lambda at: self.one(f"{run}-t{at:03}"), range(12)))
        self._in_background([f"{run}-a{at}" for at in range(8)])

    def one(self, key: str, *, wait: bool = True) -> None:
        begun = self._begin()
        try:
            result = self.store.put(message_of(key, wait=wait))
        except lakelog.LakelogError as error:
            self._failed(key, error, begun)
        else:
            self._answered(key, result, begun)

    def attempt(self, what: str, act: Callable[[], object]) -> None:
        begun = self._begin()
        try:
            act()
        except lakelog.LakelogError as error:
            self._failed(what, error, begun)

    def once_more_if_failed(self, run: str) -> None:
        """A store that has failed refuses a put that waits for no sync too."""
        if self.has_failed:
            self.one(f"{run}-late", wait=False)

    def _batch(self, keys: Sequence[str]) -> None:
        begun = self._begin()
        try:
            results = self.store.put_batch([message_of(key) for key in keys])
        except lakelog.LakelogError as error:
            self._failed(keys, error, begun)
        else:
            for key, result in zip(keys, results, strict=True):
                self._answered(key, result, begun)

    def _in_background(self, keys: Sequence[str]) -> None:
        futures = {}
        for key in keys:
            begun = self._begin()
            try:
                futures[key] = self.store.put_async(message_of(key)), begun
            except lakelog.LakelogError as error:
                self._failed(key, error, begun)
        for key, (future, begun) in futures.items():
            try:
                self._answered(key, future.result(30), begun)
            except lakelog.LakelogError as error:
                self._failed(key, error, begun)

    def _begin(self) -> dict[str, Any]:
        """What goes with the answer to a put that begins now."""
        return {
            "after_failure": self.has_failed,
            "after_strike": bool(self.tell.struck_log()),
            "begun_seconds": time.monotonic(),
        }

    def _answered(self, key: str, result: PutResult, begun: Mapping[str, Any]) -> None:
        word = "ack" if result.status is PutStatus.PUT_OK else "failed"
        self.tell(
            {
                word: key,
                "why": result.status.name,
                "end": result.end_offset,
                "flushed": self.store.flushed_offset,
                **_timed(begun),
            }
        )

    def _failed(
        self, what: str | Sequence[str], error: lakelog.LakelogError, begun: Mapping[str, Any]
    ) -> None:
        self.has_failed = self.has_failed or not self.store.is_writable
        self.tell({"failed": what, "why": why(error), **_timed(begun)})


def _timed(begun: Mapping[str, Any]) -> dict[str, Any]:
    more = {key: value for key, value in begun.items() if key != "begun_seconds"}
    now = time.monotonic()  # the same clock in every process
    return {**more, "seconds": now - begun["begun_seconds"], "told_seconds": now}


def _close(store: Store, tell: Tell) -> None:
    try:
        store.close()
    except lakelog.LakelogError as error:
        tell({"failed": "close", "why": why(error)})
    else:
        tell({"closed": True})


def why(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
