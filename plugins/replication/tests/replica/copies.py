"""Logs of masters, made by a store of lakelog, and replicas of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from lakelog.errors import ReplicaStopped

SEGMENT: Final = 1 << 16


def make_log(path: Path, count: int, *, first: int = 0, body_bytes: int = 700) -> bytes:
    """Append ``count`` messages to the store in ``path``; return the bytes of its log."""
    with lakelog.open(path, segment_size_bytes=SEGMENT) as store:
        for number in range(first, first + count):
            body = number.to_bytes(4) * (body_bytes // 4)
            store.put(lakelog.Message("orders", body, tags=f"t{number % 3}", keys=f"k{number}"))
        end = store.max_offset
    return log_of(path, end)


def log_of(path: Path, end: int | None = None) -> bytes:
    """The bytes of the log in ``path``, from its first segment to ``end``."""
    files = sorted((path / "commitlog").iterdir())
    data = b"".join(file.read_bytes() for file in files)
    return data if end is None else data[: end - int(files[0].name)]


def until(done: Callable[[], bool], timeout_s: float = 60.0, pause_s: float = 0.005) -> None:
    """Wait for a condition; ``pause_s`` is between two looks."""
    end = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(pause_s)


@contextmanager
def replica(path: Path, master: str, **more: Any) -> Iterator[lakelog.Store]:
    """A replica of ``master``, quick to notice things."""
    section = {
        "role": "slave",
        "master": master,
        "vouch": "received",
        "reconnect_interval_ms": 20,
        "sync_interval_ms": 10,
        **more,
    }
    with lakelog.open(
        path,
        mode="replica",
        replicator="rocketmq-ha",
        rocketmq_ha=section,
        segment_size_bytes=SEGMENT,
    ) as store:
        yield store


def bodies(store: lakelog.Store) -> list[bytes]:
    """The bodies of all messages, in the order of the log."""
    return [bytes(each.body) for each in store.scan()]


def queued(store: lakelog.Store) -> dict[tuple[str, int], list[bytes]]:
    """The bodies of each queue, in its order."""
    places = [(each.topic, each.queue_id) for each in store.queues()]
    return {place: [bytes(each.body) for each in store.read(*place)] for place in places}


def failure(store: lakelog.Store) -> BaseException | None:
    """Why the store has failed, if it has."""
    owned = store._owned
    return None if owned is None else owned.health.failure


def synced_end(store: lakelog.Store) -> int:
    """The end of the bytes of a replica that a cut of the power leaves."""
    owned = store._owned
    assert owned is not None
    return owned.log._files.synced


def stopped(path: Path, master: str, **more: Any) -> ReplicaStopped:
    """The error by which a replica stops."""
    with pytest.raises(ReplicaStopped) as found, replica(path, master, **more) as store:
        until(lambda: failure(store) is not None)
    return found.value
