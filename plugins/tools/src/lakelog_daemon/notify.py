"""Systemd's notification protocol: from ``serve`` to its manager, and from services to ``serve``.

Datagrams with lines ``NAME=VALUE``, to the Unix socket named in ``NOTIFY_SOCKET``. That is a path,
or, with a leading ``@``, a name in Linux's abstract namespace; see sd_notify(3). ``READY=1``,
``STOPPING=1``, ``STATUS=TEXT`` and ``WATCHDOG=1`` are used. The last must be repeated within
``WATCHDOG_USEC``, if that is set.
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
"""Linux's sender credentials: process, user and group, filled in by the kernel."""


@attrs.frozen
class Notifier:
    """Sends notifications to the service manager, if there is one.

    :ivar address: address of the socket; ``None`` without a manager
    :ivar watchdog_seconds: longest pause between ``WATCHDOG=1``; ``None`` without a watchdog
    """

    address: str | None = None
    watchdog_seconds: float | None = None

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Notifier:
        """The notifier configured in the environment; a watchdog for another process is ignored."""
        address = environ.get(SOCKET) or None
        period = environ.get(WATCHDOG_US, "")
        ours = environ.get(WATCHDOG_PID, str(os.getpid())) == str(os.getpid())
        if address is None or not ours or not period.isdecimal() or int(period) == 0:
            return cls(address)
        return cls(address, int(period) / 1e6)

    def send(self, *lines: str) -> bool:
        """Send ``lines``; returns whether they were sent. Never blocks or raises."""
        if self.address is None:
            return False
        name = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(lines).encode(), name)
            return True
        return False


class NotifyReceiver:
    """Receives notifications of one service; those of other users are ignored."""

    def __init__(self) -> None:
        self._socket = socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind("")  # Linux chooses a free abstract name

    @property
    def address(self) -> str:
        """The address, for ``NOTIFY_SOCKET``."""
        name: bytes = self._socket.getsockname()
        return "@" + name[1:].decode()

    def fileno(self) -> int:
        """The descriptor to watch."""
        return self._socket.fileno()

    def lines(self) -> Iterator[str]:
        """The lines received since the last call."""
        room = socket.CMSG_SPACE(_CREDENTIALS.size)
        while True:
            try:
                data, notes, _, _ = self._socket.recvmsg(_LONGEST, room)
            except OSError:  # normally: no more datagrams
                return
            if _is_ours(notes):
                yield from data.decode(errors="replace").splitlines()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def _is_ours(notes: list[tuple[int, int, bytes]]) -> bool:
    for level, kind, data in notes:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            _, user, _ = _CREDENTIALS.unpack(data)
            return user in (0, os.getuid())
    return False
