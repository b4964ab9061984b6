"""The messages of all contenders: JSON events of 1 KiB, with a typical compression ratio."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Final

BODY_BYTES: Final = 1024
POOL: Final = 8192
"""Number of different bodies, used in turn: 8 MiB, more than the window of a compressor."""
_WORDS: Final = 4096
_LEAST: Final = 4  # length of a word with its space
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


@cache
def bodies() -> list[bytes]:
    """Return all bodies; the same in every process."""
    source = random.Random(1)
    words = [
        "".join(source.choices(_LETTERS, k=source.randint(_LEAST - 1, 9))) for _ in range(_WORDS)
    ]
    return [_event(source, words) for _ in range(POOL)]


def _event(source: random.Random, words: list[str]) -> bytes:
    event = {
        "id": source.randbytes(16).hex(),
        "user": source.randrange(10**7),
        "amount": round(source.uniform(1, 5000), 2),
        "at": f"2026-11-21T{source.randrange(24):02d}:{source.randrange(60):02d}:00Z",
        "note": "",
    }
    room = BODY_BYTES - len(json.dumps(event))
    event["note"] = " ".join(source.choices(words, k=room // _LEAST + 1))[:room]
    return json.dumps(event).encode()
