"""The positions of a log: words of the shared page, their owner's state, and waits for them.

Every position is an offset in bytes from the start of the log.
``minimum <= dispatched <= readable <= appended`` and ``flushed <= committed <= appended``.

Positions are stored by the code that moves them. At each turn of the watch thread, the owner stores
a heartbeat. Every ``CHECKPOINT_MS`` it also advances the checkpoint to the durable end.

Waiters in other processes set a flag in the wake page, the file ``lakelog/wake``, and are woken.
It is one page of 4,096 bytes, mapped by the owner and by the waiters; it is never synced, and its
content need not survive. Numbers are in machine byte order::

    bytes  0..3    flag        not 0: a process waits. Set by waiters, cleared by wakers
    bytes  4..7    sequence    the futex word; changed by each wake-up
    bytes  8..15   magic       MAGIC; without it the page is ignored
    bytes 16..     zeros

To wait for a position of the shared page, in any language:

1. read the sequence, 2. store 1 in the flag, 3. after a full fence, read the position once more
(x86 may reorder a load before a store), 4. if the position is not reached, call
``futex(&sequence, FUTEX_WAIT, value of step 1, 100 ms)``, not process-private; then repeat.

A process that appends readable bytes, syncs, commits staged bytes, or moves ``dispatched`` checks
the flag; while it is 0, it makes no system call. Otherwise it clears the flag, adds 1 to the
sequence, and wakes all waiters.

Wake-ups can be lost, since several processes store both words without a lock. Hence a waiter
sleeps at most 100 ms (500 ms if a delay does not matter) before it reads the position again, and
correctness does not depend on the page. The owner's heartbeat replaces a damaged or missing page.
A process without write permission polls.

Like every mapped file, it must not be truncated while an owner lives.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final, TypeAlias

import attrs

from lakelog.files.checkpoint import CheckpointKeeper
from lakelog.files.filesystem import FileSystem, read_file
from lakelog.format.layout import OWN_DIR
from lakelog.processes import shared_page
from lakelog.processes.locks import futex
from lakelog.processes.ownership import is_published
from lakelog.processes.shared_page import proof_words, readable_end, sign_page

WAKE_FILE: Final = "wake"

WAKE_BYTES: Final = 4096

FLAG: Final = 0

SEQUENCE: Final = 1

MAGIC: Final = 0x6C6B_6C77_616B_0001
"""The bytes ``lklwak`` and the version, as a number."""

LONGEST_SLEEP_S: Final = 0.1

_MAGIC_BYTE: Final = 8


def wake_path(path: Path) -> Path:
    """The path of the page of the store directory ``path``."""
    return path / OWN_DIR / WAKE_FILE


class WakePage:
    """A mapped wake page, for waiters and wakers; thread-safe.

    :ivar asked: 32-bit words; the first is the flag
    """

    def __init__(self, memory: memoryview, identity: shared_page.Identity | None) -> None:
        self.asked = memory.cast("I")
        self.identity = identity
        self._magic = memory[_MAGIC_BYTE : _MAGIC_BYTE + 8].cast("Q")
        self._futex = futex(memory, 4 * SEQUENCE)

    @classmethod
    def make(cls, files: FileSystem, path: Path) -> WakePage:
        """Create the owner's page, or map the existing one.

        Raises ``OSError`` if it cannot be allocated, and then leaves no new file.
        """
        memory = shared_page.make_mapped(files, wake_path(path), WAKE_BYTES)
        page = cls(memory, shared_page.identity_of(wake_path(path), WAKE_BYTES))
        page.repair()
        return page

    @classmethod
    def open(cls, files: FileSystem, path: Path) -> WakePage | None:
        """Map the page to wait at; ``None`` if it is missing or not writable."""
        target = wake_path(path)
        try:
            memory = shared_page.open_mapped(files, target, WAKE_BYTES, writable=True)
        except OSError:
            return None
        page = None if memory is None else cls(memory, shared_page.identity_of(target, WAKE_BYTES))
        return page if page is not None and page.is_whole else None

    @property
    def is_whole(self) -> bool:
        """Whether its magic number is present."""
        return self._magic[0] == MAGIC

    def is_at(self, path: Path) -> bool:
        """Whether this page is the current file of the store directory ``path``, in full length."""
        return shared_page.identity_of(wake_path(path), WAKE_BYTES) == self.identity

    def repair(self) -> None:
        """Store the magic number if it is missing."""
        if not self.is_whole:
            self._magic[0] = MAGIC

    def wake(self) -> None:
        """Wake all waiters if the flag is set."""
        if not self.asked[FLAG]:
            return
        self.asked[FLAG] = 0
        self.wake_all()

    def wake_all(self) -> None:
        """Wake all waiters, whether the flag is set or not."""
        self._futex.change()
        self._futex.wake()

    def ask(self) -> int:
        """Set the flag; return the sequence read before, the argument ``seen`` of :meth:`sleep`."""
        seen = self._futex.value
        self.asked[FLAG] = 1
        Lock().acquire(blocking=False)  # a fence: the caller's next read must not pass the store
        return seen

    def sleep(self, seen: int, timeout_s: float) -> bool:
        """Sleep until the sequence differs from ``seen``; ``False`` if that is not possible.

        A wake-up can be lost, so ``timeout_s`` bounds the delay after one.
        """
        return self._futex.wait(seen, timeout_s)


class PageWaiter:
    """Waits at the wake page of the store's current owner, if there is one."""

    def __init__(self, files: FileSystem, path: Path) -> None:
        self._files = files
        self._path = path
        self._page: WakePage | None = None

    def ask(self) -> tuple[WakePage, int] | None:
        """Set the flag; return the argument of :meth:`sleep`, to be called after one more check.

        ``None`` means that no process would wake this one: the caller must poll.
        """
        if not is_published(self._files, self._path):
            return None
        page = self._page
        if page is None or not page.is_whole or not page.is_at(self._path):
            page = self._page = WakePage.open(self._files, self._path)
        return None if page is None else (page, page.ask())

    def sleep(
        self, asked: tuple[WakePage, int], timeout_s: float, longest_s: float = LONGEST_SLEEP_S
    ) -> bool:
        """Sleep until woken, at most ``longest_s``; ``False`` if that is not possible."""
        page, seen = asked
        return page.sleep(seen, min(timeout_s, longest_s))

    def wake_all(self) -> None:
        """Wake the waiters, so that they check a condition other than a position."""
        if self._page is not None:
            self._page.wake_all()


Words: TypeAlias = "memoryview[int] | list[int]"
"""Words of 8 bytes: of the shared page, or of a private list."""

_WORD: Final = (1 << 64) - 1


@attrs.define(eq=False, repr=False)
class Positions:
    """The positions of one store.

    :ivar words: the words of the shared page, where each position is stored
    :ivar asked: the first number is not 0 while another process waits for a position
    :ivar wake: wakes those waiters; called after a position has moved while ``asked`` is set
    :ivar sleeper: wakes a thread of this process; called once after a position has moved, then
        dropped
    """

    words: Words = attrs.field(factory=lambda: [0] * shared_page.WORDS, repr=False)
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
        words[shared_page.FLAGS] = shared_page.DURABLE * durable | shared_page.STAGED * staged
        words[shared_page.LAST_TIMESTAMP] = words[shared_page.FLUSHED_TIMESTAMP] = last_timestamp_ms
        words[shared_page.MINIMUM], words[shared_page.DISPATCHED] = minimum, dispatched
        words[shared_page.APPENDED] = words[shared_page.COMMITTED] = end
        words[shared_page.FLUSHED] = end

    @property
    def minimum(self) -> int:
        """Offset of the first byte still in the log."""
        return self.words[shared_page.MINIMUM]

    @minimum.setter
    def minimum(self, offset: int) -> None:
        self.words[shared_page.MINIMUM] = offset

    @property
    def appended(self) -> int:
        """End of the appended bytes."""
        return self.words[shared_page.APPENDED]

    @property
    def committed(self) -> int:
        """End of the bytes in the page cache or on disk, where other processes see them."""
        words = self.words
        staged = words[shared_page.FLAGS] & shared_page.STAGED
        return words[shared_page.COMMITTED if staged else shared_page.APPENDED]

    @property
    def flushed(self) -> int:
        """End of the bytes that a completed sync has made durable."""
        return self.words[shared_page.FLUSHED]

    @property
    def readable(self) -> int:
        """End of the bytes that an appending process reads."""
        words = self.words
        durable = words[shared_page.FLAGS] & shared_page.DURABLE
        return words[shared_page.FLUSHED if durable else shared_page.APPENDED]

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
        return self.words[shared_page.DISPATCHED]

    @dispatched.setter
    def dispatched(self, offset: int) -> None:
        self.words[shared_page.DISPATCHED] = offset

    @property
    def flushed_timestamp_ms(self) -> int:
        """Store time, in ms since 1970, of a record that is durable with all before it."""
        return self.words[shared_page.FLUSHED_TIMESTAMP]

    @property
    def is_shared(self) -> bool:
        """Whether other processes append too."""
        return bool(self.words[shared_page.SEVERAL])

    def count_sync(self, took_us: int) -> None:
        """Count one completed sync and its duration in the shared page."""
        words = self.words
        words[shared_page.SYNCS] = (words[shared_page.SYNCS] + 1) & _WORD
        words[shared_page.SYNC_US] = (words[shared_page.SYNC_US] + took_us) & _WORD

    def count_records(self, count: int) -> None:
        """Count ``count`` more dispatched records in the shared page."""
        words = self.words
        # A damaged page may hold the largest number.
        words[shared_page.RECORDS] = (words[shared_page.RECORDS] + count) & _WORD

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


_LOG: Final = logging.getLogger("lakelog")

CHECKPOINT_MS: Final = 5_000


class Publisher:
    """Publishes one owner's state.

    :ivar page: the shared page
    """

    def __init__(
        self,
        files: FileSystem,
        path: Path,
        checkpoint: CheckpointKeeper,
        page: shared_page.SharedPage | None = None,
    ) -> None:
        """Sign the page.

        :param page: the page of the processes that have the store open; without it, a page in state
            ``OPENING`` is created for an exclusive owner

        Raises ``OSError`` if a page cannot be allocated, and then leaves no new file.
        """
        self._checkpoint = checkpoint
        self._files = files
        self._former = None if page is not None else read_file(files, shared_page.page_path(path))
        self._path = path
        self.page = page or shared_page.SharedPage.make(files, path)
        sign_page(self.page.words, os.getpid())
        self._wake: WakePage | None = None
        self._written = time.monotonic()

    def start(self, positions: Positions) -> None:
        """Publish the positions of a recovered log, before any of them moves.

        The owner has already written ``abort``.
        """
        for at, word in zip(shared_page.PROOF, proof_words(self._path), strict=True):
            self.page.words[at] = word
        self.go_on(positions)
        self.set_state(shared_page.OwnerState.OPEN)

    def go_on(self, positions: Positions) -> None:
        """Enable waiting for positions in other processes."""
        self._let_wait(positions)
        self._beat()

    def set_state(self, state: shared_page.OwnerState) -> None:
        """Publish the owner's state; ``FAILED`` stays until the store is closed."""
        words, states = self.page.words, shared_page.OwnerState
        if words[shared_page.STATE] != states.FAILED or state in (states.CLOSED, states.OPENING):
            words[shared_page.STATE] = state

    def failed(self, cause: BaseException) -> None:
        """Publish the failure: no process may put any more."""
        self.page.fail(str(cause))
        self.set_state(shared_page.OwnerState.FAILED)

    def close(self) -> None:
        """Publish that the store is closed; the lock is released afterwards."""
        self.set_state(shared_page.OwnerState.CLOSED)

    def abandon(self) -> None:
        """Restore the page as it was found, after a failed open."""
        self.close()
        if self._former is None:
            with suppress(OSError):
                self._files.unlink(shared_page.page_path(self._path))
        else:
            self.page.memory[:] = self._former[: shared_page.PAGE_BYTES].ljust(
                shared_page.PAGE_BYTES, b"\x00"
            )

    def _let_wait(self, positions: Positions) -> None:
        """Create the wake page; if it cannot be allocated, readers poll."""
        try:
            self._wake = page = WakePage.make(self._files, self._path)
        except OSError as error:
            _LOG.warning("%s: readers cannot be woken, and poll instead: %s", self._path, error)
            return
        positions.wake, positions.asked = page.wake, page.asked
        self._positions = positions

    def turn(self) -> None:
        """Store a heartbeat, and advance the checkpoint periodically."""
        with suppress(OSError):  # tried again at the next turn
            self._repair_wake_page()
        self._beat()
        if time.monotonic() - self._written >= CHECKPOINT_MS / 1000:
            with suppress(OSError):  # the keeper has reported it to the store
                self._checkpoint.advance()
            self._written = time.monotonic()

    def _repair_wake_page(self) -> None:
        """Create a new wake page if the file is missing or was replaced."""
        if self._wake is None:
            return
        if self._wake.is_at(self._path):
            self._wake.repair()
        else:
            self._let_wait(self._positions)

    def _beat(self) -> None:
        self.page.words[shared_page.HEARTBEAT] = time.time_ns() // 1_000_000
