"""What an owner and a process of it tell one another: one JSON text per packet of a socket pair.

A socket of packets (``SOCK_SEQPACKET``) keeps them apart, and an end that is gone reads as an empty
one. The kinds, and who sends them:

======== ========= ===============================================================================
kind     sent by   meaning, and what else the packet has
======== ========= ===============================================================================
start    owner     the first packet: see :mod:`.order`
stop     owner     stop in order; ``finish``: dispatch first what can be read by now
done     owner     answers ``lower``
ready    process   queues and index are complete up to where the log ended when it began
beat     process   it lives; ``last_ms``: store time of the last record that was dispatched
advance  process   durable times, which the checkpoint may claim: ``numbers``, as in its file
lower    process   the checkpoint may claim no index behind ``most_ms``; it waits for ``done``
freeze   process   a sync failed: the checkpoint must not move any more
failed   process   a dispatcher failed: ``text``, ``dispatcher``, ``offset``, ``errno``
log      process   for the owner's log: ``level``, ``name``, ``text``
closed   process   it ends now, and all is flushed; or ``error`` says what was not
======== ========= ===============================================================================
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from threading import Lock
from typing import Any, Final, TypeAlias

Packet: TypeAlias = "dict[str, Any]"
KIND: Final = "kind"
_MOST_BYTES: Final = 1 << 17
_LONGEST_TEXT: Final = 4000


class Channel:
    """One end; any thread may send, one receives."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._sending = Lock()

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """Our end, and the one to hand to a process."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(ours), theirs

    def fileno(self) -> int:
        """The descriptor, to wait at."""
        return self._end.fileno()

    def send(self, kind: str, **more: object) -> None:
        """Send a packet; nothing happens where nobody is at the other end any more.

        A packet that cannot be sent ends the connection: each end takes the other for gone then,
        and neither waits for what was lost.
        """
        packet = json.dumps({KIND: kind, **more}).encode()
        with self._sending:
            try:
                self._end.send(packet)
            except OSError:
                with suppress(OSError):
                    self._end.shutdown(socket.SHUT_RDWR)

    def receive(self) -> Packet | None:
        """The next packet; ``None`` once the other end is gone, or sends what is none."""
        try:
            data = self._end.recv(_MOST_BYTES)
            found = json.loads(data) if data else None
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def close(self) -> None:
        """Let go; the other end sees it."""
        with suppress(OSError):
            self._end.close()


def shortened(text: str) -> str:
    """As much of a text as a packet should have."""
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]} ..."


def numbers(packet: Mapping[str, Any], key: str) -> list[int]:
    """A list of whole numbers in a packet."""
    return [int(each) for each in packet[key]]
