"""Locks that the processes of a store share, and the list of all locks of a store.

Most are open-file-description locks on bytes of the file ``lock`` (fcntl(2), ``F_OFD_SETLK``). The
kernel releases them when the holder dies, and they need no shared memory that a dead process could
corrupt. They conflict with POSIX locks, Java's included, and with a second open in the same
process. Closing another descriptor of the file does not release them. A forked child closes its
copy of the descriptor, which would keep them alive. They belong to the open file: so each process
opens ``lock`` itself, and a lock in memory separates its threads.

Bytes of ``lock``, in the order in which a process that takes several takes them::

    5         exclusive  recovery, and closing the store  membership.SET_UP
    0         shared     having the store open            ownership.OPEN; exclusive: alone
    16        exclusive  the services                     ownership.SERVICES
    2, 3      shared     the page is valid; not leaving   ownership.PUBLISHED, membership.STAYING
    1         exclusive  the queues are complete          ownership.FOLLOWED; none of these three
                                                          is awaited
    8         exclusive  an append in plain Python        commit_log.APPENDING, in AppendSection
    10        exclusive  making a segment                 open_log.MAKING
    9         exclusive  a sync                           commit_log.SYNCING, in GroupSync
    11        exclusive  replacing a file of ``config/``  lakelog_queues.configs
    2^32 + n  exclusive  the life of the process n        shared_page.LIFE_AT

Locks in memory, between the threads of one process, each before the bytes that it goes with:
``AppendSection.local`` before byte 8, ``GroupSync._leading`` before byte 9, that of
:class:`ProcessLock` before byte 10. ``DispatchRunner.paused`` is taken before all of them, and no
thread appends or syncs while it holds one of the short ones: ``Segments._keeping`` (maps),
``CheckpointKeeper._lock``, ``Health._lock``. ``LogFiles._syncing`` encloses
``LogFiles._committing``; a group sync takes both inside of byte 9. Members of groups lock bytes of
the files in ``groups``, see ``lakelog_queues.groups.state_file``.

The store's directory is locked too (flock(2)), shared, by each process that shares byte 0. So if a
cleaner of temporary files removes ``lock``, the next process finds those that have it open, and
opens the same file through ``/proc``, see :func:`ownership.open_lock`. RocketMQ does not look at
that lock.

The lock and unlock calls of :class:`ByteLock` do not block, and keep the interpreter lock.
Releasing it inside the section could cost milliseconds to get it back, while all other processes
wait. A waiter sleeps at a futex word (futex(2)), which is incremented on release. A dead holder
does not increment it, so no sleep is longer than :data:`LONGEST_SLEEP_S`. If the system refuses the
call, waiters poll.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import platform
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from lakelog.files.filesystem import File, with_path
from lakelog.runtime.locks import YieldLock

if TYPE_CHECKING:
    import ctypes

Result = TypeVar("Result")
FLOCK: Final = Struct("hhqqi4x")
"""``struct flock`` of 64-bit Linux: type, whence, start, length, pid."""


def set_lock(file: File, at: int, kind: int) -> bool:
    """Set, convert or release this open file's lock on byte ``at``, without blocking.

    :param kind: ``F_RDLCK`` for shared, ``F_WRLCK`` for exclusive, ``F_UNLCK`` to release
    :returns: whether it was done; on a conflict the former lock stays

    Raises ``OSError`` if the system does not support such locks.
    """
    try:
        fcntl.fcntl(file.fileno(), fcntl.F_OFD_SETLK, FLOCK.pack(kind, os.SEEK_SET, at, 1, 0))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise with_path(error, "lock", file.path) from None
    return True


_TURN_S: Final = 0.001
_AGING: Final = 10
"""After a wait of a second, sleeps are a tenth of the longest one."""
_LOOK_S: Final = 0.5


def wait_lock(file: File, at: int, timeout_s: float, longest_s: float = 0.05) -> bool:
    """Lock byte ``at`` exclusively, for longer work; ``False`` on timeout.

    Also ``False`` if the process that holds it is stopped, see :class:`Holder`. Waiters poll. Their
    sleeps grow up to ``longest_s``: hundreds of them must not use up the processors. Then they
    shrink, so that who has waited for long is not passed by all who come later. Raises as
    :func:`set_lock`.
    """
    begun, turn_s, holder = time.monotonic(), _TURN_S, Holder(file, at)
    while not set_lock(file, at, fcntl.F_WRLCK):
        waited_s = time.monotonic() - begun
        if waited_s >= timeout_s or holder.is_stopped():
            return False
        time.sleep(max(_TURN_S, min(turn_s, longest_s / (1 + _AGING * waited_s))))
        turn_s *= 2
    return True


class Holder:
    """The process that keeps a byte locked, for a thread that waits for it.

    It is found among the locks of all open files in ``/proc``, see ``proc_pid_fdinfo(5)``: the
    kernel does not return the process of an open-file-description lock.

    :ivar stopped_pid: the process that :meth:`is_stopped` has found
    """

    def __init__(self, file: File, at: int) -> None:
        self._file = file
        self._at = at
        self._look_at = time.monotonic() + _LOOK_S
        self._pid: int | None = None
        self.stopped_pid: int | None = None

    def is_stopped(self) -> bool:
        """Whether it is stopped, and was at an earlier look; looks are :data:`_LOOK_S` apart."""
        if self.stopped_pid is not None and is_stopped(self.stopped_pid):
            return True
        self.stopped_pid, now = None, time.monotonic()
        if now >= self._look_at:
            self._look_at = now + _LOOK_S
            before, pid = self._pid, holder_pid(self._file, self._at)
            self._pid = pid if pid is not None and is_stopped(pid) else None
            if self._pid == before:
                self.stopped_pid = before
        return self.stopped_pid is not None

    def __str__(self) -> str:
        pid = holder_pid(self._file, self._at)
        return "another process" if pid is None else described(pid)


def holder_pid(file: File, at: int) -> int | None:
    """The process that has byte ``at`` locked; ``None`` if it is not seen in ``/proc``."""
    found, names = os.fstat(file.fileno()), list[str]()
    with suppress(OSError):  # for want of descriptors: the wait goes on
        names = os.listdir("/proc")
    for pid in (int(name) for name in names if name.isdigit()):
        if pid != os.getpid():
            with suppress(OSError):  # it has ended, or is another user's
                for each in os.listdir(f"/proc/{pid}/fd"):
                    with suppress(OSError):
                        is_it = os.path.samestat(os.stat(f"/proc/{pid}/fd/{each}"), found)
                        if is_it and has_locked(f"/proc/{pid}/fdinfo/{each}", at):
                            return pid
    return None


def has_locked(fdinfo: str, at: int) -> bool:
    """Whether an open file has a lock on byte ``at``: ``lock: 1: OFDLCK ... START END``.

    Raises ``OSError`` if it cannot be read, as of another user's process.
    """
    for line in Path(fdinfo).read_text().splitlines():
        if line.startswith("lock:"):
            *_, start, end = line.split()
            if int(start) <= at and (end == "EOF" or at <= int(end)):
                return True
    return False


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped, by a signal or by a debugger."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    return False


def described(pid: int) -> str:
    """A process for error messages: its number, its command, and whether it is stopped."""
    text, stopped = f"process {pid}", ", which is stopped," if is_stopped(pid) else ""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\x00")
        command = b" ".join(words).decode(errors="replace")
        text += f" ({' '.join(command.split())[:80]})"
    return text + stopped


def unlock_all(file: File) -> None:
    """Release all locks of this open file; raises ``OSError``."""
    fcntl.fcntl(file.fileno(), fcntl.F_OFD_SETLK, FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0))


def lock_directory(directory: File, kind: int) -> bool:
    """Set or convert this open directory's lock by ``flock``, without blocking.

    :param kind: ``LOCK_SH`` or ``LOCK_EX``
    :returns: whether it was done, or the file system refuses such locks (NFS: on anything that is
        not open for writing). On a conflict nothing is locked any more: a conversion releases first
    """
    try:
        fcntl.flock(directory.fileno(), kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_FLOCK:
            raise with_path(error, "lock", directory.path) from None
    return True


_NO_FLOCK: Final = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)


def is_locked(file: File, at: int, kind: int) -> bool:
    """Whether a lock of another open file on byte ``at`` conflicts with one of ``kind``.

    Raises ``OSError`` if the system does not support such locks.
    """
    asked = FLOCK.pack(kind, os.SEEK_SET, at, 1, 0)
    try:
        answer = fcntl.fcntl(file.fileno(), fcntl.F_OFD_GETLK, asked)
    except OSError as error:
        raise with_path(error, "look at the locks of", file.path) from None
    return bool(FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


_NUMBERS: Final = {"x86_64": 202, "aarch64": 98}
"""The number of the system call, by machine, from the kernel's tables."""
_UNKNOWN: Final = 0xF_FFFF
"""A number that no system defines, so that the call is refused."""
_WAIT: Final = 9
_WAKE: Final = 10
"""``FUTEX_WAIT_BITSET``, which waits until a time, and ``FUTEX_WAKE_BITSET``."""
_ALL_BITS: Final = 0xFFFF_FFFF
_ALL: Final = 0x7FFF_FFFF
_NAP_S: Final = 50e-6
_NO_MORE: Final = frozenset({errno.ENOSYS, errno.EPERM, errno.EACCES})


@attrs.define(eq=False, repr=False)
class Futex:
    """Waits for a change of one word, and wakes its waiters.

    A waiter reads :attr:`value`, checks what it waits for once more, and sleeps if the word still
    has that value. Whoever moves that calls :meth:`change`, then :meth:`wake`. Waiting releases the
    interpreter lock. Waking keeps it, since the call is shorter than a switch of threads.
    """

    _number: int
    _address: int
    _waits: Callable[..., int]
    _wakes: Callable[..., int]
    _timespec: Callable[[int, int], object]
    _word: ctypes.c_uint32

    @property
    def value(self) -> int:
        """The word."""
        return self._word.value

    def change(self) -> None:
        """Add 1 to the word, modulo 2^32."""
        self._word.value += 1

    def wait(self, value: int, timeout_s: float, bits: int = _ALL_BITS) -> bool:
        """Sleep until woken, if the word equals ``value``; ``False`` if the system refuses that.

        May return early, for example after a signal.

        :param bits: only a :meth:`wake` with one of these bits wakes this thread
        """
        import ctypes

        until_ns = time.monotonic_ns() + int(max(timeout_s, 0.0) * 1e9)
        until = self._timespec(*divmod(until_ns, 1_000_000_000))
        if self._waits(self._number, self._address, _WAIT, value, until, None, bits) == 0:
            return True
        return ctypes.get_errno() not in _NO_MORE

    def sleep(self, value: int, timeout_s: float) -> None:
        """As :meth:`wait`, but sleep briefly if the system refuses the call."""
        if not self.wait(value, timeout_s):
            time.sleep(min(timeout_s, _NAP_S))

    def wake(self, most: int = _ALL, bits: int = _ALL_BITS) -> None:
        """Wake at most ``most`` waiters of the word, which have one of ``bits``."""
        self._wakes(self._number, self._address, _WAKE, most, None, None, bits)


def futex(memory: memoryview, at: int) -> Futex:
    """A futex at byte ``at`` of writable, shared ``memory``.

    :param at: a multiple of 4
    """
    is_64_bit = sys.maxsize > 1 << 32
    number = _NUMBERS.get(platform.machine(), _UNKNOWN) if is_64_bit else _UNKNOWN
    import ctypes  # importing it takes longer than opening a store, and few processes wait

    word = ctypes.c_uint32.from_buffer(memory, at)
    return Futex(number, ctypes.addressof(word), *_calls(), ctypes.c_long * 2, word)


@cache
def _calls() -> tuple[Callable[..., int], Callable[..., int]]:
    """``syscall`` without and with the interpreter lock."""
    import ctypes

    return _call(ctypes.CDLL(None, use_errno=True)), _call(ctypes.PyDLL(None))


def _call(library: ctypes.CDLL) -> Callable[..., int]:
    """``syscall`` from a private copy of the library, since its types are set here."""
    import ctypes

    call = library["syscall"]
    call.restype = ctypes.c_long
    call.argtypes = [
        *(ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32),
        *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32),
    ]
    return call


_BARRIERS: Final = {"x86_64": 324, "aarch64": 283}
_QUERY: Final = 0
_GLOBAL: Final = 1


def can_fence_all() -> bool:
    """Whether :func:`fence_all` works here."""
    return _membarrier(_QUERY) & _GLOBAL != 0


def fence_all() -> bool:
    """Have all running threads of the machine execute a memory barrier (membarrier(2)).

    Takes some milliseconds. ``False`` if the system refuses it.
    """
    return _membarrier(_GLOBAL) == 0


def _membarrier(command: int) -> int:
    """The result; 0 for a refused query, -1 for another refused call."""
    number = _BARRIERS.get(platform.machine(), _UNKNOWN)
    done = _calls()[0](number, command, 0, 0, None, None, 0)
    return max(done, 0) if command == _QUERY else done


LONGEST_SLEEP_S: Final = 0.002
_TRIES: Final = 5
"""Attempts before the first sleep: most sections are over by then."""


class ProcessLock:
    """A byte lock for longer work, with a local lock between the threads of a process.

    As a context manager, it may stay locked if a signal handler raises where the block begins or
    ends. That is right only for a file that is closed then; else use :meth:`run`.
    """

    def __init__(self, file: File, at: int) -> None:
        self._file = file
        self._at = at
        self._local = YieldLock()

    def run(self, work: Callable[[], Result]) -> Result:
        """Call ``work`` with the lock acquired, and return its result.

        What runs inside of ``work``, such as a finalizer, may call this, too.
        """
        if self._local.is_mine():
            return work()
        try:
            self.__enter__()
            return work()
        finally:
            try:
                self.__exit__()
            except BaseException:  # of a signal handler, maybe before the release
                self.__exit__()
                raise

    def __enter__(self) -> None:
        """Acquire it."""
        try:
            self._local.acquire()
            if not wait_lock(self._file, self._at, math.inf, _TURN_S):
                holder = Holder(self._file, self._at)
                why = f"{holder} keeps byte {self._at} of it locked: continue or end that process"
                raise OSError(errno.ETIMEDOUT, why, str(self._file.path))
        except BaseException:  # Ctrl-C too
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        """Release it, if this thread has it."""
        if not self._local.is_mine():
            return
        for _try in range(2):  # retry: a byte that stays locked blocks all processes
            with suppress(OSError):
                set_lock(self._file, self._at, fcntl.F_UNLCK)
                break
        self._local.release()


class ByteLock:
    """A byte lock for short sections of threads of several processes; not fair, not reentrant.

    :ivar take: tries to lock; 0 on success. Bound to the system's function, since a Python frame
        costs a tenth of a short section
    :ivar give: unlocks; call :meth:`wake` afterwards if :attr:`waited` is set
    :ivar waited: the first number is not 0 while a thread may sleep
    """

    def __init__(self, file: File, at: int, shared: memoryview, words_at: int) -> None:
        """Prepare; nothing is locked yet.

        :param file: opened by this process itself, for writing
        :param at: the position of the byte in ``file``
        :param shared: memory mapped by all processes; the 8 bytes at ``words_at``, a multiple of 4,
            belong to this lock and are 0 at first
        """
        self._file = file
        self._at = at
        self.take, self.give, self._kept = _lock_calls(file.fileno(), at)
        self.waited = shared[words_at : words_at + 4].cast("I")
        self._futex = futex(shared, words_at + 4)

    def acquire(self, timeout_s: float) -> bool:
        """Acquire the lock; ``False`` on timeout.

        Raises ``OSError`` if the system does not support such locks.
        """
        take, waited = self.take, self.waited
        for _ in range(_TRIES):
            if not take():
                return True
        if set_lock(self._file, self._at, fcntl.F_WRLCK):  # raises if not supported
            return True
        deadline = time.monotonic() + timeout_s
        while True:
            seen = self.ask()
            if not take():
                return True
            if (left := deadline - time.monotonic()) <= 0:
                return False
            self.sleep(seen, min(left, LONGEST_SLEEP_S))
            if not take():
                waited[0] = 1  # the wake-up cleared the flag, and others may still sleep
                return True

    def holder(self) -> Holder:
        """The process that has it, for a thread that waits."""
        return Holder(self._file, self._at)

    def ask(self) -> int:
        """Set the waiting flag; return the argument ``seen`` of :meth:`sleep`.

        The caller tries once more to lock before it sleeps.
        """
        seen = self._futex.value
        self.waited[0] = 1
        return seen

    def sleep(self, seen: int, seconds: float) -> None:
        """Sleep until woken, at most ``seconds``."""
        self._futex.sleep(seen, seconds)

    def release(self) -> None:
        """Release the lock, and wake one waiter."""
        self.give()
        if self.waited[0]:
            self.wake()

    def wake(self) -> None:
        """Wake one waiter; called after :attr:`give`."""
        self.waited[0] = 0
        self._futex.change()
        self._futex.wake(1)


def _lock_calls(descriptor: int, at: int) -> tuple[Callable[[], int], Callable[[], int], object]:
    """Functions that lock and unlock byte ``at``, and the memory that they use."""
    lock, unlock = (
        FLOCK.pack(kind, os.SEEK_SET, at, 1, 0) for kind in (fcntl.F_WRLCK, fcntl.F_UNLCK)
    )
    import ctypes

    call = ctypes.PyDLL(None)["fcntl"]
    kept = ctypes.create_string_buffer(lock), ctypes.create_string_buffer(unlock)
    words = ctypes.c_int(descriptor), ctypes.c_int(fcntl.F_OFD_SETLK)
    take, give = (partial(call, *words, ctypes.c_void_p(ctypes.addressof(each))) for each in kept)
    return take, give, kept
