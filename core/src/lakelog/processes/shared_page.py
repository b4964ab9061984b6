"""The shared page ``lakelog/shared``: the positions of the log, for all processes of one store.

8,192 bytes, mapped by each process that has the store open for writing, and by readers. It is never
synced, and need not survive a crash. An exclusive owner initialises it in place. It consists of
8-byte words in machine byte order, each stored atomically; offsets are bytes of the log::

    byte    0  magic and version; read as another number in another byte order
    byte    8  boot id of the kernel, 16 bytes
    byte   24  length of a segment
    byte   64  append lock: u32 waited, u32 sequence (lakelog.processes.append_section)
    byte   72  process id of the appender, and byte 80 its start: ms of the monotonic clock
    byte   88  not 0 while several processes append, so that all use the append lock
    byte   96  number of the compiled code that has the append lock, and byte 104 of the plain one
               that has it or waits for the former; 0 is none (see there)
    byte  112  number of a process that appends while it is alone; 0 is none (see there)
    byte  128  appended: end of the appended bytes; the commit point of each append
    byte  136  store time of the last appended record, in ms since 1970
    byte  144  intent: start of the append in progress, and byte 152 its end; 0 is none
    byte  160  generation of the table of queue ends (lakelog.processes.queue_table)
    byte  192  sync lock: u32 waited, u32 sequence
    byte  256  group commit, 32 bytes (lakelog.processes.group_sync); its first word is flushed
    byte  288  store time of a record that is durable with all before it, in ms since 1970
    byte  320  minimum: first byte still in the log
    byte  328  dispatched: end of what is dispatched to queues and index
    byte  336  committed: end of the bytes in the page cache; used by staged writers
    byte  344  syncs: number of syncs; byte 352 their total duration, in us
    byte  360  records: number of dispatched records
    byte  368  process id of the owner, and byte 376 when it started: clock ticks since boot
    byte  384  heartbeat of the owner: ms since 1970
    byte  392  state: an OwnerState; byte 400 flags: STAGED, DURABLE
    byte  408  process id of the writer of queues and index, and byte 416 its start
    byte  424  inode number of the file ``abort`` that the owner wrote, and byte 432 its ctime in ns
    byte  440  copies, 24 bytes (lakelog.processes.group_sync)
    byte  512  why the store has failed: u64 length of a text in UTF-8, and the text
    byte 3072  why puts are paused, in the same form; length 0: they are not. Valid only while a
               process has the services
    byte 4096  the shared settings: u64 length of a text in JSON, and the text

Positions never decrease while a process that has joined lives. Several words are not consistent
with each other.

Any process with write permission can corrupt this page, and so the store, as in SQLite's shared
memory.

The file of the page stays after its processes have ended. So it is valid for a reader only while a
process has a shared lock on byte 2 of ``lock``, and in one of the states :data:`BELIEVED`. A reader
still checks each record.

A recovery reads one position from the page of a killed owner, see :func:`whole_end`. The page cache
keeps page and log if a process dies, and loses both if the machine fails. The words ``PROOF``
distinguish the two cases. They also detect a log that another program has written since.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from enum import IntEnum, unique
from pathlib import Path
from struct import Struct
from typing import Any, Final, TypeAlias

import attrs

from lakelog.errors import SettingsError, StoreError, StoreLocked
from lakelog.files.checkpoint import read_checkpoint
from lakelog.files.filesystem import FileSystem, read_file
from lakelog.files.identity import read_replica
from lakelog.format.layout import ABORT_FILE, OWN_DIR
from lakelog.processes.ownership import is_owned, is_published
from lakelog.runtime.locks import Mutex

Identity: TypeAlias = tuple[int, int]
"""Device and inode number."""
PAGE_FILE: Final = "shared"
PAGE_BYTES: Final = 8192
WORDS: Final = PAGE_BYTES // 8
MAGIC: Final = 0x6C6B_6C73_6872_0002
"""The bytes ``lklshr`` and the version, as a number."""

# Words, counted from the start of the page.
SEGMENT_BYTES: Final = 3
APPENDER_PID: Final = 9
APPENDER_SINCE: Final = 10
SEVERAL: Final = 11
APPEND_HOLDER: Final = 12
APPEND_PLAIN: Final = 13
APPEND_ALONE: Final = 14
APPENDED: Final = 16
LAST_TIMESTAMP: Final = 17
INTENT_START: Final = 18
INTENT_END: Final = 19
TABLE_GENERATION: Final = 20
FLUSHED: Final = 32
MARKED: Final = 33
FAILED: Final = 34
"""``FLUSHED``, ``MARKED`` and ``FAILED`` are words of group commit."""
FLUSHED_TIMESTAMP: Final = 36
MINIMUM: Final = 40
DISPATCHED: Final = 41
COMMITTED: Final = 42
SYNCS: Final = 43
SYNC_US: Final = 44
RECORDS: Final = 45
OWNER_PID: Final = 46
OWNER_START: Final = 47
HEARTBEAT: Final = 48
STATE: Final = 49
FLAGS: Final = 50
DISPATCHER_PID: Final = 51
DISPATCHER_START: Final = 52
PROOF: Final = (1, 2, 53, 54)
"""The boot id, and the file ``abort``."""
PAUSED: Final = 384
"""Not 0 while the process with the services pauses puts."""
STAGED: Final = 1
"""The writer is staged: ``committed`` may be below the end that the owner reads."""
DURABLE: Final = 2
"""Puts wait until they are durable, and reads stop at the durable end."""
LIFE_AT: Final = 1 << 32
"""Offset in ``lock``: the process with number n keeps the byte at this offset + n locked."""

# Bytes.
COPIED_AT: Final = 440
APPEND_LOCK_AT: Final = 64
SYNC_LOCK_AT: Final = 192
GROUP_SYNC_AT: Final = 256
_BOOT = slice(8, 24)
_FAILURE = slice(512, 3072)
_PAUSE = slice(3072, 4096)
_SETTINGS = slice(4096, PAGE_BYTES)
SETTINGS_BYTES: Final = PAGE_BYTES - 4096 - 8
"""The maximum length of the settings text."""
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_OF_LOCKS: Final = (
    *range(8, 16),
    INTENT_START,
    INTENT_END,
    *range(24, 32),
    *range(33, 37),
    *range(53, 58),
    64,
    PAUSED,
)
"""Words that must not outlive a run: locks, intents, marks, failures."""
_COUNTED: Final = (SYNCS, SYNC_US, RECORDS)


@unique
class OwnerState(IntEnum):
    """The owner's state; the value is the word."""

    OPENING = 1
    RECOVERING = 2
    OPEN = 3
    FAILED = 4
    CLOSING = 5
    CLOSED = 6


_STATES: Final = {each.value: each for each in OwnerState}
BELIEVED: Final = frozenset({OwnerState.OPEN, OwnerState.FAILED, OwnerState.CLOSING})
"""States with valid positions; in earlier states the log is still being recovered."""


def identity_of(path: Path, least_bytes: int) -> Identity | None:
    """Device and inode number of the file at ``path``; ``None`` if it is missing or too short."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if found.st_size >= least_bytes else None


def open_mapped(files: FileSystem, path: Path, length: int, *, writable: bool) -> memoryview | None:
    """Map the first ``length`` bytes of a file; ``None`` if it is shorter.

    Raises ``OSError``.
    """
    with closing(files.open(path, write=writable)) as file:
        if file.size() < length:
            return None
        return memoryview(file.map(length, writable=writable))


def make_mapped(files: FileSystem, path: Path, length: int) -> memoryview:
    """Map the first ``length`` bytes of ``path`` read-write; create the file if missing.

    The bytes are allocated first: a write into a hole would kill the process on a full disk.

    Raises ``OSError``, and then leaves no new file.
    """
    is_new = not path.exists()
    with closing(files.open(path, write=True, create=True)) as file:
        try:
            file.allocate(length)
            return memoryview(file.map(length, writable=True))
        except BaseException:  # Ctrl-C too
            if is_new:
                with suppress(OSError):
                    files.unlink(path)
            raise


def page_path(path: Path) -> Path:
    """The path of the page of the store directory ``path``."""
    return path / OWN_DIR / PAGE_FILE


@attrs.frozen(eq=False, repr=False)
class SharedPage:
    """The mapped page.

    :ivar memory: the whole page
    :ivar words: the same as 8-byte words
    """

    memory: memoryview
    words: memoryview[int]

    @classmethod
    def make(cls, files: FileSystem, path: Path) -> SharedPage:
        """Map or create the page in state ``OPENING``, for an exclusive owner.

        Positions keep their values, and are 0 in a new page: a reader may have read the state
        before this call, and read a position after it. The proof of the former run also stays
        until :meth:`reset`, so that an interrupted recovery does not remove it.

        Raises ``OSError`` if it cannot be allocated, and then leaves no new file.
        """
        memory = make_mapped(files, page_path(path), PAGE_BYTES)
        page = cls(memory, memory.cast("Q"))
        words = page.words
        words[STATE] = OwnerState.OPENING
        if words[0] != MAGIC:
            memory[:] = bytes(PAGE_BYTES)
            words[STATE] = OwnerState.OPENING
        words[0] = MAGIC
        return page

    def reset(self, segment_bytes: int, settings: Mapping[str, Any]) -> None:
        """Clear locks, intents and failures of the former run, before others may join.

        :param segment_bytes: length of each segment
        :param settings: the shared settings, as JSON values

        Raises :class:`~lakelog.errors.SettingsError` if the settings are too long.
        """
        text = settings_text(settings)
        if len(text) > SETTINGS_BYTES:
            raise SettingsError(
                f"{len(text)} bytes of settings that all processes share do not fit into the "
                f"{SETTINGS_BYTES} of the shared page; shorten names and paths"
            )
        for at in (*_OF_LOCKS, *_COUNTED):
            self.words[at] = 0
        _store(self.memory[_SETTINGS], text)
        self.memory[_BOOT] = boot_id()
        self.words[SEGMENT_BYTES] = segment_bytes

    @classmethod
    def join(cls, files: FileSystem, path: Path) -> SharedPage:
        """Map the page of the processes that have the store open.

        Raises :class:`~lakelog.errors.StoreError` without a valid page, and
        :class:`~lakelog.errors.StoreLocked` if another host has the store open.
        """
        target = page_path(path)
        memory = None
        with suppress(FileNotFoundError):
            memory = open_mapped(files, target, PAGE_BYTES, writable=True)
        if memory is None:
            raise StoreError(
                "the page that the processes of this store share is gone, or was cut short; close "
                "the store in all of them, then open it again",
                path=target,
            )
        page = cls(memory, memory.cast("Q"))
        if page.words[0] != MAGIC:
            raise StoreError(
                "the processes that have this store open are of another version of lakelog, or its "
                "shared page is damaged; close it in all of them, then open it again",
                path=target,
            )
        if page.memory[_BOOT] != boot_id():
            raise StoreLocked(
                "a process of another host, or of another system on this one, has this store open; "
                "only processes of one host can share a store; close it there",
                path=path,
            )
        return page

    @property
    def settings(self) -> dict[str, Any]:
        """The shared settings; empty if the text is damaged."""
        try:
            found = json.loads(_text(self.memory[_SETTINGS]))
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def failure(self) -> str | None:
        """Why the store has failed, if it has."""
        return _text(self.memory[_FAILURE]) or None

    def fail(self, why: str) -> None:
        """Fail the store for all processes, with the reason, unless it has failed already."""
        if self.failure is None:
            _store(self.memory[_FAILURE], (why or "unknown").encode())
        self.words[FAILED] = 1

    @property
    def pause(self) -> str | None:
        """Why puts are paused, if they are; valid while a process has the services."""
        return _text(self.memory[_PAUSE]) or None

    def set_pause(self, why: str | None) -> None:
        """Pause puts of all processes with a reason, or resume them; for the services' process."""
        if why != self.pause:
            _store(self.memory[_PAUSE], (why or "").encode())


def settings_text(settings: Mapping[str, Any]) -> bytes:
    """The settings as stored in the page, in JSON."""
    return json.dumps(settings, sort_keys=True, default=str).encode()


def _store(place: memoryview, text: bytes) -> None:
    length = min(len(text), len(place) - 8)
    place[8 : 8 + length] = text[:length]
    place[:8].cast("Q")[0] = length


def _text(place: memoryview) -> str:
    length = min(place[:8].cast("Q")[0], len(place) - 8)
    return str(place[8 : 8 + length], "utf-8", "replace")


def boot_id() -> bytes:
    """The kernel's boot id, 16 bytes; zeros, in all processes, if it is not available."""
    try:
        return bytes.fromhex(_BOOT_ID.read_text().strip().replace("-", ""))
    except (OSError, ValueError):
        return bytes(16)


def sign_page(words: memoryview[int], pid: int) -> None:
    """Store process ``pid`` in the page, as owner and as the writer of queues and index."""
    words[OWNER_PID] = words[DISPATCHER_PID] = pid
    words[OWNER_START] = words[DISPATCHER_START] = process_start(pid) or 0


def readable_end(words: memoryview[int] | list[int]) -> int:
    """The offset, in bytes from the start of the log, at which other processes stop reading.

    If puts wait for durability, this is the durable end: no message that was read can vanish.
    Otherwise it is the appended end, limited to the bytes in the page cache.
    """
    flags = words[FLAGS]
    end = words[FLUSHED] if flags & DURABLE else words[APPENDED]
    return min(end, words[COMMITTED]) if flags & STAGED else end


_BOOT_WORDS: Final = Struct("=QQ")
NO_PROOF: Final = (0, 0, 0, 0)


def proof_words(path: Path) -> tuple[int, ...]:
    """The words :data:`PROOF` for a log that is being written now.

    They are unique to this run: each run, RocketMQ's included, writes ``abort`` anew, and programs
    cannot set a ctime. A copy of the store directory ``path`` has other words. :data:`NO_PROOF` if
    ``abort`` is missing, or the kernel provides no boot id.
    """
    boot = _BOOT_WORDS.unpack(boot_id())
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
    words = _of_killed_owner(files, path)
    if words is None:
        return None
    appended = words[APPENDED]
    return min(appended, words[COMMITTED]) if words[FLAGS] & STAGED else appended


def synced_end(files: FileSystem, path: Path) -> int:
    """The offset up to which a killed owner had synced the log; 0 if not proved."""
    words = _of_killed_owner(files, path)
    return 0 if words is None else words[FLUSHED]


def _of_killed_owner(files: FileSystem, path: Path) -> memoryview[int] | None:
    """The words of the page if its owner was killed, and neither machine nor log changed since."""
    data = read_file(files, page_path(path)) or b""
    proof = proof_words(path)
    if len(data) < PAGE_BYTES or proof == NO_PROOF:
        return None
    words = memoryview(data).cast("Q")
    if words[0] != MAGIC or tuple(words[at] for at in PROOF) != proof:
        return None
    return words


def page_identity(path: Path) -> Identity | None:
    """The identity of the page file in the store directory ``path``."""
    return identity_of(page_path(path), PAGE_BYTES)


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


@attrs.frozen(eq=False, repr=False)
class PageView:
    """The content of a page, for a process that does not own it.

    :ivar words: its 8-byte words
    """

    words: memoryview[int]

    @classmethod
    def open(cls, files: FileSystem, path: Path) -> PageView | None:
        """Map the page of the store directory ``path``; ``None`` without a valid page."""
        try:
            memory = open_mapped(files, page_path(path), PAGE_BYTES, writable=False)
        except OSError:
            return None
        return None if memory is None else cls(memory.cast("Q"))

    @property
    def owner(self) -> tuple[int, int]:
        """Process id and start time of the owner."""
        return self.words[OWNER_PID], self.words[OWNER_START]

    @property
    def is_whole(self) -> bool:
        """Whether its magic number is present."""
        return self.words[0] == MAGIC

    def is_of_this_abort(self, path: Path) -> bool:
        """Whether the page belongs to the writer of ``abort`` in the store directory ``path``."""
        proof = proof_words(path)
        return proof != NO_PROOF and tuple(self.words[at] for at in PROOF[2:]) == proof[2:]

    @property
    def state(self) -> OwnerState | None:
        """The owner's state; ``None`` for an unknown value from another version."""
        return _STATES.get(self.words[STATE])

    @property
    def minimum(self) -> int:
        """Offset of the first byte still in the log."""
        return self.words[MINIMUM]

    @property
    def readable(self) -> int:
        """See :func:`readable_end`."""
        return readable_end(self.words)

    @property
    def flushed(self) -> int:
        """The durable end, limited to the readable end."""
        return min(self.words[FLUSHED], self.readable)


TRUSTED_S: Final = 0.001
"""How long a reader uses again what it has found out about locks and files, in s."""


class PageReader:
    """A reader's view of the shared page while some process has the store open."""

    def __init__(self, files: FileSystem, path: Path) -> None:
        self._files = files
        self._path = path
        self._page: PageView | None = None
        self._identity: Identity | None = None
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
        if self._page is None:
            page = PageView.open(self._files, self._path)
            if page is None or not page.is_whole:
                return None
            self._page, self._identity = page, page_identity(self._path)
        return self._page if self._page.state in BELIEVED else None


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
