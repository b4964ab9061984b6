"""The owner's thread that empties all rings: what is in them becomes one append.

Under load it calls the operating system for nothing but the append. When the rings are empty it
looks at them a moment longer, then says in each that it sleeps, looks once more, and sleeps.
Bells are watched edge by edge and never read: a peer can ring for nothing, and do nothing worse.
"""

from __future__ import annotations

import logging
import os
import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Final, TypeAlias

from lakelog.appender import OF_ONE_MESSAGE, Answer
from lakelog.attach.attached import Client
from lakelog.attach.patience import Patience
from lakelog.codec.encoded import EncodedBatch
from lakelog.errors import LakelogError, OffsetOutOfRange, PutRefused
from lakelog.status import PutStatus
from lakelog.threads import started

if TYPE_CHECKING:
    from lakelog.ring.arena import Arena
    from lakelog.ring.joined import JoinedBatch
    from lakelog.ring.taken import Taken

ANSWER_SECONDS: Final = 30.0
"""How long the end waits for answers that flush strategy and replicator still owe."""
_NAP_SECONDS: Final = 0.1
_LOG: Final = logging.getLogger("lakelog")

Portion: TypeAlias = "tuple[Client, Taken]"
AppendThen: TypeAlias = "Callable[[EncodedBatch, Answer], None]"
SettleRetry: TypeAlias = "Callable[[Taken], None]"
"""Finds out what of an entry that is offered again is in the log, and notes it there."""


class Service:
    """Takes from rings, appends, and answers into the rings.

    :param append_then: the appender's
    :param settle_retry: told of entries that are offered again after an owner's death
    :param most_bytes: the most that becomes one append
    """

    def __init__(self, append_then: AppendThen, settle_retry: SettleRetry, most_bytes: int) -> None:
        self._append_then = append_then
        self._settle_retry = settle_retry
        self._most_bytes = most_bytes
        self.clients: tuple[Client, ...] = ()
        self._patience = Patience()
        self._waiting: set[JoinedBatch] = set()
        self._told: deque[Callable[[], None]] = deque()
        self._bell = -1
        self._arena: Arena | None = None
        self._ended = False
        self._thread = Thread(target=self._run, name="lakelog-attached", daemon=True)

    def start(self) -> None:
        """Begin; where that fails, nothing of it stays."""
        with ExitStack() as undo:
            self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            undo.callback(os.close, self._bell)
            self._bells = select.epoll()
            undo.callback(self._bells.close)
            self._bells.register(self._bell, select.EPOLLIN | select.EPOLLET)
            started(self._thread)
            undo.pop_all()

    # --- told by other threads ---

    def enter(self, client: Client) -> None:
        """Empty this one's ring, too."""
        self._tell(partial(self._enter, client))

    def leave(self, client: Client) -> None:
        """No more of this one: its process is gone."""
        self._tell(partial(self._leave, client))

    def _tell(self, what: Callable[[], None]) -> None:
        self._told.append(what)
        self.ring()

    def ring(self) -> None:
        """Wake the thread."""
        with suppress(OSError):
            os.eventfd_write(self._bell, 1)

    @property
    def arena(self) -> Arena:
        """Where entries are copied to; made for the first client."""
        if self._arena is None:
            from lakelog.ring.arena import Arena

            self._arena = Arena(self._most_bytes)
        return self._arena

    # --- the thread ---

    def _run(self) -> None:
        while not self._ended:
            try:
                self._hear()
                if not self._round():
                    self._rest()
            except Exception as error:  # noqa: BLE001  # logged, and told to all, who are put out; who attaches anew is served
                _LOG.exception("entries of attached processes cannot be served")
                self._put_all_out(error)
                time.sleep(_NAP_SECONDS)  # it may be so at once again

    def _put_all_out(self, error: Exception) -> None:
        """Nobody waits for ever; who attaches again is served again."""
        for client in self.clients:
            if not client.dropped:
                self._fail(client, error)

    def _hear(self) -> None:
        while self._told:
            self._told.popleft()()

    def _enter(self, client: Client) -> None:
        self.clients += (client,)
        self._bells.register(client.bell, select.EPOLLIN | select.EPOLLET)

    def _leave(self, client: Client) -> None:
        client.dropped = True
        if client in self.clients:
            self.clients = tuple(each for each in self.clients if each is not client)
            self._bells.unregister(client.bell)
        client.close()

    def _round(self) -> bool:
        """Append what there is; whether there was anything."""
        portions = list[Portion]()
        left = self._most_bytes
        if self._arena is not None:
            self._arena.reset()
        for client in self.clients:
            if client.reader.waiting() and left > 0 and not client.dropped:
                left -= self._take(client, left, portions)
        if portions:
            self.clients = (*self.clients[1:], self.clients[0])  # another is first next time
            self._append(portions)
        return bool(portions)

    def _take(self, client: Client, most_bytes: int, into: list[Portion]) -> int:
        """Add what ``client`` has; how many bytes."""
        size = 0
        try:
            for taken in client.reader.take(most_bytes):
                client.count(taken.count, taken.record_bytes)
                size += taken.record_bytes
                if not taken.intents or self._is_new(client, taken):
                    into.append((client, taken))
        except LakelogError as error:
            self._drop(client, str(error))
        except Exception as error:  # noqa: BLE001  # that client is put out, the others are served
            _LOG.exception("a check of a ring failed by itself")
            self._fail(client, error)
        return size

    def _is_new(self, client: Client, taken: Taken) -> bool:
        """Whether anything of what is offered again is to be appended; or it has its answer."""
        try:
            self._settle_retry(taken)
            if taken.batch is not None:
                return True
            taken.answer(PutStatus.PUT_OK)  # it is in the log, where the recovery made it durable
        except OffsetOutOfRange as error:  # deleted since: nobody can know any more
            taken.refuse(error)
        client.rouse()
        return False

    def _drop(self, client: Client, why: str) -> None:
        _LOG.warning("process %d is put out: its ring holds nonsense: %s", client.peer.pid, why)
        self._put_out(client, f"its ring holds nonsense: {why}")

    def _fail(self, client: Client, error: Exception) -> None:
        """The fault is the owner's."""
        self._put_out(client, f"the owner failed to serve it: {error!r}")

    def _put_out(self, client: Client, why: str) -> None:
        client.dropped = True
        client.say(dropped=why[:1000])
        client.hang_up()

    def _rest(self) -> None:
        """Look a moment longer, then sleep until somebody rings."""
        if self._patience.comes(self._has_work):
            return
        clients, begun = self.clients, time.perf_counter()
        asleep = [each.reader.sleep() or each.dropped for each in clients]
        if all(asleep) and not self._is_told():
            self._bells.poll()
        for each in clients:
            each.reader.awake()
        self._patience.slept(time.perf_counter() - begun)

    def _is_told(self) -> bool:
        return bool(self._told) or self._ended

    def _has_work(self) -> bool:
        if self._is_told():
            return True
        return True in [each.reader.waiting() and not each.dropped for each in self.clients]

    # --- appending ---

    def _append(self, portions: list[Portion]) -> None:
        """Append together; each by itself where together they cannot be."""
        from lakelog.ring.joined import JoinedBatch

        batch = JoinedBatch([taken for _, taken in portions], self.arena)
        clients = list(dict.fromkeys([client for client, _ in portions]))
        self._waiting.add(batch)
        try:
            self._append_then(batch, partial(self._answered, batch, clients))
        except Exception as error:  # noqa: BLE001  # each put of it is refused, or told that it failed
            self._waiting.discard(batch)
            self._refused(portions, batch, error)

    def _refused(self, portions: list[Portion], batch: JoinedBatch, error: Exception) -> None:
        if isinstance(error, PutRefused) and error.status in OF_ONE_MESSAGE and len(portions) > 1:
            for each in portions:
                self._append([each])
            return
        if not isinstance(error, LakelogError):
            _LOG.error("entries of attached processes cannot be appended", exc_info=error)
        batch.refuse(error)
        for client, _ in portions:
            client.rouse()

    def _answered(
        self, batch: JoinedBatch, clients: Sequence[Client], told: PutStatus | Exception
    ) -> None:
        """In whatever thread knows the outcome."""
        if isinstance(told, PutStatus):
            batch.answer(told)
        else:
            batch.refuse(told)
        for client in clients:
            client.rouse()
        self._waiting.discard(batch)

    # --- end ---

    def end(self) -> None:
        """Take no more, and wait until what was taken has its answers; rings stay as they are."""
        self._ended = True
        self.ring()
        self._thread.join()
        self._hear()
        until = time.monotonic() + ANSWER_SECONDS
        while self._waiting and time.monotonic() < until:
            time.sleep(0.001)

    def close(self) -> None:
        """Let go of all descriptors, also in a forked child."""
        for client in self.clients:
            client.close()
        self.clients = ()
        self._bells.close()
        os.close(self._bell)
