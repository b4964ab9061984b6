"""Deletes a topic while calls fail, and tells what all kinds of readers see of it then."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import lakelog
from lakelog import Message, Store
from tests.faults.workload import SEGMENT_BYTES, Tell, why

GONE: Final = "gone"
STAYS: Final = "stays"
QUEUES: Final = 3
IN_A_QUEUE: Final = 30
SETTINGS: Final[Mapping[str, Any]] = {
    "writer": "file",
    "flush": "none",
    "consume-queue": {"file_entries": 10, "ext_enabled": True, "ext_file_size_bytes": 244},
    "hash-index": {"slots": 16, "entries": 400},  # each test copies the files several times
}
"""Every queue has several files of units and of codes."""
WHOLE: Final = {str(queue_id): IN_A_QUEUE for queue_id in range(QUEUES)}
"""By queue, as JSON has it."""


def fill(path: Path) -> None:
    """Make a store with two topics; it is closed."""
    with opened(path) as store:
        for topic in (GONE, STAYS):
            for queue_id in range(QUEUES):
                bodies = [b"%d" % at for at in range(IN_A_QUEUE)]
                store.put_batch(
                    [Message(topic, each, "tag", keys="k", queue_id=queue_id) for each in bodies]
                )
        assert store.wait_dispatched()
        with store.consumer("g", GONE, start="earliest") as consumer:
            consumer.poll(1)
            consumer.commit()


def opened(path: Path, **more: Any) -> Store:
    """The store, as its owner unless ``mode`` says otherwise."""
    return lakelog.open(path, segment_size_bytes=SEGMENT_BYTES, **{**SETTINGS, **more})


def seen(store: Store, topic: str = GONE) -> dict[str, Any]:
    """How many messages of a topic are found: in each queue, and by key."""
    assert (topic in store.topics()) == bool(store.queues(topic))
    queues = {
        each.queue_id: len(list(store.read(topic, each.queue_id))) for each in store.queues(topic)
    }
    found = len(store.query(topic, "k", max_messages=1000))
    return {"queues": {str(queue_id): count for queue_id, count in queues.items()}, "found": found}


def put_anew(store: Store) -> list[int]:
    """Put one message into each queue; their queue offsets."""
    put = [store.put(Message(GONE, b"new", keys="k", queue_id=each)) for each in range(QUEUES)]
    assert store.wait_dispatched()
    return [each.queue_offset for each in put]


def delete(path: Path, _settings: Mapping[str, Any], run: str, tell: Tell) -> None:
    """Delete one of two topics; ``run`` says what follows: ``again``, ``anew`` or nothing."""
    try:
        with opened(path) as store, opened(path, mode="read") as reader:
            tell({"before": seen(reader)})
            tell.arm()
            is_deleted = _delete(store, tell)
            tell({"calls": tell.seen()})
            tell.disarm()
            _look(store, reader, tell, "seen")
            if run == "again" and not is_deleted:
                _delete(store, tell)
            if run == "anew":
                tell({"put": put_anew(store)})
            _look(store, reader, tell, "then")
    except lakelog.LakelogError as error:
        tell({"failed": "rest", "why": why(error)})


def _delete(store: Store, tell: Tell) -> bool:
    try:
        store.delete_topic(GONE)
    except lakelog.LakelogError as error:
        tell({"failed": "delete", "why": why(error)})
        return False
    tell({"deleted": True})
    return True


def _look(store: Store, reader: Store, tell: Tell, word: str) -> None:
    with opened(store.path, mode="read") as another:
        for name, each in (("owner", store), ("reader", reader), ("another", another)):
            tell({word: seen(each), "by": name, "stays": seen(each, STAYS)})
