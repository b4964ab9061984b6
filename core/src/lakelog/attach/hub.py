"""The owner's side of attaching: puts together the door, the service of the rings, and the answers.

Threads: one at the socket, one that empties the rings, and one for questions once there is one.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lakelog.access import group_number
from lakelog.appender import Appender
from lakelog.attach.attached import Attached, Client
from lakelog.attach.door import Door
from lakelog.attach.hello import APPEND_CALLBACK, Hello, Welcome, as_said, understood
from lakelog.attach.packets import Nonsense, send
from lakelog.attach.peer import Peer
from lakelog.attach.place import forget, listen
from lakelog.attach.questions import Questions
from lakelog.attach.service import Service
from lakelog.codec.limits import Limits
from lakelog.commitlog import CommitLog
from lakelog.forks import tell_of_forks
from lakelog.settings.model import AttachSettings, StoreSettings

if TYPE_CHECKING:
    from lakelog.consumers.offsettable import OffsetTable
    from lakelog.ring.reading import RingReader
    from lakelog.ring.taken import Taken

MOST_JOINED_BYTES: Final = 4 << 20
"""The most that becomes one append; at most a quarter of a segment, which a roll wastes."""
_ENTRY_EXTRA_BYTES: Final = 8 << 10
"""More than an entry of one record has around it."""
_ALIGNMENT: Final = 4096
CLOSING: Final = "the owner closes the store"


class Hub:
    """Lets processes attach to one open store."""

    def __init__(
        self,
        path: Path,
        appender: Appender,
        log: CommitLog,
        offsets: OffsetTable,
        core: StoreSettings,
        attach: AttachSettings,
    ) -> None:
        self._path = path
        self._log = log
        self._born_end = 0
        self._core = core
        self._limits = Limits.of(core.max_message_size_bytes, core.segment_size_bytes)
        self._ring_bytes = _ring_bytes(attach.ring_bytes, self._limits)
        self._attach = attach
        most_bytes = min(MOST_JOINED_BYTES, core.segment_size_bytes // 4)
        self._service = Service(appender.append_then, self._settle_retry, most_bytes)
        self._questions = Questions(appender.flush, offsets)
        self._door: Door | None = None
        self._closed = False

    def start(self) -> None:
        """Listen, if the settings say so; where that fails, nothing of it stays.

        Raises what :func:`~lakelog.attach.place.listen` does, ``OSError``, and
        :class:`~lakelog.errors.ThreadNotStarted`.
        """
        self._born_end = self._log.appended
        attach = self._attach
        group = self._core.group
        group_id = None if group is None else group_number(group)
        with ExitStack() as undo:
            listening = listen(self._path, group_id) if attach.listen else None
            if listening is not None:
                undo.callback(forget, self._path)
                undo.callback(listening.close)
            self._service.start()
            undo.callback(self._service.close)
            undo.callback(self._service.end)
            door = Door(listening, group_id, self)
            undo.callback(door.close)
            door.start()
            undo.pop_all()
        self._door = door
        tell_of_forks(self)

    def in_process(self) -> socket.socket:
        """A connected end for a producer of this process, whether anybody listens or not."""
        assert self._door is not None  # it was started
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._door.bring(here)
        return there

    def clients(self) -> tuple[Attached, ...]:
        """Who is attached now."""
        return tuple(each.seen() for each in self._service.clients)

    # --- the door's desk ---

    def admit(
        self, connection: socket.socket, peer: Peer, said: Mapping[str, Any] | None
    ) -> Client:
        """Make a ring for whoever says hello."""
        hello = understood(Hello, said)
        if self._core.append != APPEND_CALLBACK:
            raise Nonsense(
                f"its records are made by the append callback {self._core.append!r}; only "
                f"processes beside an owner with {APPEND_CALLBACK!r} can make theirs"
            )
        memory, reader = self._ring(peer)
        bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        client = Client(connection, peer, hello.producer, reader, bell)
        try:
            welcome = Welcome.of(self._core, os.getpid(), self._ring_bytes)
            send(connection, as_said(welcome), [memory, bell])
        except OSError:
            os.close(bell)
            raise
        finally:
            os.close(memory)
        self._service.enter(client)
        return client

    def _ring(self, peer: Peer) -> tuple[int, RingReader]:
        """The memory's descriptor, and this end of the ring.

        Bodies of the owner's own user are taken as they are: it could write the files by itself.
        """
        from lakelog.ring.checks import Checks
        from lakelog.ring.memory import make_memory, map_memory
        from lakelog.ring.reading import RingReader

        core = self._core
        light = core.max_light_queues if core.light_queues else None
        checks = Checks(
            self._limits,
            sealed=core.record_crc,
            max_light_queues=light,
            verify_bodies=peer.uid != os.geteuid(),
        )
        memory = make_memory(self._ring_bytes)
        mapped = map_memory(memory, self._ring_bytes)
        return memory, RingReader(mapped, checks, self._service.arena)

    def ask(self, client: Client, said: Mapping[str, Any]) -> None:
        """Something else than puts."""
        self._questions.ask(client, said)

    def gone(self, client: Client) -> None:
        """No more of this one."""
        self._service.leave(client)

    def _settle_retry(self, taken: Taken) -> None:
        from lakelog.ring.retry import settle_retry

        settle_retry(taken, self._read)

    def _read(self, offset: int, length: int) -> memoryview:
        """The log up to where this owner began: what is behind that, no other one has written."""
        size = self._core.segment_size_bytes
        end = min(self._born_end, offset + length, (offset // size + 1) * size)
        return self._log.segments.view(offset, end - offset) if offset < end else memoryview(b"")

    # --- end ---

    def close(self) -> None:
        """Answer what was taken, tell the rest, let go; before the appender is closed."""
        if self._closed or self._door is None:
            return
        self._closed = True
        if self._attach.listen:
            forget(self._path)
        self._door.end()
        self._service.end()
        self._questions.end()
        for client in self._service.clients:
            client.say(closing=CLOSING)
        self._let_go()

    def _let_go(self) -> None:
        self._service.close()
        if self._door is not None:
            self._door.close()

    def forked(self) -> None:
        """In a forked child: the parent's end must be seen when the parent ends."""
        if not self._closed:
            self._closed = True
            self._let_go()


def _ring_bytes(wanted: int, limits: Limits) -> int:
    """Room for two of the largest records at least."""
    least = 2 * (limits.record_bytes + _ENTRY_EXTRA_BYTES)
    return (max(wanted, least) + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
