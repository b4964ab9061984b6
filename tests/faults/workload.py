"""What a process does to a store while a call fails under it; it tells every answer at once.

One JSON line per event, written before the next step: ``{"ack": KEY, ...}`` for a message that was
answered with ``PUT_OK``, ``{"failed": WHAT, ...}`` for one that was not.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import lakelog
from lakelog import Message, PutStatus, Store

Tell = Callable[[Mapping[str, Any]], None]
SEGMENT_BYTES: Final = 8192
TOPIC: Final = "faults"
SIZES: Final = (10, 300, 900, 2500)


def body_of(key: str) -> bytes:
    """The body that goes with a key, so that any reader can check it."""
    choose = random.Random(key)
    return choose.randbytes(choose.choice(SIZES))


def message_of(key: str) -> Message:
    """A message that its key tells all about."""
    return Message(TOPIC, body_of(key), queue_id=len(key) % 2, keys=key)


def put_and_tell(path: Path, settings: Mapping[str, Any], run: str, tell: Tell) -> None:
    """Open, put one by one, in a batch, from threads and in the background; close."""
    try:
        store = lakelog.open(path, segment_size_bytes=SEGMENT_BYTES, **settings)
    except lakelog.LakelogError as error:
        tell({"failed": "open", "why": _why(error)})
        return
    try:
        _put_all(store, run, tell)
    finally:
        _close(store, tell)


def put_until_killed(path: Path, settings: Mapping[str, Any], run: str, tell: Tell) -> None:
    """Open, and put in every way, for as long as the process lives."""
    with lakelog.open(path, segment_size_bytes=SEGMENT_BYTES, **settings) as store:
        tell({"opened": True})
        for again in itertools.count():
            _put_all(store, f"{run}-{again}", tell)


def _put_all(store: Store, run: str, tell: Tell) -> None:
    for at in range(12):
        _put(store, f"{run}-{at}", tell)
    _put_batch(store, [f"{run}-b{at}" for at in range(6)], tell)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda at: _put(store, f"{run}-t{at:03}", tell), range(16)))
    _put_async(store, [f"{run}-a{at}" for at in range(8)], tell)


def _put(store: Store, key: str, tell: Tell) -> None:
    try:
        result = store.put(message_of(key))
    except lakelog.LakelogError as error:
        tell({"failed": key, "why": _why(error)})
    else:
        _answered(key, result.status, tell)


def _put_batch(store: Store, keys: list[str], tell: Tell) -> None:
    try:
        results = store.put_batch([message_of(key) for key in keys])
    except lakelog.LakelogError as error:
        tell({"failed": keys, "why": _why(error)})
    else:
        for key, result in zip(keys, results, strict=True):
            _answered(key, result.status, tell)


def _put_async(store: Store, keys: list[str], tell: Tell) -> None:
    futures = {}
    for key in keys:
        try:
            futures[key] = store.put_async(message_of(key))
        except lakelog.LakelogError as error:
            tell({"failed": key, "why": _why(error)})
    for key, future in futures.items():
        try:
            _answered(key, future.result(30).status, tell)
        except lakelog.LakelogError as error:
            tell({"failed": key, "why": _why(error)})


def _answered(key: str, status: PutStatus, tell: Tell) -> None:
    word = "ack" if status is PutStatus.PUT_OK else "failed"
    tell({word: key, "why": status.name})


def _close(store: Store, tell: Tell) -> None:
    try:
        store.close()
    except lakelog.LakelogError as error:
        tell({"failed": "close", "why": _why(error)})
    else:
        tell({"closed": True})


def _why(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


WORKLOADS: Final = {"once": put_and_tell, "until-killed": put_until_killed}


def as_line(event: Mapping[str, Any]) -> bytes:
    """An event as it goes through a pipe: one write, so that lines of threads do not mix."""
    return json.dumps(event).encode() + b"\n"
