"""Stores with messages, and members of groups on them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs

import lakelog
from lakelog import Delivery, GroupConsumer, Message, Store
from tests.support.waiting import until

QUEUES = 4


def open_store(path: Path, **more: Any) -> Store:
    given = {
        "flush": "none",
        "segment_size_bytes": 1 << 20,
        "preallocate": False,
        "dispatchers": ["consume-queue"],
        **more,
    }
    return lakelog.open(path, **given)


def joined(store: Store, **more: Any) -> GroupConsumer:
    """Return a new member of the group ``g`` of the topic ``t``, which begins with its start."""
    return store.subscribe("g", "t", **{"start": "earliest", **more})


def fill(store: Store, count: int, topic: str = "t", queues: int = QUEUES, **more: Any) -> None:
    """Put messages with the bodies ``b"0"``, ``b"1"`` and so on, in turn into the queues."""
    store.put_batch([Message(topic, b"%d" % n, queue_id=n % queues, **more) for n in range(count)])
    assert store.wait_dispatched()


def put(store: Store, number: int, topic: str = "t", **more: Any) -> None:
    """Put a message with this number as its body; it is in its queue on return."""
    store.put(Message(topic, b"%d" % number, **{"queue_id": 0, **more}))
    assert store.wait_dispatched()


def committed(store: Store, topic: str = "t") -> dict[int, int]:
    """The committed offsets of the group ``g``."""
    return dict(store.groups()["g"][topic])


def bodies(deliveries: Iterable[Delivery]) -> list[int]:
    return [int(bytes(each.message.body)) for each in deliveries]


def drain(*consumers: GroupConsumer, count: int, most: int = 8) -> list[Delivery]:
    """Poll in turn until there are ``count`` messages."""
    found: list[Delivery] = []

    def polled() -> bool:
        for each in consumers:
            found.extend(each.poll(most))
        return len(found) >= count

    until(polled)
    return found


@attrs.define
class Clock:
    """A clock of groups that only a test advances."""

    ms: int = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def set_for(self, *consumers: GroupConsumer) -> None:
        for each in consumers:
            each._access = attrs.evolve(each._access, now_ms=self.now_ms)
