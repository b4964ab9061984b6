"""Systemd's notifications: what ``serve`` tells its manager, and what its services tell ``serve``.

A datagram of lines ``NAME=VALUE`` to the Unix socket that ``NOTIFY_SOCKET`` names, a path or, with
``@`` in front, a name of Linux's abstract namespace; see sd_notify(3). ``READY=1``, ``STOPPING=1``,
``STATUS=TEXT`` and ``WATCHDOG=1`` are used here; the latter has to come again within
``WATCHDOG_USEC``, where that is set.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

import attrs

SOCKET: Final = "NOTIFY_SOCKET"
WATCHDOG_US: Final = "WATCHDOG_USEC"
WATCHDOG_PID: Final = "WATCHDOG_PID"
READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
WATCHDOG: Final = "WATCHDOG=1"
STATUS: Final = "STATUS="

_LONGEST: Final = 4096
_CREDENTIALS: Final = struct.Struct("iII")
"""Of Linux: process, user and group of the sender, filled in by the kernel."""


@attrs.frozen
class Notifier:
    """Tells the manager of this process; nobody, where there is none.

    :ivar address: of the socket; ``None`` where nobody listens
    :ivar watchdog_seconds: how long ``WATCHDOG=1`` may stay away; ``None`` if nobody waits for it
    """

    address: str | None = None
    watchdog_seconds: float | None = None

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Notifier:
        """What the environment says; what has another process in mind is no concern of ours."""
        address = environ.get(SOCKET) or None
        period = environ.get(WATCHDOG_US, "")
        ours = environ.get(WATCHDOG_PID, str(os.getpid())) == str(os.getpid())
        if address is None or not ours or not period.isdecimal() or int(period) == 0:
            return cls(address)
        return cls(address, int(period) / 1e6)

    def tell(self, *lines: str) -> bool:
        """Send ``lines``; whether somebody took them. Never waits, and never raises."""
        if self.address is None:
            return False
        name = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(lines).encode(), name)
            return True
        return False


class Ear:
    """Where one service may tell how it is; others than our own user are not heard."""

    def __init__(self) -> None:
        self._socket = socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind("")  # Linux picks a free abstract name

    @property
    def address(self) -> str:
        """For ``NOTIFY_SOCKET``."""
        name: bytes = self._socket.getsockname()
        return "@" + name[1:].decode()

    def fileno(self) -> int:
        """To wait for."""
        return self._socket.fileno()

    def lines(self) -> Iterator[str]:
        """What was said since the last call."""
        room = socket.CMSG_SPACE(_CREDENTIALS.size)
        while True:
            try:
                data, notes, _, _ = self._socket.recvmsg(_LONGEST, room)
            except OSError:  # nothing more, as a rule
                return
            if _is_ours(notes):
                yield from data.decode(errors="replace").splitlines()

    def close(self) -> None:
        """Hear no more."""
        self._socket.close()


def _is_ours(notes: list[tuple[int, int, bytes]]) -> bool:
    for level, kind, data in notes:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            _, user, _ = _CREDENTIALS.unpack(data)
            return user in (0, os.getuid())
    return False
