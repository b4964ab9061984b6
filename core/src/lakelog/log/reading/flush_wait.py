"""Waits until another process has made the log durable up to an offset."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lakelog.files.filesystem import FileSystem
from lakelog.files.pages.page_view import PageView
from lakelog.files.pages.wake_page import PageWaiter, WakePage

LONGEST_SLEEP_S: Final = 0.5
"""The longest sleep, which bounds the delay after a lost wake-up."""
_FIRST_NAP_S: Final = 0.005
_LONGEST_NAP_S: Final = 0.1
_NOBODY: Final = -1


class FlushWait:
    """Waits for the syncs of a living owner, which wakes the waiters; does not read the log.

    :param page: returns the current shared page, if any
    """

    def __init__(self, files: FileSystem, path: Path, page: Callable[[], PageView | None]) -> None:
        self._page = page
        self._page_waiter = PageWaiter(files, path)

    def wait(self, offset: int, timeout_s: float) -> bool:
        """Wait until the log is durable up to ``offset``; ``False`` on timeout.

        Also ``False``, at once, if no living owner publishes its positions. A waiter that was woken
        for another position sleeps briefly before it waits again.
        """
        end, nap = time.monotonic() + timeout_s, _FIRST_NAP_S
        while True:
            asked = self._page_waiter.ask()
            found, left = self._look(), end - time.monotonic()
            if found >= offset or found == _NOBODY or left <= 0:
                return found >= offset
            if asked is not None and self._slept(asked, min(left, LONGEST_SLEEP_S)):
                nap = _FIRST_NAP_S
            else:
                time.sleep(min(nap, left))
                nap = min(2 * nap, _LONGEST_NAP_S)

    def _slept(self, asked: tuple[WakePage, int], seconds: float) -> bool:
        """Whether the full time passed; ``False`` if woken early, or if it cannot sleep."""
        begun = time.monotonic()
        slept = self._page_waiter.sleep(asked, seconds, LONGEST_SLEEP_S)
        return slept and time.monotonic() - begun >= seconds

    def _look(self) -> int:
        page = self._page()
        return _NOBODY if page is None else page.flushed
