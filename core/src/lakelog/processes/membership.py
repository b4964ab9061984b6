"""The processes that have a store open for writing: each shares byte 0 of ``lock``.

RocketMQ locks byte 0 exclusively (``DefaultMessageStore.start``). So RocketMQ cannot start while
one of these processes lives, and none of them can open the store while RocketMQ runs.

A process that joins takes a shared lock on byte 0. From then on nobody can recover the store or
have it alone. If another process then has byte ``ownership.PUBLISHED`` locked, the shared page is
valid, and stays so: the process has joined, and waited for nobody. In the reverse order the last
member could die between the two steps, and RocketMQ could append.

Otherwise it takes :data:`SET_UP`, and then tries to make its lock on byte 0 exclusive. If that
succeeds, no other process has the store open, regardless of the files: the process recovers the
store before others may join. The kernel converts a lock in one step.

A process that leaves unlocks :data:`STAYING`, and then looks whether another one has that locked.
If so, it leaves: of several that leave at once, the one that unlocks last sees nobody. That one
takes :data:`SET_UP`, and waits until it has byte 0 exclusively, and then closes the store, or until
somebody stays.

``lock`` is only a name, which may be removed while the store is open. So members share a lock on
the directory too, and a process that finds itself alone must get it exclusively. If it cannot,
it opens the file that the members have, through ``/proc``, and begins again with that one.

``tests/protocol/joining.py`` checks this with deaths at every step.

A process alone appends without the append lock. A process that joins sets a word of the shared
page, and wakes the :class:`MemberWatch` of the others, a thread that releases full segments. Once
the process is alone again, the thread clears the word.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from threading import Thread, current_thread
from typing import Final

import attrs

from lakelog.errors import StoreError, StoreLocked
from lakelog.files.filesystem import File, FileSystem, lacks_resources
from lakelog.format.layout import LOCK_CONTENT, LOCK_FILE
from lakelog.processes import ownership
from lakelog.processes.locks import (
    Holder,
    can_fence_all,
    futex,
    is_locked,
    lock_directory,
    set_lock,
    unlock_all,
    wait_lock,
)
from lakelog.processes.shared_page import SEVERAL, SharedPage
from lakelog.runtime.forks import register_forked
from lakelog.runtime.threads import Shortage, started

SET_UP: Final = 5
"""The byte that a process locks while it may be alone: it recovers the store, or closes it."""
STAYING: Final = 3
"""The byte that the members share which have not begun to leave."""
LEAVE_SECONDS: Final = 60.0
_DYING_S: Final = 1.0
ALONE: Final = "alone"
"""The key in the shared page for the reason why a process excludes others."""


@attrs.define(eq=False, repr=False)
class Membership:
    """One process's membership in a store; the system ends it with the process.

    :ivar is_alone: whether this was the only process at the last check; no other one joins
        until :meth:`let_in`
    :ivar is_parting: whether it has begun to leave
    :ivar is_open: whether it has not ended
    """

    path: Path
    is_alone: bool
    file: File
    _directory: File
    is_parting: bool = attrs.field(default=False, init=False)
    is_open: bool = attrs.field(default=True, init=False)

    @classmethod
    def join(cls, files: FileSystem, path: Path, timeout_s: float) -> Membership:
        """Become a member: beside others, with a valid shared page; or alone.

        Alone, no other process joins or leaves until :meth:`let_in`, which is called in both cases.

        :param timeout_s: how long another may take to recover the store, or to close it as the last

        Raises :class:`~lakelog.errors.StoreLocked` if another program has the store, or on timeout.
        """
        end = time.monotonic() + timeout_s
        while True:
            file = ownership.open_lock(files, path, write=True, create=True)
            try:
                membership = cls(path, False, file, files.open_dir(path))
            except BaseException:
                file.close()
                raise
            register_forked(membership)
            try:
                if membership._is_beside_others():
                    return membership
                membership._begin(end - time.monotonic())
                # Shared first, then exclusive: the byte is never free in between, so RocketMQ
                # cannot take it if the last other member dies now. A failed conversion keeps the
                # shared lock.
                if not membership._set(ownership.OPEN, fcntl.F_RDLCK):
                    raise _taken(files, path)
                if membership._is_let_in(files):
                    if not membership.is_alone:
                        membership._set(SET_UP, fcntl.F_UNLCK)
                    elif membership.file.size() == 0:
                        membership.file.write_at(0, LOCK_CONTENT)
                    return membership
                membership.leave()
            except BaseException:  # Ctrl-C too
                membership.forked()
                raise

    @classmethod
    def alone(cls, files: FileSystem, path: Path, why: str | None = None) -> Membership:
        """Become the only member; no other process joins until :meth:`let_in`.

        :param why: why this process excludes others, for their error message

        Raises :class:`~lakelog.errors.StoreLocked` if another process has it open.
        """
        membership = cls.join(files, path, 1.0)
        if not membership.is_alone:
            membership.leave()
            raise ownership.locked(files, path, why and f", and {why}{ownership.CLOSE_IT}")
        return membership

    def _set(self, at: int, kind: int) -> bool:
        return set_lock(self.file, at, kind)

    def _is_beside_others(self) -> bool:
        """Join without waiting, if another member shows that the page is valid."""
        if not self._is_shared(ownership.PUBLISHED):  # only a look
            return False
        if self._set(ownership.OPEN, fcntl.F_RDLCK):
            if lock_directory(self._directory, fcntl.LOCK_SH) and self._is_vouched_for():
                return True
            self._unlock()
        return False

    def _is_vouched_for(self) -> bool:
        """Whether the shared page is valid; byte 0 and the directory are locked already.

        Another process with a valid page has both locks still, since it unlocks the file first. So
        nobody recovered the store, or had the directory exclusively, since that process joined.
        """
        if not self._is_shared(ownership.PUBLISHED):
            return False
        self.publish()
        return True

    def _is_shared(self, at: int) -> bool:
        """Whether another member has byte ``at`` locked."""
        return is_locked(self.file, at, fcntl.F_WRLCK)

    def _begin(self, timeout_s: float) -> None:
        begun = time.monotonic()
        if not wait_lock(self.file, SET_UP, timeout_s):
            raise StoreLocked(
                f"{Holder(self.file, SET_UP)} has been opening or closing this store for "
                f"{time.monotonic() - begun:.1f} s: it recovers, or hangs; wait, or end "
                "it",
                path=self.path,
            )

    def _is_let_in(self, files: FileSystem) -> bool:
        """Lock the directory; ``False`` if the members have, or will have, another ``lock``.

        Tried for :data:`_DYING_S`: the locks of a killed process end one after the other. Raises
        :class:`~lakelog.errors.StoreLocked` if the members' file cannot be opened.
        """
        end = time.monotonic() + _DYING_S
        while True:
            self.is_alone = self._set(ownership.OPEN, fcntl.F_WRLCK)
            kinds = (fcntl.LOCK_EX, fcntl.LOCK_SH) if self.is_alone else (fcntl.LOCK_SH,)
            if all(lock_directory(self._directory, kind) for kind in kinds):
                if self.is_alone:  # not in a file without a name: the next one makes a new one
                    return os.fstat(self.file.fileno()).st_nlink > 0
                if self._is_vouched_for():  # else it looks whether it can join, or has just died
                    return True
            used = ownership.open_of_members(files, self.path, LOCK_FILE, at=ownership.OPEN)
            if used is not None:
                with closing(used):
                    if not os.path.samestat(*(os.fstat(f.fileno()) for f in (used, self.file))):
                        return False
            if time.monotonic() >= end:
                self.leave()
                raise ownership.locked(files, self.path, ownership.CANNOT_JOIN)
            time.sleep(_JOIN_S)

    def let_in(self, *, share: bool = True) -> None:
        """End the joining; alone, allow others to join and leave: the shared state is complete.

        :param share: whether they may have the store open beside this process
        """
        if share:
            self.is_alone = False  # first: others may be there from the next line on
            self.publish()
            self._set(STAYING, fcntl.F_RDLCK)
            self._set(ownership.OPEN, fcntl.F_RDLCK)
        self._set(SET_UP, fcntl.F_UNLCK)

    def publish(self) -> None:
        """Publish that the shared page is valid, for readers."""
        self._set(ownership.PUBLISHED, fcntl.F_RDLCK)

    def take_services(self) -> bool:
        """Take the services (dispatching, deletion, checkpoint); ``False`` if another has them."""
        return self._set(ownership.SERVICES, fcntl.F_WRLCK)

    def drop_services(self) -> None:
        """Release the services."""
        self._set(ownership.FOLLOWED, fcntl.F_UNLCK)
        self._set(ownership.SERVICES, fcntl.F_UNLCK)

    def set_followed(self) -> None:
        """Publish whether the queues are complete and follow the log, for readers."""
        self._set(ownership.FOLLOWED, fcntl.F_WRLCK)

    def if_alone(self, action: Callable[[], None]) -> None:
        """Call ``action`` if no other process has the store open; none can join meanwhile."""
        if not self._is_shared(STAYING) and self._set(SET_UP, fcntl.F_WRLCK):
            try:
                if self._set(ownership.OPEN, fcntl.F_WRLCK):
                    action()
                    self._set(ownership.OPEN, fcntl.F_RDLCK)
            finally:
                self._set(SET_UP, fcntl.F_UNLCK)

    def part(self, timeout_s: float) -> bool:
        """Begin to leave; :meth:`leave` follows.

        :returns: whether this is the last process, which has to close the store: no process joins
            until it has left

        Raises :class:`~lakelog.errors.StoreLocked` on timeout.
        """
        self.is_alone = False
        if not self._others_stay():
            self._set(STAYING, fcntl.F_RDLCK)  # others that leave now need not wait
            self._begin(timeout_s)
            end, holder = time.monotonic() + timeout_s, Holder(self.file, ownership.OPEN)
            while not (self._others_stay() or self._is_only_one()):
                if time.monotonic() >= end or holder.is_stopped():
                    raise StoreLocked(f"{holder} has not left this store", path=self.path)
                time.sleep(_JOIN_S)
            if not self.is_alone:
                self._set(SET_UP, fcntl.F_UNLCK)
        self.is_parting = True
        return self.is_alone

    def _others_stay(self) -> bool:
        """Stay no longer; whether another member stays.

        This order: of several that leave at once, the last one to unlock the byte sees nobody.
        """
        self._set(STAYING, fcntl.F_UNLCK)
        return self._is_shared(STAYING)

    def _is_only_one(self) -> bool:
        self.is_alone = self._set(ownership.OPEN, fcntl.F_WRLCK)
        return self.is_alone

    def leave(self) -> None:
        """End the membership; a second call does nothing."""
        if self.is_open:
            self._unlock()
            self.forked()

    def _unlock(self) -> None:
        """Unlock all: a child between fork and exec may have both files open too.

        The directory is last: who shows that the page is valid has it locked as well.
        """
        with suppress(OSError):
            unlock_all(self.file)
        with suppress(OSError):
            fcntl.flock(self._directory.fileno(), fcntl.LOCK_UN)

    def forked(self) -> None:
        """Close the files; in a forked child, only its copies, since the parent stays a member."""
        if self.is_open:
            self.is_open = False
            self.file.close()
            self._directory.close()


def _taken(files: FileSystem, path: Path) -> StoreLocked:
    """The error for a store in use; called while no process can join or leave."""
    why = None
    if ownership.is_published(files, path):
        with suppress(StoreError, OSError):
            why = SharedPage.join(files, path).settings.get(ALONE)
    why = why or "it is RocketMQ, or repairs or rebuilds the store"
    return ownership.locked(files, path, f" and lets nobody in: {why}{ownership.CLOSE_IT}")


def alone(files: FileSystem, path: Path) -> Membership:
    """Exclude all other processes without opening the store; raises as :meth:`Membership.alone`."""
    found = Membership.alone(files, path)
    found.let_in(share=False)
    return found


_LOG: Final = logging.getLogger("lakelog")
TURN_S: Final = 0.5
"""Seconds between turns; services of a dead process are taken over within this time."""
_JOIN_S: Final = 0.002
_AT: Final = 8 * SEVERAL


class MemberWatch:
    """The watch thread.

    :ivar on_turn: called every :data:`TURN_S`, if set
    """

    def __init__(
        self,
        page: SharedPage,
        lock: Membership,
        let_go: Callable[[], None],
    ) -> None:
        """Prepare; nothing runs yet.

        :param let_go: releases full segments, while several processes append
        """
        self._page = page
        self._lock = lock
        self._let_go = let_go
        self.on_turn: Callable[[], None] | None = None
        self._futex = futex(page.memory, _AT)
        self._bit = 1 << os.getpid() % 31  # a close wakes few threads of other processes
        self._over = False
        self._shortage = Shortage(f"{lock.path}: looking after the other processes is delayed")
        self._thread = Thread(target=self._run, name="lakelog-member", daemon=True)

    def start(self) -> None:
        """Start the thread; raises :class:`~lakelog.errors.ThreadNotStarted`."""
        if not can_fence_all():  # then a process alone must lock, too
            self._page.words[SEVERAL] = 1
        started(self._thread)

    def close(self) -> None:
        """Stop the thread; must not be called from it."""
        self._over = True
        while self._thread.is_alive() and self._thread is not current_thread():
            self._futex.wake(bits=self._bit)  # repeatedly: the thread may be about to sleep
            self._thread.join(_JOIN_S)

    def _run(self) -> None:
        words, seen = self._page.words, 0
        while not self._over:
            self._sleep(seen)
            seen = words[SEVERAL]
            if self._over:
                break
            try:
                if seen:
                    self._let_go()
                    self._lock.if_alone(self._forget_others)
                if self.on_turn is not None:
                    self.on_turn()
                self._shortage.end()
            except Exception as error:  # noqa: BLE001  # the thread must continue, or no joining process could append
                if lacks_resources(error):
                    self._shortage.begin(error)
                else:
                    _LOG.exception("%s: a turn of the watching thread failed", self._lock.path)

    def _sleep(self, seen: int) -> None:
        """Sleep for :data:`TURN_S`, or until another process joins."""
        if not self._futex.wait(seen & 0xFFFF_FFFF, TURN_S, self._bit):
            time.sleep(TURN_S)

    def _forget_others(self) -> None:
        self._page.words[SEVERAL] = not can_fence_all()


def announce(page: SharedPage) -> None:
    """Wake the watch threads of all processes: one has joined, or needs the services."""
    futex(page.memory, _AT).wake()
