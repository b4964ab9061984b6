"""Waits until a log is durable up to a place, beside an owner that says so."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lakelog.files.filesystem import FileSystem
from lakelog.files.pages.page_view import PageView
from lakelog.files.pages.wake_page import Sleeper, WakePage

LONGEST_SLEEP_S: Final = 0.5
"""A waking that is lost costs no more than this; who waits for a sync is in no great hurry."""
_FIRST_NAP_S: Final = 0.005
_LONGEST_NAP_S: Final = 0.1
_NOBODY: Final = -1


class FlushWait:
    """For those beside an owner, which wakes them; nothing of the log is read.

    :param page: the shared page to go by now, if any
    """

    def __init__(self, files: FileSystem, path: Path, page: Callable[[], PageView | None]) -> None:
        self._page = page
        self._sleeper = Sleeper(files, path)

    def wait(self, offset: int, timeout_s: float) -> bool:
        """Whether everything before ``offset`` is durable in time.

        ``False`` at once where no living owner says how far it has come, or none any more. Who is
        woken in vain, since positions move that it does not wait for, naps before it asks again.
        """
        end, nap = time.monotonic() + timeout_s, _FIRST_NAP_S
        while True:
            asked = self._sleeper.ask()
            found, left = self._look(), end - time.monotonic()
            if found >= offset or found == _NOBODY or left <= 0:
                return found >= offset
            if asked is not None and self._slept(asked, min(left, LONGEST_SLEEP_S)):
                nap = _FIRST_NAP_S
            else:
                time.sleep(min(nap, left))
                nap = min(2 * nap, _LONGEST_NAP_S)

    def _slept(self, asked: tuple[WakePage, int], seconds: float) -> bool:
        """Whether the time went by; not if we were woken, or cannot sleep there."""
        begun = time.monotonic()
        slept = self._sleeper.sleep(asked, seconds, LONGEST_SLEEP_S)
        return slept and time.monotonic() - begun >= seconds

    def _look(self) -> int:
        page = self._page()
        return _NOBODY if page is None else page.flushed
