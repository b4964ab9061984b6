"""The system call ``futex`` on 32-bit words in shared memory; see futex(2).

If the system refuses the call, waiters poll.
"""

from __future__ import annotations

import errno
import platform
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    import ctypes

_NUMBERS: Final = {"x86_64": 202, "aarch64": 98}
"""The number of the system call, by machine, from the kernel's tables."""
_UNKNOWN: Final = 0xF_FFFF
"""A number that no system defines, so that the call is refused."""
_WAIT: Final = 0
_WAKE: Final = 1
_ALL: Final = 0x7FFF_FFFF
_NAP_S: Final = 50e-6
_NO_MORE: Final = frozenset({errno.ENOSYS, errno.EPERM, errno.EACCES})


@attrs.define
class Futex:
    """Waits for a change of one word, and wakes its waiters.

    Waiting releases the interpreter lock. Waking keeps it, since the call is shorter than a
    switch of threads.
    """

    _number: int
    _address: int
    _waits: Callable[..., int]
    _wakes: Callable[..., int]
    _timespec: Callable[[int, int], object]
    _kept: object

    def wait(self, value: int, timeout_s: float) -> bool:
        """Sleep until woken, if the word equals ``value``; ``False`` if the system refuses that.

        May return early, for example after a signal.
        """
        import ctypes

        seconds = max(timeout_s, 0.0)
        timeout = self._timespec(int(seconds), int(seconds % 1 * 1e9))
        if self._waits(self._number, self._address, _WAIT, value, timeout, None, 0) == 0:
            return True
        return ctypes.get_errno() not in _NO_MORE

    def sleep(self, value: int, timeout_s: float) -> None:
        """As :meth:`wait`, but sleep briefly if the system refuses the call."""
        if not self.wait(value, timeout_s):
            time.sleep(min(timeout_s, _NAP_S))

    def wake(self, most: int = _ALL) -> None:
        """Wake at most ``most`` waiters of the word."""
        self._wakes(self._number, self._address, _WAKE, most, None, None, 0)


def futex(memory: memoryview, at: int) -> Futex:
    """A futex at byte ``at`` of writable, shared ``memory``.

    :param at: a multiple of 4
    """
    is_64_bit = sys.maxsize > 1 << 32
    number = _NUMBERS.get(platform.machine(), _UNKNOWN) if is_64_bit else _UNKNOWN
    import ctypes  # importing it takes longer than opening a store, and few processes wait

    kept = ctypes.c_uint32.from_buffer(memory, at)
    return Futex(number, ctypes.addressof(kept), *_calls(), ctypes.c_long * 2, kept)


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
