"""The positions of a log: the words of the shared page, by name.

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
"""Words of 8 bytes: of the shared page, or of a private list."""

_WORD: Final = (1 << 64) - 1


@attrs.define(slots=True, eq=False)
class Positions:
    """The positions of one store.

    :ivar words: the words of the shared page, where each position is stored
    :ivar asked: the first number is not 0 while another process waits for a position
    :ivar wake: wakes those waiters; called after a position has moved while ``asked`` is set
    :ivar sleeper: wakes a thread of this process; called once after a position has moved, then
        dropped
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
        """Set the positions of a log from ``minimum`` to ``end``, all of it durable.

        :param dispatched: end of the part that is dispatched to queues and index
        :param last_timestamp_ms: store time of the last record, in ms since 1970
        :param durable: whether puts and reads wait until messages are durable
        :param staged: whether bytes reach the page cache by a commit only
        """
        words = self.words
        words[FLAGS] = DURABLE * durable | STAGED * staged
        words[LAST_TIMESTAMP] = words[FLUSHED_TIMESTAMP] = last_timestamp_ms
        words[MINIMUM], words[DISPATCHED] = minimum, dispatched
        words[APPENDED] = words[COMMITTED] = words[FLUSHED] = end

    @property
    def minimum(self) -> int:
        """Offset of the first byte still in the log."""
        return self.words[MINIMUM]

    @minimum.setter
    def minimum(self, offset: int) -> None:
        self.words[MINIMUM] = offset

    @property
    def appended(self) -> int:
        """End of the appended bytes."""
        return self.words[APPENDED]

    @property
    def committed(self) -> int:
        """End of the bytes in the page cache or on disk, where other processes see them."""
        words = self.words
        return words[COMMITTED] if words[FLAGS] & STAGED else words[APPENDED]

    @property
    def flushed(self) -> int:
        """End of the bytes that a completed sync has made durable."""
        return self.words[FLUSHED]

    @property
    def readable(self) -> int:
        """End of the bytes that an appending process reads."""
        words = self.words
        return words[FLUSHED] if words[FLAGS] & DURABLE else words[APPENDED]

    @property
    def readable_elsewhere(self) -> int:
        """End of the bytes that other processes read, and that are dispatched.

        Queues and index must not cover bytes that are not in the log's files yet: after a kill they
        would be ahead of the log.
        """
        return readable_end(self.words)

    @property
    def dispatched(self) -> int:
        """End of the bytes dispatched to queues and index."""
        return self.words[DISPATCHED]

    @dispatched.setter
    def dispatched(self, offset: int) -> None:
        self.words[DISPATCHED] = offset

    @property
    def flushed_timestamp_ms(self) -> int:
        """Store time, in ms since 1970, of a record that is durable with all before it."""
        return self.words[FLUSHED_TIMESTAMP]

    @property
    def is_shared(self) -> bool:
        """Whether other processes append too."""
        return bool(self.words[SEVERAL])

    def count_sync(self, took_us: int) -> None:
        """Count one completed sync and its duration in the shared page."""
        words = self.words
        words[SYNCS] = (words[SYNCS] + 1) & _WORD
        words[SYNC_US] = (words[SYNC_US] + took_us) & _WORD

    def count_records(self, count: int) -> None:
        """Count ``count`` more dispatched records in the shared page."""
        self.words[RECORDS] = (self.words[RECORDS] + count) & _WORD  # the page may be damaged

    def moved(self) -> None:
        """Wake the waiters after a position has moved."""
        sleeper = self.sleeper
        if sleeper is not None:
            try:
                self.sleeper = None
                sleeper()
            except BaseException:  # from a signal handler: the next call wakes the thread
                self.sleeper = sleeper
                raise
        if self.asked[0]:
            self.wake()
