"""The messages: events in JSON of 1 KiB, which compress as events do; every contender has them."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Final

BODY_BYTES: Final = 1024
POOL: Final = 8192
"""So many different bodies, in turn: 8 MiB, more than a compressor looks back in a page."""
_WORDS: Final = 4096
_LEAST: Final = 4  # of a word with its space
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


@cache
def bodies() -> list[bytes]:
    """All different bodies; the same in every process."""
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
