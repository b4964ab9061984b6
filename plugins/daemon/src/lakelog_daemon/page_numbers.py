"""Numbers of the shared page, for display and monitoring."""

from __future__ import annotations

from typing import Final

from lakelog.files.pages.page_view import PageView
from lakelog.files.pages.shared_page import (
    APPEND_HOLDER,
    APPENDED,
    APPENDER_PID,
    APPENDER_SINCE,
    COMMITTED,
    DISPATCHED,
    FLUSHED,
    HEARTBEAT,
    LIFE_AT,
    MINIMUM,
    RECORDS,
    SEVERAL,
    SYNC_US,
    SYNCS,
)

_NAMED: Final = {
    "appended": APPENDED,
    "committed": COMMITTED,
    "flushed": FLUSHED,
    "dispatched": DISPATCHED,
    "minimum": MINIMUM,
    "syncs": SYNCS,
    "sync_us": SYNC_US,
    "records": RECORDS,
}
"""The words that are shown as numbers."""


def counts(page: PageView) -> dict[str, int]:
    """All positions and counters by name."""
    return {name: page.words[at] for name, at in _NAMED.items()} | {"readable": page.readable}


def heartbeat_ms(page: PageView) -> int:
    """Time of the owner's last heartbeat, in ms since 1970."""
    return page.words[HEARTBEAT]


def appender(page: PageView) -> tuple[int, int] | None:
    """The last appender: process id, and start of its append in ms of the monotonic clock.

    ``None`` while a single process has the store open.
    """
    words = page.words
    return (words[APPENDER_PID], words[APPENDER_SINCE]) if words[SEVERAL] else None


def append_life(page: PageView) -> int | None:
    """The byte of ``lock`` that compiled code in the append section has locked, if any."""
    holder = page.words[APPEND_HOLDER]
    return LIFE_AT + holder if holder else None
