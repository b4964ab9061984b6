"""The end of the log that copies have acknowledged, in the shared page; puts wait for it.

The process with the services sends the log to copies and stores the words; puts of all processes
wait for them. The words are in machine byte order::

    word 0  copied     end of the bytes that enough copies have acknowledged; never decreases
    word 1  reachable  1 + the end that enough of the connected copies have; 0: too few are
                       connected
    word 2  u32 sequence, changed after each store of the others; u32 not used
"""

from __future__ import annotations

import time
from typing import Final

from lakelog.files.pages.futex import futex

_COPIED: Final = 0
_REACHABLE: Final = 1
_SEQUENCE: Final = 4
_BYTES: Final = 24
_LONGEST_NAP_S: Final = 0.05
_POLL_S: Final = 0.001
_MOST: Final = 0xFFFF_FFFF


class CopiedEnd:
    """The words in one process. Any thread may wait; only one process may publish."""

    def __init__(self, shared: memoryview, at: int) -> None:
        """Use the 24 bytes of ``shared`` at ``at``, a multiple of 8."""
        self._words = shared[at : at + _BYTES].cast("Q")
        self._halves = shared[at : at + _BYTES].cast("I")
        self._futex = futex(shared, at + 4 * _SEQUENCE)

    @property
    def end(self) -> int:
        """End offset of the bytes that enough copies have acknowledged."""
        return self._words[_COPIED]

    @property
    def reachable_end(self) -> int:
        """The end offset that enough of the connected copies have; -1 if too few are connected."""
        return self._words[_REACHABLE] - 1

    def publish(self, reachable_end: int) -> None:
        """Store the end offset that enough of the connected copies have, and wake the waiters.

        :param reachable_end: -1 if too few copies are connected
        """
        words, halves = self._words, self._halves
        words[_COPIED] = max(words[_COPIED], reachable_end)
        words[_REACHABLE] = reachable_end + 1
        halves[_SEQUENCE] = (halves[_SEQUENCE] + 1) & _MOST
        self._futex.wake()

    def wait(self, end_offset: int, timeout_s: float) -> bool:
        """Wait until enough copies have the log up to ``end_offset``; ``False`` on timeout."""
        deadline = time.monotonic() + timeout_s
        while self._words[_COPIED] < end_offset:
            seen = self._halves[_SEQUENCE]
            if self._words[_COPIED] >= end_offset:
                break
            if (left := deadline - time.monotonic()) <= 0:
                return False
            if not self._futex.wait(seen, min(left, _LONGEST_NAP_S)):
                time.sleep(min(left, _POLL_S))
        return True
