"""Converts strings of sources without types to the values that TOML would give.

Unreadable text is returned unchanged, so that the type check rejects it with a reason.
"""

from __future__ import annotations

from typing import Any, Final

from lakelog.settings.hints import items_of, without_none

_BOOLS: Final = {"true": True, "false": False}


def from_text(text: str, hint: Any) -> object:
    """Convert ``text`` for a field of type ``hint``."""
    bare, optional = without_none(hint)
    if optional and not text:
        return None
    if bare is bool:
        return _BOOLS.get(text.strip().lower(), text)
    if bare in (int, float):
        return _number(text, bare)
    return _items(text) if items_of(bare) else text


def _number(text: str, kind: type[int] | type[float]) -> object:
    try:
        return kind(text)
    except ValueError:
        return text


def _items(text: str) -> tuple[str, ...]:
    """The items of a list separated by commas; empty text is an empty list."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
