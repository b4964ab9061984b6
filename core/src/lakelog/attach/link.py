"""A producer's connection to an owner: the socket, the bell, and its end of a ring."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from lakelog.attach.hello import Hello, Welcome, as_said, understood
from lakelog.attach.packets import Nonsense, close_all, receive, send
from lakelog.attach.place import connect
from lakelog.errors import AttachRefused, LakelogError, NoOwner

if TYPE_CHECKING:
    from lakelog.ring.writing import RingWriter

GREETING_SECONDS: Final = 10.0
"""How long an owner may take to answer a hello; it takes a millisecond."""
_DESCRIPTORS: Final = 2


@attrs.define(eq=False)
class Link:
    """One connection, used until the owner is gone.

    :ivar welcome: what the owner said
    :ivar writer: this end of the ring
    :ivar bell: wakes the owner
    """

    connection: socket.socket
    welcome: Welcome
    writer: RingWriter
    bell: FileIO

    @classmethod
    def to(cls, path: Path, hello: Hello) -> Link:
        """Attach to the owner of ``path``.

        Raises :class:`~lakelog.errors.NoOwner` and :class:`~lakelog.errors.AttachRefused`.
        """
        return cls.over(connect(path, GREETING_SECONDS), path, hello)

    @classmethod
    def over(cls, connection: socket.socket, path: Path, hello: Hello) -> Link:
        """The same over a connection that is there; it is closed if this fails."""
        got = list[int]()
        try:
            connection.settimeout(GREETING_SECONDS)
            welcome = _greeted(connection, path, hello, got)
            writer = _writer(got[0], welcome.ring_bytes)
            bell = FileIO(os.dup(got[1]), "wb")
            connection.setblocking(False)
            return cls(connection, welcome, writer, bell)
        except OSError as error:
            connection.close()
            raise NoOwner(f"its owner went away ({error})", path=path) from error
        except BaseException:  # Ctrl-C too: the owner would keep a ring for it
            connection.close()
            raise
        finally:
            close_all(got)

    def ring(self) -> None:
        """Wake the owner, if it said that it sleeps."""
        if self.writer.owner_sleeps():
            with suppress(OSError, ValueError):  # it is rung already, or closed
                os.eventfd_write(self.bell.fileno(), 1)

    def ask(self, said: Mapping[str, Any]) -> bool:
        """Say something to the owner; ``False`` where it has to hear other things first.

        One that is gone is found out elsewhere.
        """
        try:
            send(self.connection, said)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def sleep(self) -> Iterator[dict[str, Any]]:
        """Sleep until something comes; what the owner said.

        Raises :class:`EOFError` once the owner is gone.
        """
        watched = select.poll()
        watched.register(self.connection, select.POLLIN)
        watched.poll()
        return self.heard()

    def heard(self) -> Iterator[dict[str, Any]]:
        """What the owner said and nobody heard yet; raises as :meth:`sleep`."""
        while True:
            try:
                packet = receive(self.connection)
            except BlockingIOError:
                return
            if packet is None:
                raise EOFError
            if packet[0] is not None:
                yield packet[0]

    def close(self) -> None:
        """Detach; also for a forked child, whose parent goes on."""
        self.connection.close()
        self.bell.close()


def _greeted(connection: socket.socket, path: Path, hello: Hello, got: list[int]) -> Welcome:
    with suppress(BrokenPipeError):  # it has hung up, and may have said why
        send(connection, as_said(hello))
    packet = receive(connection, descriptors=True)
    if packet is None:
        raise NoOwner("its owner went away", path=path)
    said, descriptors = packet
    got += descriptors
    if said is not None and "refused" in said:
        raise AttachRefused(f"its owner refuses: {said['refused']}", path=path)
    try:
        welcome = understood(Welcome, said)
        if len(got) != _DESCRIPTORS:
            raise Nonsense(f"{len(got)} descriptors came with the welcome")
    except Nonsense as error:
        raise AttachRefused(f"its owner is not understood: {error}", path=path) from error
    return welcome


def _writer(descriptor: int, ring_bytes: int) -> RingWriter:
    from lakelog.ring.memory import map_memory
    from lakelog.ring.writing import RingWriter

    try:
        return RingWriter(map_memory(descriptor, ring_bytes))
    except LakelogError as error:
        raise AttachRefused(f"its owner's ring is not understood: {error}") from error
