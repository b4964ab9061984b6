"""The shared page of a store's owner, read by another process.

The file of the page stays after its processes have ended. So it is valid only while one of them has
a shared lock on byte 2 of ``lock``, and in one of the states :data:`BELIEVED`. A reader still
checks each record.

A recovery reads one position from the page of a killed owner, see :func:`whole_end`. The page cache
keeps page and log if a process dies, and loses both if the machine fails. The words ``PROOF``
distinguish the two cases. They also detect a log that another program has written since.

The positions of a store that are valid for a reader, while it is open elsewhere and later.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Final

import attrs

from lakelog.files.checkpoint import read_checkpoint
from lakelog.files.filesystem import FileSystem, read_file
from lakelog.files.identity import read_replica
from lakelog.format.layout import ABORT_FILE
from lakelog.processes import shared_page
from lakelog.processes.ownership import is_owned, is_published
from lakelog.runtime.locks import Mutex

_STATES: Final = {each.value: each for each in shared_page.OwnerState}
BELIEVED: Final = frozenset(
    {shared_page.OwnerState.OPEN, shared_page.OwnerState.FAILED, shared_page.OwnerState.CLOSING}
)
"""States with valid positions; in earlier states the log is still being recovered."""


def sign_page(words: memoryview[int], pid: int) -> None:
    """Store process ``pid`` in the page, as owner and as the writer of queues and index."""
    words[shared_page.OWNER_PID] = words[shared_page.DISPATCHER_PID] = pid
    words[shared_page.OWNER_START] = words[shared_page.DISPATCHER_START] = process_start(pid) or 0


def readable_end(words: memoryview[int] | list[int]) -> int:
    """The offset, in bytes from the start of the log, at which other processes stop reading.

    If puts wait for durability, this is the durable end: no message that was read can vanish.
    Otherwise it is the appended end, limited to the bytes in the page cache.
    """
    flags = words[shared_page.FLAGS]
    end = words[shared_page.FLUSHED] if flags & shared_page.DURABLE else words[shared_page.APPENDED]
    return min(end, words[shared_page.COMMITTED]) if flags & shared_page.STAGED else end


_BOOT: Final = Struct("=QQ")
NO_PROOF: Final = (0, 0, 0, 0)


def proof_words(path: Path) -> tuple[int, ...]:
    """The words :data:`PROOF` for a log that is being written now.

    They are unique to this run: each run, RocketMQ's included, writes ``abort`` anew, and programs
    cannot set a ctime. A copy of the store directory ``path`` has other words. :data:`NO_PROOF` if
    ``abort`` is missing, or the kernel provides no boot id.
    """
    boot = _BOOT.unpack(shared_page.boot_id())
    try:
        abort = os.stat(path / ABORT_FILE)
    except OSError:
        return NO_PROOF
    return (*boot, abort.st_ino, abort.st_ctime_ns) if any(boot) else NO_PROOF


def whole_end(files: FileSystem, path: Path) -> int | None:
    """The offset up to which a killed owner had copied every byte; ``None`` if not proved.

    Only bytes of unacknowledged appends follow it, possibly out of order: a copy killed at a page
    border may have stored its end without its start.
    """
    data = read_file(files, shared_page.page_path(path)) or b""
    proof = proof_words(path)
    if len(data) < shared_page.PAGE_BYTES or proof == NO_PROOF:
        return None
    words = memoryview(data).cast("Q")
    if words[0] != shared_page.MAGIC or tuple(words[at] for at in shared_page.PROOF) != proof:
        return None
    appended = words[shared_page.APPENDED]
    return (
        min(appended, words[shared_page.COMMITTED])
        if words[shared_page.FLAGS] & shared_page.STAGED
        else appended
    )


def page_identity(path: Path) -> shared_page.Identity | None:
    """The identity of the page file in the store directory ``path``."""
    return shared_page.identity_of(shared_page.page_path(path), shared_page.PAGE_BYTES)


def process_start(pid: int) -> int | None:
    """The start time of a process, in clock ticks since boot; ``None`` if it is not alive.

    Field 22 of ``/proc/PID/stat``, see proc(5).
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    state, *fields = text[text.rindex(b")") + 1 :].split()
    return None if state in (b"Z", b"X") else int(fields[18])


@attrs.frozen
class PageView:
    """The content of a page, for a process that does not own it.

    :ivar words: its 8-byte words
    """

    words: memoryview[int]

    @classmethod
    def open(cls, files: FileSystem, path: Path) -> PageView | None:
        """Map the page of the store directory ``path``; ``None`` without a valid page."""
        try:
            memory = shared_page.open_mapped(
                files, shared_page.page_path(path), shared_page.PAGE_BYTES, writable=False
            )
        except (OSError, ValueError):
            return None
        return None if memory is None else cls(memory.cast("Q"))

    @property
    def owner(self) -> tuple[int, int]:
        """Process id and start time of the owner."""
        return self.words[shared_page.OWNER_PID], self.words[shared_page.OWNER_START]

    @property
    def is_whole(self) -> bool:
        """Whether its magic number is present."""
        return self.words[0] == shared_page.MAGIC

    def is_of_this_abort(self, path: Path) -> bool:
        """Whether the page belongs to the writer of ``abort`` in the store directory ``path``."""
        proof = proof_words(path)
        return (
            proof != NO_PROOF and tuple(self.words[at] for at in shared_page.PROOF[2:]) == proof[2:]
        )

    @property
    def state(self) -> shared_page.OwnerState | None:
        """The owner's state; ``None`` for an unknown value from another version."""
        return _STATES.get(self.words[shared_page.STATE])

    @property
    def minimum(self) -> int:
        """Offset of the first byte still in the log."""
        return self.words[shared_page.MINIMUM]

    @property
    def readable(self) -> int:
        """See :func:`readable_end`."""
        return readable_end(self.words)

    @property
    def flushed(self) -> int:
        """The durable end, limited to the readable end."""
        return min(self.words[shared_page.FLUSHED], self.readable)


TRUSTED_S: Final = 0.001


class PageReader:
    """A reader's view of the shared page while some process has the store open."""

    def __init__(self, files: FileSystem, path: Path) -> None:
        self._files = files
        self._path = path
        self._page: PageView | None = None
        self._identity: shared_page.Identity | None = None
        self._is_published = False
        self._until = 0.0

    def page(self) -> PageView | None:
        """The page, if a process has the store open; else ``None``.

        The lock is checked at most once per millisecond, since one call may need many positions.
        Positions of a dead process stay valid for longer. The state is checked at each call.
        """
        if time.monotonic() >= self._until:
            self._is_published = is_published(self._files, self._path)
            self._until = time.monotonic() + TRUSTED_S
            if page_identity(self._path) != self._identity:
                self._page = None  # the owner created another file
        if not self._is_published:
            self._page = None
            return None
        page = self._page
        if page is None:
            page = self._page = self._look()
        return page if page is not None and page.state in BELIEVED else None

    def _look(self) -> PageView | None:
        page = PageView.open(self._files, self._path)
        if page is None or not page.is_whole:
            return None
        self._identity = page_identity(self._path)
        return page


class ReaderDurableEnd:
    """The durable end of the log, determined by a reader; it never decreases.

    :param page: returns the current page, if any
    """

    def __init__(self, files: FileSystem, path: Path, page: Callable[[], PageView | None]) -> None:
        self._files = files
        self._path = path
        self._page = page
        self._known: int | None = None
        self._lock = Mutex()

    def end(self, log_end: Callable[[], int]) -> int | None:
        """The durable end, in bytes from the start of the log; ``None`` if unknown.

        :param log_end: finds the end of the log
        """
        found = self._found(log_end)
        with self._lock:
            if found is not None:
                self._known = max(found, self._known or 0)
            return self._known

    def _found(self, log_end: Callable[[], int]) -> int | None:
        """The durable end from the present sources.

        After a clean stop the whole log is durable; of a replica, only the bytes that its master
        cannot lose. After a crash of lakelog, or during recovery, the checkpoint's
        ``confirm_offset`` is valid, since it moves after syncs only; 0 means unknown. RocketMQ's
        ``confirm_offset`` gives no such guarantee.
        """
        page = self._page()
        if page is not None:
            return page.flushed
        if self._is_stopped():
            end = log_end()
            if read_replica(self._files, self._path) is not None:
                end = min(self._confirmed(), end)
            if self._is_stopped():  # else a new owner may have moved the end meanwhile
                return end
        if not self._ran_lakelog_last():
            return None
        return min(self._confirmed(), log_end()) or None

    def _is_stopped(self) -> bool:
        """Whether the store has no owner and was closed cleanly."""
        return not (self._path / ABORT_FILE).exists() and not is_owned(self._files, self._path)

    def _confirmed(self) -> int:
        try:
            return read_checkpoint(self._files, self._path).confirm_offset
        except OSError:  # an unreadable checkpoint proves nothing
            return 0

    def _ran_lakelog_last(self) -> bool:
        """Whether lakelog was the last owner.

        RocketMQ also locks byte 0 and writes ``abort``, but has no shared page.
        """
        if is_owned(self._files, self._path):
            return is_published(self._files, self._path)
        page = PageView.open(self._files, self._path)
        return page is not None and page.is_of_this_abort(self._path)
