"""The owner's view of one attached process."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs

from lakelog.attach.packets import send, wake
from lakelog.attach.peer import Peer
from lakelog.ring.layout import AT_FREED, AT_TAIL

if TYPE_CHECKING:
    from lakelog.ring.reading import RingReader


@attrs.frozen
class Attached:
    """What can be said of an attached process, for those who watch.

    :ivar producer: its own id, 32 hex digits
    :ivar since_ms: when it attached, in ms since 1970
    :ivar entries: batches and single messages that were taken from it
    :ivar messages: how many messages were in them
    :ivar bytes: length of their records
    :ivar ring_bytes: length of its shared memory
    :ivar ring_used_bytes: how much of that is in use, by its own word
    """

    pid: int
    uid: int
    producer: str
    since_ms: int
    entries: int
    messages: int
    bytes: int
    ring_bytes: int
    ring_used_bytes: int


class Client:
    """One attached process: its connection, its ring, and the bell that it rings.

    Its memory goes when nobody refers to the ring any more: those who still wait for a flush do.

    :ivar dropped: whether nothing is taken from its ring any more
    """

    def __init__(
        self, connection: socket.socket, peer: Peer, producer: str, reader: RingReader, bell: int
    ) -> None:
        self.connection = connection
        self.peer = peer
        self.producer = producer
        self.reader = reader
        self.bell = bell
        self.dropped = False
        self._since_ms = time.time_ns() // 1_000_000
        self._entries = 0
        self._messages = 0
        self._bytes = 0

    def count(self, messages: int, record_bytes: int) -> None:
        """One more entry was taken."""
        self._entries += 1
        self._messages += messages
        self._bytes += record_bytes

    def rouse(self) -> None:
        """Wake it, if it said that it sleeps."""
        if self.reader.producer_sleeps():
            wake(self.connection)

    def say(self, **said: Any) -> None:
        """Tell it something; one that takes nothing any more will hear the end."""
        with suppress(OSError):
            send(self.connection, said)

    def hang_up(self) -> None:
        """The end for the other side; the descriptors stay until :meth:`close`."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of the descriptors."""
        self.connection.close()
        if self.bell >= 0:
            bell, self.bell = self.bell, -1
            os.close(bell)

    def seen(self) -> Attached:
        """What it is and did."""
        size = len(self.reader.memory)
        used = self.reader.words[AT_TAIL] - self.reader.words[AT_FREED]
        return Attached(
            self.peer.pid,
            self.peer.uid,
            self.producer,
            self._since_ms,
            self._entries,
            self._messages,
            self._bytes,
            size,
            min(max(used, 0), size),
        )
