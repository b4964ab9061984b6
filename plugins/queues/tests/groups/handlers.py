"""Functions that workers call, which note each step in one file; a new process imports them.

``begin N PID`` is written before a message is handled, ``end N PID`` after it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from lakelog import StoredMessage
from tests.support.waiting import until


def note(notes: Path, word: str, body: object) -> None:
    """Append a line by one write, so that the file has one order of all processes."""
    number = int(bytes(body)) if isinstance(body, bytes | memoryview) else body
    fd = os.open(notes, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.write(fd, f"{word} {number} {os.getpid()}\n".encode())
    os.close(fd)


def lines(notes: Path, word: str) -> list[tuple[int, int]]:
    """Number and process of each line with this word."""
    text = notes.read_text() if notes.exists() else ""
    found = (line.split() for line in text.splitlines())
    return [(int(number), int(pid)) for first, number, pid in found if first == word]


def handle(notes: Path, message: StoredMessage) -> None:
    """Handle a message in a moment."""
    note(notes, "begin", message.body)
    time.sleep(0.002)
    note(notes, "end", message.body)


def handle_batch(notes: Path, messages: Sequence[StoredMessage]) -> None:
    """Note the number of messages, and each."""
    note(notes, "batch", len(messages))
    for each in messages:
        handle(notes, each)


def handle_once_open(notes: Path, gate: Path, message: StoredMessage) -> None:
    """Handle a message after the file ``gate`` has been made."""
    note(notes, "begin", message.body)
    until(gate.exists, seconds=120)
    note(notes, "end", message.body)


async def wait_with_0(gate: Path, message: StoredMessage) -> None:
    """Handle the message ``0`` after the file ``gate`` has been made, and all others at once."""
    while message.body == b"0" and not gate.exists():
        await asyncio.sleep(0.01)


def handle_slowly(notes: Path, seconds: float, message: StoredMessage) -> None:
    """Handle a message for longer than it is invisible."""
    note(notes, "begin", message.body)
    time.sleep(seconds)
    note(notes, "end", message.body)


def hang_at_0(notes: Path, message: StoredMessage) -> None:
    """Never return from message 0."""
    note(notes, "begin", message.body)
    while message.body == b"0":
        time.sleep(60)
    note(notes, "end", message.body)


def fail_at_0(notes: Path, message: StoredMessage) -> None:
    """Raise at each hand-out of message 0, and at the first one of message 1."""
    note(notes, f"begin-of-{message.topic}", message.body)
    if message.body == b"0" or (message.body == b"1" and not message.reconsume_times):
        raise ValueError("a bad message")
    note(notes, "end", message.body)


async def meet(notes: Path, message: StoredMessage) -> None:
    """Return once four calls run at the same time."""
    note(notes, "begin", message.body)
    async with asyncio.timeout(60):
        while len(lines(notes, "begin")) < 4:
            await asyncio.sleep(0.01)
    note(notes, "end", message.body)


async def never(notes: Path, message: StoredMessage) -> None:
    """Never return, but for a cancellation."""
    note(notes, "begin", message.body)
    await asyncio.sleep(3600)


def without_await(notes: Path, message: StoredMessage) -> Coroutine[Any, Any, None]:
    """Return a coroutine, as an ``async def`` behind a decorator does."""
    return meet(notes, message)
