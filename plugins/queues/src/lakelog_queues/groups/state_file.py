"""The file ``lakelog/groups/NAME.state`` of a group: 8-byte words that its members map and change.

It is state of this boot, never synced while in use. A program that cuts it can kill the members.
A file of another boot (unless its last member left it whole), a copy, or a damaged one is replaced
by an empty one. Words in machine byte order::

    word    0  magic and version; words 1 and 2 the boot id; word 3 the inode; word 4 their CRC-32
    word    5  lock of the turn, and word 6 lock of commits: u32 waited, u32 sequence
    word    7  intent: the number of words from word 32 on, pairs of a place and its new value
    word    8  not 0 if the last member left: bit 32, and the CRC-32 of the words from word 10 on
    word    9  time of that, in ms since boot
    word   10  end of the allocated words, word 11 of the used ones; word 12 first free slot
    word   13  first slot of a list that is being freed
    word   14  newest queue, and word 15 the number of queues
    word   16  newest member, and word 17 the number of the next one
    word   18  hash of the subscription, and word 512 its text; word 19 counts joins and ends
    word 1024  slots of 8 words: of leases, members and queues (lakelog_queues.groups.state)

A change is made in the turn: it is written as the intent, applied, and cleared. Whoever has the
next turn applies an intent that is left, after a kill or an exception. So each is made whole.

The turn is a lock on a byte of the file. Another byte is locked by each member while it lives.
"""

from __future__ import annotations

import fcntl
import os
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, ParamSpec, TypeVar
from urllib.parse import quote
from weakref import finalize
from zlib import crc32

import attrs

from lakelog.errors import LakelogError, StoreClosed, StoreError
from lakelog.files.filesystem import File, FileSystem
from lakelog.format.layout import OWN_DIR
from lakelog.processes.locks import (
    ByteLock,
    Holder,
    is_locked,
    set_lock,
    unlock_all,
    wait_lock,
)
from lakelog.processes.ownership import open_of_members
from lakelog.runtime.locks import Mutex

GROUPS_DIR: Final = "groups"
SUFFIX: Final = ".state"
_MAGIC: Final = 0x6C6B_6C67_7270_0001
_MAGIC_AT, _BOOT_AT, _INODE_AT, _CHECK_AT = 0, 1, 3, 4
_TURN_AT, _COMMITS_AT = 5, 6
INTENT, CLEAN, STOPPED_MS, CAPACITY, USED, FREE, DROPPED = range(7, 14)
QUEUES, QUEUE_COUNT, MEMBERS, NEXT_MEMBER, SUBSCRIPTION, GENERATION = range(14, 20)
_INTENT_AT: Final = 32
_TEXT_AT: Final = 512
TEXT_BYTES: Final = 4096 - 8
FIRST_SLOT: Final = 1024
SLOT: Final = 8
"""Words of a slot. The first is 0 unless it is a lease; the last links slots."""
_LEAST_WORDS: Final = 8192
NONE: Final = (1 << 64) - 1
_IS_CLEAN: Final = 1 << 32
# Bytes of the file that are locked, far beyond its end.
_TURN_BYTE: Final = 1 << 40
_COMMITS_BYTE: Final = _TURN_BYTE + 1
MEMBERS_BYTE: Final = 1 << 41
_PATIENCE_S: Final = 60.0
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_LONGEST_NAME: Final = 200
_DAMAGED: Final = "it is damaged"
P = ParamSpec("P")
T = TypeVar("T")


def state_path(path: Path, scope: str) -> Path:
    """The file of the state ``scope`` in the store directory ``path``."""
    name = quote(scope, safe="", errors="surrogatepass")
    if len(name) > _LONGEST_NAME:
        name = f"{name[:100]}~{sha256(name.encode()).hexdigest()}"
    return path / OWN_DIR / GROUPS_DIR / f"{name}{SUFFIX}"


class Section:
    """Runs functions one at a time, among all threads and processes that have the file open.

    An exception of a signal handler may come out of :meth:`run` at any point; the lock is released.
    """

    def __init__(self, lock: ByteLock, path: Path) -> None:
        self.path = path
        self._lock = lock
        self._take, self._give, self._waited = lock.take, lock.give, lock.waited
        self._mutex = Mutex()
        self._is_busy = self._is_closed = False

    def run(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Return ``work(*arguments)``; it must not call :meth:`run`.

        Raises :class:`~lakelog.errors.StoreError` in a signal handler that interrupted such a call,
        and if a stopped process has the lock for a minute.
        """
        with self._mutex:
            if self._is_busy or self._is_closed:
                raise self._refusal()
            # No signal handler runs between the begin of the last block and the unlocking.
            try:
                self._is_busy = True
                if self._take():
                    self._wait()
                self._prepare()
                return work(*arguments, **named)
            finally:
                self._is_busy = False
                self._give()
                if self._waited[0]:
                    self._lock.wake()

    def run_here(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """As :meth:`run`, without the lock of other processes."""
        with self._mutex:
            if self._is_busy or self._is_closed:
                raise self._refusal()
            try:
                self._is_busy = True
                return work(*arguments, **named)
            finally:
                self._is_busy = False

    def hold(self) -> None:
        """Lock until the file is closed."""
        if self._take():
            self._wait()

    def _wait(self) -> None:
        if not self._lock.acquire(_PATIENCE_S):
            raise StoreError(
                f"{self._lock.holder()} keeps its lock; continue or end that process",
                path=self.path,
            )

    def _refusal(self) -> LakelogError:
        if self._is_closed:
            return StoreClosed("the consumer is closed", path=self.path)
        return StoreError(
            "a signal handler interrupted a call of the same consumer, and cannot make another "
            "one; make it after the handler",
            path=self.path,
        )

    def _prepare(self) -> None:
        """Called with the lock."""

    def close(self) -> None:
        """Refuse further calls, once the present one is over."""
        with self._mutex:
            self._is_closed = True

    def forked(self) -> None:
        """In a forked child: another thread of the parent may have held the lock of threads."""
        self._mutex = Mutex()


class StateFile(Section):
    """The file, opened by one member; a second object has its own locks, also in one process.

    :ivar words: all words of the file; read at any time, changed by functions in :meth:`run`
    :ivar commits: the turn of those that compare and change committed offsets
    """

    def __init__(self, file: File) -> None:
        """Use a file that is valid; :func:`opened` and :func:`existing` make one."""
        self._file = file
        self._close = finalize(self, file.close)  # a consumer that was dropped is no member
        head = memoryview(file.map(FIRST_SLOT * 8, writable=True))
        super().__init__(ByteLock(file, _TURN_BYTE, head, _TURN_AT * 8), file.path)
        commits = ByteLock(file, _COMMITS_BYTE, head, _COMMITS_AT * 8)
        self.commits = Section(commits, file.path)
        self.words = head.cast("Q")
        self._remap()

    def _prepare(self) -> None:
        if self.words[CAPACITY] != len(self.words):
            self._remap()
        if self.words[INTENT] or self.words[DROPPED]:
            self.repair()

    def _remap(self) -> None:
        count = self.words[CAPACITY]
        self.words = memoryview(self._file.map(count * 8, writable=True)).cast("Q")

    def check_length(self) -> None:
        """Raise ``StoreError`` if another program has cut the file: its map would end the process.

        Called once a second: to look before each change would cost more than most of them.
        """
        if self._file.size() < len(self.words) * 8:
            raise StoreError(
                "another program has cut the file; close all members of the group, and subscribe "
                "again: it goes on at its committed offsets",
                path=self.path,
            )

    def repair(self) -> None:
        """Finish what a killed member, or an exception, left half done."""
        words = self.words
        redo(words)
        while slot := words[DROPPED]:
            self.apply([slot, 0, DROPPED, words[slot + 7], slot + 7, words[FREE], FREE, slot])

    def apply(self, changes: list[int]) -> None:
        """Change words, all or none of them: pairs of a place and a value."""
        words, count = self.words, len(changes)
        words[_INTENT_AT : _INTENT_AT + count] = array("Q", changes)
        words[INTENT] = count
        for at in range(0, count, 2):
            words[changes[at]] = changes[at + 1]
        words[INTENT] = 0

    def unused(self, count: int = 1) -> tuple[int, list[int]]:
        """A slot to use, and the changes that take it; several adjacent ones with ``count``.

        Raises ``StoreError`` if there is no room.
        """
        words = self.words
        slot = words[FREE] if count == 1 else 0
        if slot:
            return slot, [FREE, words[slot + 7]]
        slot = words[USED]
        end = slot + count * SLOT
        while end > self.words[CAPACITY]:
            self._grow()
        return slot, [USED, end]

    def free(self, slot: int, changes: list[int]) -> None:
        """Free a slot together with the changes that unlink it."""
        self.apply([*changes, slot, 0, slot + 7, self.words[FREE], FREE, slot])

    def drop(self, first: int, changes: list[int]) -> None:
        """Free a list of slots together with the changes that unlink it."""
        self.apply([*changes, DROPPED, first])
        self.repair()

    def _grow(self) -> None:
        count = self.words[CAPACITY]
        try:
            self._file.allocate(count * 8, count * 8)
        except OSError as error:
            raise StoreError(
                f"the state of the group cannot grow ({error}); free some space", path=self.path
            ) from error
        self.words[CAPACITY] = 2 * count
        self._remap()

    # --- members ---

    def take_member(self, number: int) -> bool:
        """Lock the byte of a member; ``False`` if another one has that number."""
        return set_lock(self._file, MEMBERS_BYTE + number, fcntl.F_WRLCK)

    def is_member(self, number: int) -> bool:
        """Whether another living member has that number."""
        return is_locked(self._file, MEMBERS_BYTE + number, fcntl.F_WRLCK)

    # --- the subscription ---

    @property
    def text(self) -> str:
        """The text of the subscription, of which the end may be missing."""
        data = self.words[_TEXT_AT:FIRST_SLOT].tobytes()
        return data[8 : 8 + self.words[_TEXT_AT]].decode(errors="ignore")

    def set_text(self, text: str) -> None:
        """Keep a text, in the turn."""
        data = text.encode()[:TEXT_BYTES]
        count = -(-len(data) // 8)
        self.words[_TEXT_AT] = len(data)
        padded = data.ljust(8 * count, b"\0")
        self.words[_TEXT_AT + 1 : _TEXT_AT + 1 + count] = array("Q", padded)

    # --- end ---

    def mark_clean(self, now_ms: int) -> None:
        """Let the state outlive this boot; in the turn, by the last member."""
        words = self.words
        words[STOPPED_MS] = now_ms
        words[CLEAN] = _IS_CLEAN | _check_of(words)
        with suppress(OSError):  # then the check fails after a power cut
            self._file.sync()

    def close(self) -> None:
        """Release the locks; the maps, which stay, would keep them.

        Raises :class:`~lakelog.errors.StoreError` in a signal handler that interrupted a change.
        """
        for each in (self, self.commits):
            if each._is_busy and each._mutex.is_mine():
                raise self._refusal()
            Section.close(each)
        if self._file.fileno() >= 0:  # it is open
            unlock_all(self._file)
        self._end()

    def forked(self) -> None:
        """Close the child's copy of the file; the parent keeps its locks."""
        for each in (self, self.commits):
            Section.forked(each)
            Section.close(each)
        self._end()

    def _end(self) -> None:
        self._file.close()
        self._close.detach()  # not before: after an exception it closes the file


def redo(words: memoryview) -> None:
    """Make the change that a killed member, or an exception, left half done."""
    for at in range(_INTENT_AT, _INTENT_AT + words[INTENT], 2):
        words[words[at]] = words[at + 1]
    words[INTENT] = 0


def _check_of(words: memoryview) -> int:
    used = words[CAPACITY : words[USED]]
    return crc32(used[: _INTENT_AT - CAPACITY], crc32(used[FIRST_SLOT - CAPACITY :]))


def _own_words(file: File) -> array[int]:
    """The first words of the file, on this boot."""
    boot = bytes.fromhex(_BOOT_ID.read_text().strip().replace("-", ""))
    found = array("Q", [_MAGIC, 0, 0, os.fstat(file.fileno()).st_ino, 0])
    found[_BOOT_AT:_INODE_AT] = array("Q", boot)
    found[_CHECK_AT] = crc32(found[:_CHECK_AT])
    return found


def is_of_boot(file: File, words: memoryview) -> bool:
    """Whether words that were read from ``file`` are of this boot, and this file."""
    own = _own_words(file)
    return array("Q", words[: len(own)]) == own


def existing(files: FileSystem, path: Path, scope: str) -> StateFile | None:
    """The state of a group, by its name, if members of this boot have used it."""
    try:
        file = files.open(state_path(path, scope), write=True)
    except FileNotFoundError:
        return None
    try:
        own = _own_words(file)
        if file.read_at(0, len(own) * 8) == own.tobytes():
            return StateFile(file)
    except BaseException:
        file.close()
        raise
    file.close()
    return None


@attrs.frozen
class StateOpening:
    """Opens the file of a group for a member.

    :ivar now_ms: the time since boot
    :ivar is_whole: whether what the words say fits together
    :ivar warn: called with the path and the reason, if a file is replaced that was in use
    """

    files: FileSystem
    now_ms: Callable[[], int]
    is_whole: Callable[[memoryview], bool]
    warn: Callable[[Path, str], None]

    def opened(self, path: Path, scope: str) -> StateFile:
        """Open it, or create it; raises ``OSError``."""
        where = state_path(path, scope)
        self.files.make_dir(where.parent, durable=False)
        while True:
            file = self._file(path, where)
            try:
                if self._is_ready(file, where):
                    return StateFile(file)
            except BaseException:
                file.close()
                raise
            file.close()

    def _file(self, path: Path, where: Path) -> File:
        """The file, also if its name was removed while members live."""
        try:
            return self.files.open(where, write=True)
        except FileNotFoundError:
            name = str(where.relative_to(path))
            used = open_of_members(self.files, path, name, write=True)
            return used or self.files.open(where, write=True, create=True)

    def _is_ready(self, file: File, where: Path) -> bool:
        """Whether the file is valid, or was made so; ``False`` if another one has its name now.

        The turn is held meanwhile, until the file is closed or :class:`StateFile` has used it.
        """
        if not wait_lock(file, _TURN_BYTE, _PATIENCE_S):
            who = Holder(file, _TURN_BYTE)
            raise StoreError(f"{who} keeps its lock; continue or end that process", path=where)
        with suppress(FileNotFoundError):
            if not os.path.samestat(os.stat(where), os.fstat(file.fileno())):
                return False
        own = _own_words(file)
        if file.size() == 0:
            _create(file, own)
        else:
            fault = self._fault(file, own)
            if fault is not None:
                if fault:
                    self.warn(where, fault)
                with suppress(FileNotFoundError):
                    self.files.unlink(where)
                return False
        set_lock(file, _TURN_BYTE, fcntl.F_UNLCK)
        return True

    def _fault(self, file: File, own: array[int]) -> str | None:
        """Why the file does not count; empty if that needs no warning, ``None`` if it counts."""
        size = file.size()
        if not any(file.read_at(0, 8)):
            return ""  # its creator was killed
        if size < _LEAST_WORDS * 8 or size % 8:
            return _DAMAGED
        words = memoryview(file.map(size, writable=True)).cast("Q")
        found = array("Q", words[: len(own)])
        bounds = FIRST_SLOT, words[USED], words[CAPACITY], len(words)
        if (
            found[_MAGIC_AT] != _MAGIC
            or found[_CHECK_AT] != crc32(found[:_CHECK_AT])
            or list(bounds) != sorted(bounds)
            or words[INTENT] > _TEXT_AT - _INTENT_AT
        ):
            return _DAMAGED
        if found[_INODE_AT] != own[_INODE_AT]:
            return "it is a copy"
        try:
            return self._fault_in(file, words, own, is_of_boot=found == own)
        except IndexError:
            return _DAMAGED

    def _fault_in(
        self, file: File, words: memoryview, own: array[int], *, is_of_boot: bool
    ) -> str | None:
        """As :meth:`_fault`; a file that no member uses is checked, and brought to this boot."""
        if not is_of_boot and words[CLEAN] != _IS_CLEAN | _check_of(words):
            return ""  # the end of that boot was a power cut
        if any(is_locked(file, byte, fcntl.F_WRLCK) for byte in _member_bytes(words)):
            return None
        words[CLEAN] = 0
        redo(words)
        if not self.is_whole(words):
            return _DAMAGED
        if not is_of_boot:
            since, now_ms = words[STOPPED_MS], self.now_ms()
            for slot in range(FIRST_SLOT, words[USED], SLOT):
                if words[slot]:
                    words[slot + 3] = max(words[slot + 3] - since, 0) + now_ms
            words[_BOOT_AT : len(own)] = own[_BOOT_AT:]
        return None


def _member_bytes(words: memoryview) -> Iterator[int]:
    """The bytes that members keep locked; raises ``IndexError``."""
    slot, most = words[MEMBERS], len(words)
    while slot and most:
        yield MEMBERS_BYTE + (words[slot + 1] & 0xFFFF_FFFF)
        slot, most = words[slot + 7], most - SLOT


def _create(file: File, own: array[int]) -> None:
    file.allocate(_LEAST_WORDS * 8)
    words = memoryview(file.map(_LEAST_WORDS * 8, writable=True)).cast("Q")
    words[CAPACITY], words[USED], words[NEXT_MEMBER] = _LEAST_WORDS, FIRST_SLOT, 1
    words[_BOOT_AT : len(own)] = own[_BOOT_AT:]
    words[_MAGIC_AT] = own[_MAGIC_AT]
