"""What the shared page says of the owner of a store, to any other process.

The page stays behind when its processes are gone. So it counts only while one of them shares the
lock on byte 2 of ``lock``, and in a state that :data:`BELIEVED` has. Who goes by it still checks
each record that it reads.

A recovery asks the page of a killed owner for one thing, see :func:`whole_end`. The page cache
keeps page and log alike when a process dies, and loses both when the machine does; the words
``PROOF`` tell the two cases apart, and a log that another program has written since.
"""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct
from typing import Final

import attrs

from lakelog.files.filesystem import FileSystem, read_file
from lakelog.files.pages.mapped_file import Identity, identity_of
from lakelog.files.pages.shared_page import (
    APPEND_HOLDER,
    APPENDED,
    APPENDER_PID,
    APPENDER_SINCE,
    COMMITTED,
    DISPATCHED,
    DISPATCHER_PID,
    DISPATCHER_START,
    DURABLE,
    FLAGS,
    FLUSHED,
    HEARTBEAT,
    LIFE_AT,
    MAGIC,
    MINIMUM,
    OWNER_PID,
    OWNER_START,
    PAGE_BYTES,
    PROOF,
    RECORDS,
    SEVERAL,
    STAGED,
    STATE,
    SYNC_US,
    SYNCS,
    OwnerState,
    boot_id,
    page_path,
)
from lakelog.format.layout import ABORT_FILE

NAMED: Final = {
    "appended": APPENDED,
    "committed": COMMITTED,
    "flushed": FLUSHED,
    "dispatched": DISPATCHED,
    "minimum": MINIMUM,
    "syncs": SYNCS,
    "sync_us": SYNC_US,
    "records": RECORDS,
}
"""The words that are numbers to show."""
_STATES: Final = {each.value: each for each in OwnerState}
BELIEVED: Final = frozenset({OwnerState.OPEN, OwnerState.FAILED, OwnerState.CLOSING})
"""States in which the positions are right; before them a log is still being put in order."""


def sign_page(words: memoryview[int], pid: int, *, dispatches: bool) -> None:
    """Say whose page it is.

    :param dispatches: say, too, that the owner itself writes queues and index
    """
    start = process_start(pid) or 0
    words[OWNER_PID], words[OWNER_START] = pid, start
    if dispatches:
        words[DISPATCHER_PID], words[DISPATCHER_START] = pid, start


def readable_end(words: memoryview[int] | list[int]) -> int:
    """Where other processes stop reading.

    What is durable where puts wait for that, so that nothing vanishes that somebody saw; else what
    was appended, and is in the page cache.
    """
    flags = words[FLAGS]
    end = words[FLUSHED] if flags & DURABLE else words[APPENDED]
    return min(end, words[COMMITTED]) if flags & STAGED else end


_BOOT: Final = Struct("=QQ")
NO_PROOF: Final = (0, 0, 0, 0)


def proof_words(path: Path) -> tuple[int, ...]:
    """What the words :data:`PROOF` are for a log that is being written now.

    No copy of the store directory ``path`` and no other opening of it, RocketMQ's included, has
    the same: each writes ``abort`` anew, and nobody can set a ctime. :data:`NO_PROOF` where the
    kernel does not say it.
    """
    boot = _BOOT.unpack(boot_id())
    try:
        abort = os.stat(path / ABORT_FILE)
    except OSError:
        return NO_PROOF
    return (*boot, abort.st_ino, abort.st_ctime_ns) if any(boot) else NO_PROOF


def whole_end(files: FileSystem, path: Path) -> int | None:
    """Up to where a killed owner had copied every byte of the log; ``None`` if that is not proved.

    Behind it stands at most what was never acknowledged as committed, in any order: a copy that is
    killed at a page border may have stored its end, and not its start.
    """
    data = read_file(files, page_path(path)) or b""
    proof = proof_words(path)
    if len(data) < PAGE_BYTES or proof == NO_PROOF:
        return None
    words = memoryview(data).cast("Q")
    if words[0] != MAGIC or tuple(words[at] for at in PROOF) != proof:
        return None
    appended = words[APPENDED]
    return min(appended, words[COMMITTED]) if words[FLAGS] & STAGED else appended


def page_identity(path: Path) -> Identity | None:
    """What tells the page of the store directory ``path`` from another one of its name."""
    return identity_of(page_path(path), PAGE_BYTES)


def process_start(pid: int) -> int | None:
    """When a process began, in clock ticks since boot; ``None`` if there is none, or a dead one.

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
    """What a page says now, to a process that does not own it."""

    _words: memoryview[int]

    @classmethod
    def open(cls, files: FileSystem, path: Path) -> PageView | None:
        """Map the page of the store directory ``path``; ``None`` if there is no whole one."""
        try:
            file = files.open(page_path(path))
        except OSError:
            return None
        try:
            if file.size() < PAGE_BYTES:
                return None
            return cls(memoryview(file.map(PAGE_BYTES, writable=False)).cast("Q"))
        except (OSError, ValueError):
            return None
        finally:
            file.close()

    @property
    def owner(self) -> tuple[int, int]:
        """Process id and start time of who wrote it."""
        return self._words[OWNER_PID], self._words[OWNER_START]

    @property
    def is_whole(self) -> bool:
        """Whether its magic number is there."""
        return self._words[0] == MAGIC

    def is_of_this_abort(self, path: Path) -> bool:
        """Whether whoever has written ``abort`` in the store directory ``path`` made it."""
        proof = proof_words(path)
        return proof != NO_PROOF and tuple(self._words[at] for at in PROOF[2:]) == proof[2:]

    @property
    def dispatcher(self) -> tuple[int, int]:
        """Process id and start time of who writes queues and index."""
        return self._words[DISPATCHER_PID], self._words[DISPATCHER_START]

    @property
    def appender(self) -> tuple[int, int] | None:
        """Process id of who appended last beside others, and when it began: ms, monotonic clock."""
        words = self._words
        return (words[APPENDER_PID], words[APPENDER_SINCE]) if words[SEVERAL] else None

    @property
    def append_life(self) -> int | None:
        """The byte of ``lock`` that compiled code inside of the append section keeps locked."""
        holder = self._words[APPEND_HOLDER]
        return LIFE_AT + holder if holder else None

    @property
    def state(self) -> OwnerState | None:
        """What the owner is doing; ``None`` for a word of another version."""
        return _STATES.get(self._words[STATE])

    @property
    def minimum(self) -> int:
        """First byte that is still there."""
        return self._words[MINIMUM]

    @property
    def readable(self) -> int:
        """Where other processes stop reading."""
        return readable_end(self._words)

    @property
    def flushed(self) -> int:
        """End of what is durable, of what can be read."""
        return min(self._words[FLUSHED], self.readable)

    def counts(self) -> dict[str, int]:
        """Every number as it stands, by name; for people, and for those who watch."""
        return {name: self._words[at] for name, at in NAMED.items()} | {"readable": self.readable}

    @property
    def heartbeat_ms(self) -> int:
        """When the owner last said that it runs, in ms since 1970."""
        return self._words[HEARTBEAT]
