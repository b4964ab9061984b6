"""Who is at the other end of a socket, by the word of the kernel."""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress
from typing import Final

import attrs

_UCRED: Final = struct.Struct("iII")
"""``struct ucred``: process, user, group."""
_SO_PEERGROUPS: Final = 59
"""Of Linux since 4.13, on every machine but old ones that nobody runs Python on."""
_MOST_GROUPS: Final = 65_536
_ROOT: Final = 0


@attrs.frozen
class Peer:
    """A process, as it was when it connected.

    :ivar groups: its group and its supplementary groups
    """

    pid: int
    uid: int
    groups: frozenset[int]

    @classmethod
    def of(cls, connected: socket.socket) -> Peer:
        """Whoever made this connection."""
        data = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        pid, uid, gid = _UCRED.unpack(data)
        return cls(pid, uid, _groups(connected) | {gid})

    def may_attach(self, group_id: int | None) -> bool:
        """Whether it is this process's own user, root, or of the group ``group_id``."""
        return self.uid in (os.geteuid(), _ROOT) or group_id in self.groups


def _groups(connected: socket.socket) -> frozenset[int]:
    with suppress(OSError):
        data = connected.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 1024)
        return frozenset(struct.unpack(f"{len(data) // 4}I", data))
    return frozenset()
