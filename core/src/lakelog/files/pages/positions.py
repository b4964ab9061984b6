"""How far a log has come: the words of the shared page, by name.

Every position is an offset in bytes from the start of the log.
``minimum <= dispatched <= readable <= appended`` and ``flushed <= committed <= appended``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import attrs

from lakelog.files.pages.page_view import readable_end
from lakelog.files.pages.shared_page import (
    APPENDED,
    COMMITTED,
    DISPATCHED,
    DURABLE,
    FLAGS,
    FLUSHED,
    FLUSHED_TIMESTAMP,
    LAST_TIMESTAMP,
    MINIMUM,
    RECORDS,
    SEVERAL,
    STAGED,
    SYNC_US,
    SYNCS,
    WORDS,
)

Words: TypeAlias = "memoryview[int] | list[int]"
"""Words of 8 bytes: of a page that other processes see, or of nobody else's."""

_WORD: Final = (1 << 64) - 1


@attrs.define(slots=True, eq=False)
class Positions:
    """The positions of one store.

    :ivar words: of the shared page; who moves a position stores it there
    :ivar asked: its first number is not 0 while somebody in another process waits for a position
    :ivar wake: wakes them; called by who has moved one and finds that
    :ivar sleeper: wakes a thread of this process; called once when a position has moved, then
        forgotten
    """

    words: Words = attrs.field(factory=lambda: [0] * WORDS, repr=False)
    asked: Words = attrs.field(factory=lambda: [0], init=False, repr=False)
    wake: Callable[[], None] = attrs.field(default=lambda: None, init=False, repr=False)
    sleeper: Callable[[], None] | None = attrs.field(default=None, init=False, repr=False)

    def start(
        self,
        minimum: int,
        end: int,
        dispatched: int,
        last_timestamp_ms: int,
        *,
        durable: bool,
        staged: bool = False,
    ) -> None:
        """Begin with a log that holds ``minimum`` to ``end``, all of it durable.

        :param durable: whether puts wait until they are durable, and reads as well
        :param staged: whether bytes reach the page cache only by a commit
        """
        words = self.words
        words[FLAGS] = DURABLE * durable | STAGED * staged
        words[LAST_TIMESTAMP] = words[FLUSHED_TIMESTAMP] = last_timestamp_ms
        words[MINIMUM], words[DISPATCHED] = minimum, dispatched
        words[APPENDED] = words[COMMITTED] = words[FLUSHED] = end

    @property
    def minimum(self) -> int:
        """First byte that is still there."""
        return self.words[MINIMUM]

    @minimum.setter
    def minimum(self, offset: int) -> None:
        self.words[MINIMUM] = offset

    @property
    def appended(self) -> int:
        """End of what was appended."""
        return self.words[APPENDED]

    @property
    def committed(self) -> int:
        """End of what is in the page cache or beyond, where other processes see it."""
        words = self.words
        return words[COMMITTED] if words[FLAGS] & STAGED else words[APPENDED]

    @property
    def flushed(self) -> int:
        """End of what a sync that returned has made durable."""
        return self.words[FLUSHED]

    @property
    def readable(self) -> int:
        """Where reads in the process that appends stop."""
        words = self.words
        return words[FLUSHED] if words[FLAGS] & DURABLE else words[APPENDED]

    @property
    def readable_elsewhere(self) -> int:
        """Where those of other processes stop, queues and index included.

        Those must never know more than the files of the log: a kill would leave them ahead of it.
        """
        return readable_end(self.words)

    @property
    def dispatched(self) -> int:
        """End of what queues and index know."""
        return self.words[DISPATCHED]

    @dispatched.setter
    def dispatched(self, offset: int) -> None:
        self.words[DISPATCHED] = offset

    @property
    def flushed_timestamp_ms(self) -> int:
        """Store time of a message that is durable with all before it; not ahead of ``flushed``."""
        return self.words[FLUSHED_TIMESTAMP]

    @property
    def is_shared(self) -> bool:
        """Whether other processes append as well."""
        return bool(self.words[SEVERAL])

    def count_sync(self, took_us: int) -> None:
        """Let others see that one more sync returned, and how long it took."""
        words = self.words
        words[SYNCS] = (words[SYNCS] + 1) & _WORD
        words[SYNC_US] = (words[SYNC_US] + took_us) & _WORD

    def count_records(self, count: int) -> None:
        """Let others see that ``count`` more records were dispatched."""
        self.words[RECORDS] = (self.words[RECORDS] + count) & _WORD  # whoever has written to it

    def moved(self) -> None:
        """Wake who waits: a position has moved."""
        sleeper = self.sleeper
        if sleeper is not None:
            try:
                self.sleeper = None
                sleeper()
            except BaseException:  # of a signal's handler: the next call wakes it
                self.sleeper = sleeper
                raise
        if self.asked[0]:
            self.wake()
