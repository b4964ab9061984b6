"""Looks at a store after a fault: everything acknowledged is there, and it takes puts again."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from lakelog import Store, StoredMessage
from lakelog.errors import StoreError
from lakelog.recovery.report import RecoveryReport
from tests.faults.conftest import Outcome
from tests.faults.workload import SEGMENT_BYTES, TOPIC, body_of, message_of

DURABLE: Final = ("inline", "group-commit")
"""Flush strategies with which what was acknowledged outlasts anything."""
IN_PAGE_CACHE: Final = ("file", "mmap")
"""Writers with which it outlasts the death of the process, whatever the flush strategy."""


def kept(outcome: Outcome, settings: Mapping[str, Any], *, power_cut: bool = False) -> set[str]:
    """Keys that must be there after what ``outcome`` tells of."""
    if settings["flush"] in DURABLE or outcome.has("closed"):
        return set(outcome.acks)
    if settings["writer"] in IN_PAGE_CACHE and not power_cut:
        return set(outcome.acks)
    flushed = max((event["flushed"] for event in outcome.events if "flushed" in event), default=0)
    return {str(event["ack"]) for event in outcome.told("ack") if event["end"] <= flushed}


def check_recovered(
    path: Path,
    settings: Mapping[str, Any],
    keys: Iterable[str],
    look: Callable[[], None] = lambda: None,
) -> list[str]:
    """Open the store as its owner, which recovers it, and compare it with what must be there.

    :param look: looks at it once it is recovered, before anything is put
    :return: all keys that are there, in the log's order
    """
    must = set(keys)
    with opened(path, settings) as store:
        before = _check(store, must)
        look()
        store.put(message_of("afterwards"))
    with opened(path, settings) as store:
        assert _report(store).clean
        after = _check(store, {*must, "afterwards"})
    assert after == [*before, "afterwards"]
    return before


def keys_of(path: Path, settings: Mapping[str, Any]) -> list[str]:
    """The keys in a store, checked, by opening it as its owner."""
    with opened(path, settings) as store:
        return _check(store, set())


def places_of(path: Path, settings: Mapping[str, Any]) -> dict[str, int]:
    """Keys and where they stand, in the log's order, by opening it as its owner."""
    with opened(path, settings) as store:
        return {str(each.properties["KEYS"]): each.physical_offset for each in _messages(store)}


def opened(path: Path, settings: Mapping[str, Any]) -> Store:
    return lakelog.open(path, segment_size_bytes=SEGMENT_BYTES, **settings)


def _report(store: Store) -> RecoveryReport:
    assert store.recovery is not None
    return store.recovery


def _check(store: Store, must: set[str]) -> list[str]:
    """Keys in the log's order; each is there once, and a queue knows it."""
    assert store.wait_dispatched()
    messages = _messages(store)
    found = [str(message.properties["KEYS"]) for message in messages]
    assert must - set(found) == set()
    assert len(found) == len(set(found)), "a message is there twice"
    for key, message in zip(found, messages, strict=True):
        assert bytes(message.body) == body_of(key)
    _check_queues(store, {(each.queue_id, each.physical_offset) for each in messages})
    return found


def _messages(store: Store) -> list[StoredMessage]:
    return [each for each in store.scan() if each.topic == TOPIC]


def _check_queues(store: Store, placed: set[tuple[int, int]]) -> None:
    queued = set[tuple[int, int]]()
    for queue in store.queues(TOPIC) if TOPIC in store.topics() else ():
        at = queue.min_offset
        while at < queue.max_offset:
            found = store.get(TOPIC, queue.queue_id, at, 1000)
            queued |= {(queue.queue_id, each.physical_offset) for each in found.messages}
            assert found.next_offset > at
            at = found.next_offset
    assert queued == placed


def takes_direct(folder: Path) -> bool:
    """Whether the writer ``direct`` works on the file system of ``folder``."""
    settings = {"writer": "direct", "flush": "none"}
    with tempfile.TemporaryDirectory(dir=folder) as place:
        try:
            opened(Path(place, "store"), settings).close()
        except StoreError:
            return False
    return True


def need_direct(settings: Mapping[str, Any], folder: Path) -> None:
    """Skip the test where its writer ``direct`` does not work."""
    if settings["writer"] == "direct" and not takes_direct(folder):
        pytest.skip("the file system of the temporary folder takes no O_DIRECT")
