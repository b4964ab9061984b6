"""What a successor wants otherwise than the owner before it: entries of before do not fit it."""

from __future__ import annotations

from typing import Final

from lakelog.attach.hello import Welcome

_IN_RECORDS: Final = ("record_crc", "max_message_size_bytes", "max_light_queues", "store_host")
"""Settings that can make it refuse what was encoded by others."""


def changes(before: Welcome, now: Welcome) -> str:
    """In words, with what to do; nothing where all is as it was."""
    found = [
        f"{name}={getattr(now, name)}"
        for name in _IN_RECORDS
        if getattr(now, name) != getattr(before, name)
    ]
    if not found:
        return ""
    return f"; the owner has {', '.join(found)} now: what was put for the one before, put again"
