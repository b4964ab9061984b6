"""The owner's thread at the socket: lets processes in, hears what they ask, and sees them go.

It sleeps in ``poll`` while nobody comes or goes, whatever the rings do. Who connects and says
nothing is put out after a while, and there is a bound to how many may be there at once.
"""

from __future__ import annotations

import logging
import os
import resource
import select
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from threading import Thread
from typing import Any, Final, Protocol

import attrs

from lakelog.attach.attached import Client
from lakelog.attach.packets import Nonsense, receive, send
from lakelog.attach.peer import Peer
from lakelog.threads import started

MOST_CONNECTIONS: Final = 512
HELLO_SECONDS: Final = 5.0
"""How long a process may take to say what it wants."""
KEPT_DESCRIPTORS: Final = 64
"""How many the owner keeps for its own files; a quarter of all, where that is less."""
_NAP_SECONDS: Final = 0.1
"""Before another try where this process has no descriptors left."""
_LOG: Final = logging.getLogger("lakelog")
_INPUT: Final = select.POLLIN | select.POLLHUP | select.POLLERR


class Desk(Protocol):
    """What becomes of those who come in; all of it is called by the door's thread."""

    def admit(
        self, connection: socket.socket, peer: Peer, said: Mapping[str, Any] | None
    ) -> Client:
        """Attach a process that said its hello; raises ``Nonsense``, ``OSError``."""

    def ask(self, client: Client, said: Mapping[str, Any]) -> None:
        """An attached process wants something; raises ``Nonsense``."""

    def gone(self, client: Client) -> None:
        """A process is gone, or is not wanted any more."""


@attrs.define(eq=False)
class _Guest:
    """A process that has not said its hello yet."""

    connection: socket.socket
    peer: Peer
    deadline: float


class Door:
    """Waits for processes.

    :param listening: where they connect, if anywhere
    :param group_id: the group that may come in beside the owner's own user
    """

    def __init__(self, listening: socket.socket | None, group_id: int | None, desk: Desk) -> None:
        self._listening = listening
        self._group_id = group_id
        self._desk = desk
        self._guests: dict[int, _Guest] = {}
        self._clients: dict[int, Client] = {}
        self._poll = select.poll()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._brought: list[socket.socket] = []
        self._ended = False
        self._thread = Thread(target=self._run, name="lakelog-attach-door", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._poll.register(self._bell, select.POLLIN)
        if self._listening is not None:
            self._poll.register(self._listening, select.POLLIN)
        started(self._thread)

    def bring(self, connection: socket.socket) -> None:
        """Let in who is connected already."""
        self._brought.append(connection)
        self._ring()

    def _ring(self) -> None:
        with suppress(OSError):
            os.eventfd_write(self._bell, 1)

    # --- the thread ---

    def _run(self) -> None:
        while not self._ended:
            try:
                for number, _ in self._poll.poll(self._patience_ms()):
                    self._serve(number)
                self._put_out_the_silent()
            except Exception:  # noqa: BLE001  # without this thread nobody attaches any more
                _LOG.exception("the socket for attached processes cannot be served")
                time.sleep(_NAP_SECONDS)

    def _patience_ms(self) -> int | None:
        """Until the first guest's time is over; for ever where there is none."""
        if not self._guests:
            return None
        first = min(guest.deadline for guest in self._guests.values())
        return max(0, int(1000 * (first - time.monotonic())) + 100)

    def _serve(self, number: int) -> None:
        if number == self._bell:
            os.eventfd_read(self._bell)
            while self._brought:
                self._greet(self._brought.pop())
        elif self._listening is not None and number == self._listening.fileno():
            self._accept(self._listening)
        elif number in self._guests:
            self._hear_hello(self._guests[number])
        elif number in self._clients:
            self._hear(self._clients[number])

    def _accept(self, listening: socket.socket) -> None:
        try:
            connection, _ = listening.accept()
        except BlockingIOError:
            return
        except OSError:  # no descriptors left: whoever waits goes on waiting
            time.sleep(_NAP_SECONDS)
            return
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if connection.fileno() >= most - min(KEPT_DESCRIPTORS, most // 4):  # the lowest free one
            _refuse(connection, f"it has no descriptors left for more of them (ulimit -n {most})")
        else:
            self._greet(connection)

    def _greet(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        try:
            peer = Peer.of(connection)
        except OSError:  # it has gone
            connection.close()
            return
        if not peer.may_attach(self._group_id):
            _refuse(connection, f"user {peer.uid} may not attach here; see the setting group")
        elif len(self._guests) + len(self._clients) >= MOST_CONNECTIONS:
            _refuse(connection, f"{MOST_CONNECTIONS} processes are attached already")
        else:
            deadline = time.monotonic() + HELLO_SECONDS
            self._guests[connection.fileno()] = _Guest(connection, peer, deadline)
            self._poll.register(connection, _INPUT)

    def _hear_hello(self, guest: _Guest) -> None:
        number = guest.connection.fileno()
        try:
            packet = receive(guest.connection)
            if packet is None:
                self._show_out(guest)
                return
            client = self._desk.admit(guest.connection, guest.peer, packet[0])
        except BlockingIOError:
            return
        except (Nonsense, OSError) as error:
            self._show_out(guest, str(error))
            return
        except Exception as error:  # noqa: BLE001  # told to this process, and the door stays open for others
            _LOG.exception("a process cannot attach")
            self._show_out(guest, f"the owner failed to let it in: {error!r}")
            return
        del self._guests[number]
        self._clients[number] = client

    def _hear(self, client: Client) -> None:
        try:
            packet = receive(client.connection)
            if packet is None:
                self._leave(client)
            elif packet[0] is not None:
                self._desk.ask(client, packet[0])
        except BlockingIOError:
            return
        except (Nonsense, OSError) as error:
            client.say(dropped=str(error))
            self._leave(client)

    def _leave(self, client: Client) -> None:
        number = client.connection.fileno()
        self._poll.unregister(number)
        del self._clients[number]
        self._desk.gone(client)

    def _put_out_the_silent(self) -> None:
        now = time.monotonic()
        for guest in [each for each in self._guests.values() if each.deadline <= now]:
            self._show_out(guest, f"nothing was said in {HELLO_SECONDS:.0f} s")

    def _show_out(self, guest: _Guest, why: str | None = None) -> None:
        number = guest.connection.fileno()
        self._poll.unregister(number)
        del self._guests[number]
        if why is None:
            guest.connection.close()
        else:
            _refuse(guest.connection, why)

    # --- end ---

    def end(self) -> None:
        """Let nobody in any more, and hear nobody; those inside keep their connections."""
        self._ended = True
        self._ring()
        self._thread.join()

    def close(self) -> None:
        """Let go of the descriptors that are the door's own, also in a forked child."""
        os.close(self._bell)
        if self._listening is not None:
            self._listening.close()
        for guest in self._guests.values():
            guest.connection.close()
        for connection in self._brought:
            connection.close()
        self._guests.clear()


def _refuse(connection: socket.socket, why: str) -> None:
    with suppress(OSError):
        send(connection, {"refused": why})
    connection.close()
