"""What the programs of these tests put, and how they tell of it.

A message's key is ``PRODUCER-NUMBER``; its queue and its body follow from the key, so that any
process can check what it sees. A producer that was killed comes back under another name.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from lakelog import Message, StoredMessage

TOPIC: Final = "shared"
QUEUES: Final = 2
JOURNALS: Final = "journals"
STORE: Final = "store"
SIZES: Final = (0, 10, 100, 300, 300, 900, 5000)


def key_of(name: str, number: int) -> str:
    return f"{name}-{number}"


def parsed(key: str) -> tuple[str, int]:
    name, _, number = key.rpartition("-")
    return name, int(number)


def body_of(key: str) -> bytes:
    seed = key.encode()
    size = SIZES[zlib.crc32(seed) % len(SIZES)]
    block = hashlib.sha512(seed).digest()
    return (block * (size // len(block) + 1))[:size]


def queue_of(key: str) -> int:
    return zlib.crc32(key.encode()) // len(SIZES) % QUEUES


def message_of(key: str) -> Message:
    return Message(TOPIC, body_of(key), queue_id=queue_of(key), keys=key)


def fault_of(message: StoredMessage) -> str:
    """What is wrong with a message that was read; nothing, or it was never put like this."""
    key = str(message.properties.get("KEYS"))
    if message.topic != TOPIC or message.queue_id != queue_of(key):
        return f"{key} is in {message.topic}/{message.queue_id}"
    return "" if bytes(message.body) == body_of(key) else f"{key} has another body"


@attrs.frozen
class Journal:
    """A file of lines; each is one write, so that a kill leaves whole ones but for the last."""

    path: Path
    descriptor: int

    @classmethod
    def opened(cls, folder: Path, name: str) -> Journal:
        path = folder / JOURNALS / name
        return cls(path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644))

    def tell(self, *words: object) -> None:
        os.write(self.descriptor, (" ".join(map(str, words)) + "\n").encode())


def lines_of(path: Path) -> Iterator[Sequence[str]]:
    """The words of every whole line of a journal."""
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            if line.endswith("\n"):
                yield line.split()
