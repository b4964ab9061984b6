"""Stores to read, and the rows that they should give."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lakelog
from lakelog import Message, StoredMessage
from lakelog.format.layout import COMPRESSED, segment_name

SEGMENT = 16 << 10
_SMALL = {
    "flush": "none",
    "segment_size_bytes": SEGMENT,
    "preallocate": False,
    "consume-queue.file_entries": 1_000,
    "hash-index.slots": 1_000,
    "hash-index.entries": 4_000,
}
"""Its files are small: those of the usual size take longer to copy than all else of a test."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def open_small(path: Path, **more: Any) -> lakelog.Store:
    return lakelog.open(path, **{**_SMALL, **more})


def filled(path: Path, count: int, **more: Any) -> Path:
    """Put so many messages into a store, which is made if need be; they are durable then."""
    with open_small(path, **more) as store:
        store.put_batch(list(messages(count)))
    return path


def overwrite(path: Path, offset: int, data: bytes) -> None:
    """Change bytes of a log whose segments are small; ``offset`` is physical."""
    with (path / "commitlog" / segment_name(offset // SEGMENT * SEGMENT)).open("r+b") as file:
        os.pwrite(file.fileno(), data, offset % SEGMENT)


def damaged(path: Path, number: int) -> int:
    """Spoil the magic number of the message with this number; its physical offset."""
    with lakelog.open(path, mode="read") as store:
        offset = list(store.scan())[number].physical_offset
    overwrite(path, offset + 4, b"!")
    return offset


def mislabelled(path: Path, bodies: Sequence[bytes], *wrong: int) -> list[int]:
    """Put whole records of which some say wrongly that their bodies are zlib's; all offsets."""
    with open_small(path) as store:
        done = store.put_batch([Message("t", body, queue_id=0) for body in bodies])
    for each in wrong:
        overwrite(path, done[each].physical_offset + 36, COMPRESSED.to_bytes(4, "big"))
    return [each.physical_offset for each in done]


def messages(count: int) -> Iterator[Message]:
    """Messages that differ in everything that a row shows."""
    for number in range(count):
        yield Message(
            f"topic-{number % 3}",
            bytes([number % 256]) * (number % 500),
            tags=f"tag-{number % 5}" if number % 2 else None,
            keys=[f"key-{number}", "all"] if number % 4 else None,
            properties={"UNIQ_KEY": f"{number:032X}", "number": str(number), "wort": "süß"},
            queue_id=number % 4,
            flag=number - 10,
            born_timestamp_ms=1_700_000_000_000 + number,
            born_host="[2001:db8::1]:80" if number % 7 == 0 else "10.0.0.1:1234",
            reconsume_times=number % 3,
        )


def expected_rows(stored: Iterable[StoredMessage], store: str) -> list[dict[str, Any]]:
    """The rows of messages, made one by one."""
    return [_row(each, store) for each in stored]


def _row(each: StoredMessage, store: str) -> dict[str, Any]:
    return {
        "store": store,
        "topic": each.topic,
        "queue_id": each.queue_id,
        "queue_offset": each.queue_offset,
        "physical_offset": each.physical_offset,
        "store_size": each.size,
        "message_id": each.message_id,
        "unique_key": each.unique_key,
        "tags": each.tags,
        "keys": each.keys,
        "properties": each.properties,
        "body": each.body,
        "body_crc": each.body_crc - (1 << 32) * (each.body_crc >> 31),
        "flag": each.flag,
        "sys_flag": each.sys_flag,
        "transaction_type": each.transaction.name,
        "born_timestamp": _time(each.born_timestamp_ms),
        "born_host": each.born_host,
        "store_timestamp": _time(each.store_timestamp_ms),
        "store_host": each.store_host,
        "reconsume_times": each.reconsume_times,
        "prepared_transaction_offset": each.prepared_transaction_offset,
    }


def _time(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)


def milliseconds(when: datetime) -> int:
    """A row's time in ms since 1970."""
    return (when - _EPOCH) // timedelta(milliseconds=1)
