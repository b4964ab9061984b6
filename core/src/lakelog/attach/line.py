"""The entries of one producer, in their order, over the owners that come and go.

Each entry keeps its number and its place in the order until it has an answer. When an owner dies,
what it has not answered is offered to the next one in the same order, before anything new, with
the places where the dead one was about to put it: the successor looks there first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lakelog.attach.asking import Asking
from lakelog.attach.call import Call
from lakelog.attach.changes import changes
from lakelog.attach.entrance import Entrance
from lakelog.attach.heir import Heir
from lakelog.attach.link import Link
from lakelog.attach.patience import Patience
from lakelog.attach.turns import Turns
from lakelog.attach.verdicts import dropped, refused, too_large, unknown
from lakelog.errors import EntryTooLarge, LakelogError, PutRefused
from lakelog.status import PutStatus

if TYPE_CHECKING:
    from lakelog.ring.answers import Answer

CLOSED: Final = "the store is closed"
MOST_KEPT: Final = 64
"""How many entries are kept for an owner that has yet to come; further ones wait."""


class Moved(Exception):  # nothing went wrong
    """This process is the owner now: puts go to its own log."""

    def __init__(self, heir: Heir) -> None:
        super().__init__()
        self.heir = heir


Successor: TypeAlias = "Callable[[], tuple[Link, Heir | None]]"


class Line:
    """Puts entries into the ring of whoever is the owner, and settles them.

    :param successor: waits for the next owner; raises why there is none
    :param hand_over: told once, when this process is the owner and everything of before has its
        result; puts raise :class:`Moved` by then
    :ivar link: the connection to the owner, or to the one that is gone
    :ivar dropped: why the owner wants nothing of this producer any more, if so
    """

    def __init__(self, link: Link, successor: Successor, hand_over: Callable[[Heir], None]) -> None:
        self.link = link
        self.dropped: str | None = None
        self._successor = successor
        self._hand_over = hand_over
        self._mutex = Lock()
        self._turns = Turns(self._look)
        self._entrance = Entrance(self._place, self._turns, self._look_around)
        self._patience = Patience()
        self._number = 0
        self._open: deque[Call] = deque()
        self._unsent: deque[Call] = deque()
        self._spoilt: deque[tuple[Call, LakelogError]] = deque()
        self._asking = Asking()
        self._anew: list[Call] = []
        self._changes = ""
        self._lost = False
        self._recalled = False
        self._heir: Heir | None = None
        self._moved = False
        self._closed = False

    # --- entries ---

    def put(self, call: Call) -> None:
        """Publish an entry; waits for room, and nobody else gets in before.

        Raises :class:`Moved`, and :class:`~lakelog.errors.PutRefused` once the owner has put this
        producer out.
        """
        self._entrance.put(call)
        if self._spoilt:
            self._hand_out(())

    def _place(self, call: Call) -> bool:
        with self._mutex:
            if self._heir is not None:
                if self._moved:
                    raise Moved(self._heir)
                return False
            self._check()
            if self._recalled:
                return self._keep(call)
            placed = self._send_again() and self._publish(call)
            self.link.ring()
            return placed

    def _check(self) -> None:
        if self.dropped is not None:
            raise dropped(self.dropped)
        self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, CLOSED)

    def _publish(self, call: Call) -> bool:
        """Into the ring, if there is room; inside the mutex."""
        assert call.offer is not None  # it is an entry
        number = call.sequence or self._number + 1
        try:
            ticket = self.link.writer.put(call.offer, number, call.intents)
        except EntryTooLarge as error:
            self._spoilt.append((call, error))
            return True
        if ticket is None:
            return False
        self._number = max(number, self._number)
        call.sequence = number
        self._open.append(call)
        return True

    def _keep(self, call: Call) -> bool:
        """While there is no owner; inside the mutex."""
        if len(self._unsent) >= MOST_KEPT:
            return False
        self._number += 1
        call.sequence = self._number
        self._unsent.append(call)
        return True

    def _send_again(self) -> bool:
        """Offer what an owner that is gone left; whether all of it is in the ring."""
        while self._unsent:
            if not self._publish(self._unsent[0]):
                return False
            self._unsent.popleft()
        return True

    def wait(self, call: Call) -> None:
        """Until it is known what became of ``call``."""
        if not call.done:
            self._turns.wait(call)

    def is_looking(self) -> bool:
        """Whether this thread looks for answers, and comes out of a callback."""
        return self._turns.is_mine()

    def close(self) -> None:
        """Wait until nothing is open, then take nothing more, and detach; callbacks are over."""
        with self._entrance.closed():
            self._entrance.wait_until(self._is_settled)
            with self._mutex:
                self._closed = True
                self.link.close()
        self._turns.end()

    def _is_settled(self) -> bool:
        return not (self._open or self._unsent or self._asking or self._anew)

    # --- put out ---

    def attach_anew(self) -> None:
        """Where the owner has put this producer out: come back, once what was open has failed.

        What is encoded from then on is encoded as the owner wants it now. Raises
        :class:`~lakelog.errors.PutRefused` where nobody lets us in.
        """
        call = Call()
        with self._mutex:
            if self.dropped is None or self._closed or self._heir is not None:
                return
            self._anew.append(call)
        self._turns.wait(call)
        if call.error is not None:
            raise call.error

    # --- questions ---

    def ask(self, what: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the owner something, and wait for what it says; raises :class:`Moved`."""
        with self._mutex:
            if self._moved and self._heir is not None:
                raise Moved(self._heir)
            self._check()
            question = self._asking.ask(what, self.link)
        self._turns.wait(question)
        if question.error is not None:
            raise question.error
        return question.heard

    def _hear(self, told: Iterable[dict[str, Any]]) -> None:
        for said in told:
            if "dropped" in said:
                self.dropped = str(said["dropped"]) + self._changes
            self._asking.hear(said, self.link)
            self._entrance.tell()

    # --- looking: one thread at a time ---

    def _look(self, call: Call) -> None:
        """Settle whatever is answered, until ``call`` is done."""
        while not call.done:
            if not self._look_once() and not self._patience.comes(self.link.writer.answered):
                self._sleep()
            elif self._asking:
                self._listen()  # answers to puts may come without end, and it would not sleep

    def _look_once(self) -> bool:
        """Whether anything happened."""
        if self._lost:
            self._go_over()
            return True
        return self._settle_answered() or self._move()

    def _look_around(self) -> None:
        """For an answer, or for the owner's end: who looks like this does not sleep."""
        if not self._look_once():
            self._listen()

    def _settle_answered(self) -> bool:
        """Whether there were answers; whoever they are for goes on."""
        if not self.link.writer.answered():
            return False
        with self._mutex:
            settled = self._answered()
            if self._unsent:
                self._send_again()
                self.link.ring()
        self._hand_out(settled)
        return bool(settled)

    def _answered(self) -> list[tuple[Call, Answer]]:
        """Take answers out of the ring; inside the mutex."""
        return [(self._open.popleft(), answer) for answer in self.link.writer.answers()]

    def _hand_out(self, settled: Iterable[tuple[Call, Answer]]) -> None:
        """Outside the mutex, with everything in order: callbacks may put.

        Whoever has the turn hears of room before them: they may have to wait for the turn.
        """
        self._entrance.tell()
        for call, answer in settled:
            call.settle(answer)
        while self._spoilt:
            call, error = self._spoilt.popleft()
            call.settle(None, unknown(error) if call.intents else too_large(error))
        self._move()

    def _sleep(self) -> None:
        writer, begun = self.link.writer, perf_counter()
        if not writer.sleep():
            self._listen()  # the owner may have rung: what nobody hears would fill the socket
            return
        try:
            self._listen(asleep=True)
        finally:
            writer.awake()
            self._patience.slept(perf_counter() - begun)

    def _listen(self, *, asleep: bool = False) -> None:
        try:
            self._hear(self.link.sleep() if asleep else self.link.heard())
        except (EOFError, OSError, ValueError, LakelogError):  # closed sockets raise ValueError
            self._lost = True

    # --- from one owner to the next ---

    def _go_over(self) -> None:
        """Settle what the dead one answered, find its successor, offer it the rest."""
        if not self._recalled:
            self._bury()
        if self.dropped is not None:
            self._give_up(dropped(self.dropped))
        if not self._lost or (self.dropped is not None and not self._anew):
            return  # a callback has been here, or nobody wants to come back
        try:
            self._check_open()
            link, heir = self._successor()
        except LakelogError as error:
            self._give_up(error)
            self._give_up_anew(error)
        else:
            self._join(link, heir)

    def _bury(self) -> None:
        """The last words and answers of an owner that is gone; what is open is taken back."""
        with suppress(EOFError, OSError, LakelogError):
            self._hear(self.link.heard())
        with self._mutex:
            settled = self._answered()
            self._recall()
            self._recalled = True
        self._hand_out(settled)

    def _join(self, link: Link, heir: Heir | None) -> None:
        """From now on there is another owner."""
        with self._mutex:
            self.link.close()
            self._changes = changes(self.link.welcome, link.welcome) if self._unsent else ""
            self.link, self._heir = link, heir
            self._lost = self._recalled = False
            self.dropped = None
            back, self._anew = self._anew, []
            self._send_again()
            self._asking.again(link)
            link.ring()
        for call in back:
            call.settle(None)
        self._hand_out(())

    def _recall(self) -> None:
        """Take back what the ring of the dead one holds, with its intents; inside the mutex."""
        tickets = self.link.writer.unsettled()
        for call, ticket in zip(self._open, tickets, strict=True):
            call.intents = ticket.intents
        self._unsent.extendleft(reversed(self._open))
        self._open.clear()

    def _give_up(self, error: LakelogError) -> None:
        """Nobody comes: say so to all who wait. The next put looks for an owner again."""
        with self._mutex:
            left = list(self._unsent)
            self._unsent.clear()
            asked = self._asking.give_up()
        self._entrance.tell()
        for call in left:
            call.settle(None, unknown(error) if call.intents else refused(error))
        for question in asked:
            question.settle(None, refused(error))
        self._entrance.tell()  # questions are waited for, too
        self._move()

    def _give_up_anew(self, error: LakelogError) -> None:
        with self._mutex:
            left, self._anew = self._anew, []
        for call in left:
            call.settle(None, refused(error))
        self._entrance.tell()

    def _move(self) -> bool:
        """Hand over to this process's own log, once nothing of before is open; whether it did."""
        if self._heir is None or self._moved:
            return False
        with self._mutex:
            if self._moved or self._open or self._unsent:
                return False
            self._moved = True
        self._hand_over(self._heir)
        self._entrance.tell()
        return True

    def forked(self) -> None:
        """In a forked child, where a thread that is gone may hold any lock."""
        self._closed = True
        self.link.close()
