"""Numbered messages whose every byte is known."""

from __future__ import annotations

from typing import Final

DIGITS: Final = 12
BODY_BYTES: Final = DIGITS * 85


def body_of(number: int) -> bytes:
    """The body of a message, about 1 KiB; `Numbered.java` makes the same."""
    return b"%012d" % number * (BODY_BYTES // DIGITS)


def number_of(body: bytes) -> int | None:
    """The number of a message; ``None`` if any byte is not as it was put."""
    digits = body[:DIGITS]
    return int(digits) if digits.isdigit() and body == body_of(int(digits)) else None
