"""Looks at a store after a fault: everything acknowledged is there, and it takes puts again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import lakelog
from lakelog import Store
from tests.faults.workload import SEGMENT_BYTES, body_of, message_of


def check_recovered(path: Path, settings: Mapping[str, Any], acks: Iterable[str]) -> None:
    """Open the store as its owner, which recovers it, and compare it with what was answered."""
    with lakelog.open(path, segment_size_bytes=SEGMENT_BYTES, **settings) as store:
        _check(store, set(acks))
        store.put(message_of("afterwards"))
    with lakelog.open(path, segment_size_bytes=SEGMENT_BYTES, **settings) as store:
        assert store.recovery is not None
        assert store.recovery.clean
        _check(store, {*acks, "afterwards"})


def _check(store: Store, acks: set[str]) -> None:
    assert store.wait_dispatched()
    messages = list(store.scan())
    found = [message.properties["KEYS"] for message in messages]
    assert acks - set(found) == set()
    assert len(found) == len(set(found)), "a message is there twice"
    for key, message in zip(found, messages, strict=True):
        assert bytes(message.body) == body_of(key)
        queued = store.get(message.topic, message.queue_id, message.queue_offset, 1).messages
        assert [each.physical_offset for each in queued] == [message.physical_offset]
