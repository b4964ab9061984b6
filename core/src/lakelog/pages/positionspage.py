"""The positions page ``lakelog/positions``: how far an owner has come, for any other process.

One page of 4,096 bytes, mapped by the owner and by readers; nothing of it has to last, and it is
never synced. Words of 8 bytes, aligned and in the machine's own order, each stored at once, so
that none is ever seen half. All offsets are bytes from the start of the log::

    word  0  magic and version    MAGIC; a page of another machine's byte order does not show it
    word  1  appended             end of what was appended, stored by each append behind its bytes
    word  2  committed            end of what is in the page cache; of use where a writer stages
    word  3  flushed              end of what is durable
    word  4  confirmed            end of the longest run of puts that all have their result
    word  5  dispatched           end of what queues and index know
    word  6  minimum              first byte that is still there
    word  7  owner                its process id
    word  8  owner's start        clock ticks since boot, from /proc/PID/stat, against reused ids
    word  9  heartbeat            ms since 1970; stored every HEARTBEAT_MS
    word 10  state                a State
    word 11  flags                bit 0: the writer stages, committed may be behind confirmed
    word 12  syncs                how often this owner has synced the log
    word 13  sync time            how long these syncs took in all, in microseconds
    word 14  records              how many records this owner has dispatched; 0 if it does not count
    word 15  dispatcher           process id of who writes queues and index, and word 5
    word 16  dispatcher's start   as word 8
    word 17  boot                 the first half of the kernel's boot id, as it is printed
    word 18  boot                 the second half
    word 19  abort                inode number of the file ``abort`` that this owner wrote
    word 20  abort's time         when that file was changed last (ctime), in ns since 1970

Words 1 to 6 never go back while one owner lives; nothing is promised across words. The page of a
dead owner stays behind. So it counts only while the owner holds its lock on byte 2 of ``lock``
(which ends with the process), is the process that words 7 and 8 name, and is in a state that
:data:`BELIEVED` has. Who goes by it still checks each record that it reads.

A recovery asks the page of a killed owner for one thing, see :func:`whole_end`. The page cache
keeps page and log alike when a process dies, and loses both when the machine does; words 17 to 20
tell the two cases apart, and a log that another program has written since.
"""

from __future__ import annotations

import os
from enum import IntEnum, unique
from pathlib import Path
from typing import Final

import attrs

from lakelog.files import FileSystem, read_file
from lakelog.layout import ABORT_FILE, OWN_DIR
from lakelog.pages.mappedfile import Identity, identity_of, make_mapped

PAGE_FILE: Final = "positions"
PAGE_BYTES: Final = 4096
WORDS: Final = PAGE_BYTES // 8
HEARTBEAT_MS: Final = 500
MAGIC: Final = 0x6C6B_6C70_6F73_0001
"""The bytes ``lklpos`` and the version, as a number."""

APPENDED: Final = 1
COMMITTED: Final = 2
FLUSHED: Final = 3
CONFIRMED: Final = 4
DISPATCHED: Final = 5
MINIMUM: Final = 6
OWNER_PID: Final = 7
OWNER_START: Final = 8
HEARTBEAT: Final = 9
STATE: Final = 10
FLAGS: Final = 11
SYNCS: Final = 12
SYNC_US: Final = 13
RECORDS: Final = 14
DISPATCHER_PID: Final = 15
DISPATCHER_START: Final = 16
PROOF: Final = range(17, 21)
STAGED: Final = 1
NAMED: Final = {
    "appended": APPENDED,
    "committed": COMMITTED,
    "flushed": FLUSHED,
    "confirmed": CONFIRMED,
    "dispatched": DISPATCHED,
    "minimum": MINIMUM,
    "syncs": SYNCS,
    "sync_us": SYNC_US,
    "records": RECORDS,
}
"""The words that are numbers to show."""


@unique
class State(IntEnum):
    """What the owner is doing; the value is the word."""

    OPENING = 1
    RECOVERING = 2
    OPEN = 3
    FAILED = 4
    CLOSING = 5
    CLOSED = 6


_STATES: Final = {each.value: each for each in State}
BELIEVED: Final = frozenset({State.OPEN, State.FAILED, State.CLOSING})
"""States in which the positions are right; before them a log is still being put in order."""


def page_path(path: Path) -> Path:
    """Where the page of the store directory ``path`` stands."""
    return path / OWN_DIR / PAGE_FILE


def make_page(files: FileSystem, path: Path) -> memoryview[int]:
    """The words of this process's page, in state ``OPENING``, all positions as they were, or 0.

    A reader may have looked at the state before and look at a position after: the former owner's
    is as right for it as a moment ago, and 0 would show it a log without messages.

    The caller holds the store's lock. Raises ``OSError``, and then leaves no new file behind.
    """
    words = make_mapped(files, page_path(path), PAGE_BYTES).cast("Q")
    words[STATE] = State.OPENING
    if words[0] != MAGIC:
        for at in (*range(1, STATE), FLAGS, *PROOF):
            words[at] = 0
    for at in (SYNCS, SYNC_US, RECORDS):
        words[at] = 0
    sign_page(words, os.getpid(), dispatches=True)
    return words


def sign_page(words: memoryview[int], pid: int, *, dispatches: bool) -> None:
    """Say whose page it is.

    :param dispatches: say, too, that the owner itself writes queues and index
    """
    start = process_start(pid) or 0
    words[OWNER_PID], words[OWNER_START] = pid, start
    if dispatches:
        words[DISPATCHER_PID], words[DISPATCHER_START] = pid, start
    words[0] = MAGIC


_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
NO_PROOF: Final = (0, 0, 0, 0)


def proof_words(path: Path) -> tuple[int, ...]:
    """What the words :data:`PROOF` are for a log that is being written now.

    No copy of the store directory ``path`` and no other opening of it, RocketMQ's included, has
    the same: each writes ``abort`` anew, and nobody can set a ctime. :data:`NO_PROOF` where the
    kernel does not say it.
    """
    try:
        boot = _BOOT_ID.read_text().strip().replace("-", "")
        abort = os.stat(path / ABORT_FILE)
        return int(boot[:16], 16), int(boot[16:32], 16), abort.st_ino, abort.st_ctime_ns
    except (OSError, ValueError):
        return NO_PROOF


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

    def is_of_a_living_process(self) -> bool:
        """Whether the process that it names is there; the lock is for the caller to look at."""
        pid, start = self.owner
        return self._words[0] == MAGIC and pid > 0 and process_start(pid) == start

    @property
    def dispatcher(self) -> tuple[int, int]:
        """Process id and start time of who writes queues and index."""
        return self._words[DISPATCHER_PID], self._words[DISPATCHER_START]

    @property
    def state(self) -> State | None:
        """What the owner is doing; ``None`` for a word of another version."""
        return _STATES.get(self._words[STATE])

    @property
    def minimum(self) -> int:
        """First byte that is still there."""
        return self._words[MINIMUM]

    @property
    def readable(self) -> int:
        """Where other processes stop reading."""
        confirmed = self._words[CONFIRMED]
        if self._words[FLAGS] & STAGED:
            return min(confirmed, self._words[COMMITTED])
        return confirmed

    @property
    def flushed(self) -> int:
        """End of what is durable, of what can be read."""
        return min(self._words[FLUSHED], self.readable)

    def counts(self) -> dict[str, int]:
        """Every number as it stands, by name; for people, and for those who watch."""
        return {name: self._words[at] for name, at in NAMED.items()}

    @property
    def heartbeat_ms(self) -> int:
        """When the owner last said that it runs, in ms since 1970."""
        return self._words[HEARTBEAT]
