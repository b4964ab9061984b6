"""Questions of one process that wait for the owner's word, over the owners that come and go.

An owner that dies leaves its questions to the next one: each may be asked twice, and what it asks
for is the same however often it is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import count
from threading import Lock
from typing import Any, Final

from lakelog.attach.call import Question
from lakelog.attach.lane import MOST_ASKED
from lakelog.attach.link import Link

_NUMBERS: Final = count(1)


class Asking:
    """Asks no more at once than the owner hears, and the rest when answers come."""

    def __init__(self) -> None:
        self._asked: dict[int, Question] = {}
        self._later: deque[Question] = deque()
        self._mutex = Lock()

    def __bool__(self) -> bool:
        """Whether any waits."""
        return bool(self._asked or self._later)

    def ask(self, what: Mapping[str, Any], link: Link) -> Question:
        """One more; it is done once :meth:`hear` hears its answer."""
        question = Question(what, next(_NUMBERS))
        with self._mutex:
            self._later.append(question)
            self._send(link)
        return question

    def again(self, link: Link) -> None:
        """There is another owner: ask it everything."""
        with self._mutex:
            self._later.extendleft(reversed(self._asked.values()))
            self._asked.clear()
            self._send(link)

    def _send(self, link: Link) -> None:
        while self._later and len(self._asked) < MOST_ASKED:
            question = self._later[0]
            if not link.ask(question.said):
                return
            self._asked[question.number] = self._later.popleft()

    def hear(self, said: Mapping[str, Any], link: Link) -> None:
        """The owner said something; an answer, maybe."""
        with self._mutex:
            number = said.get("id")
            question = self._asked.pop(number, None) if isinstance(number, int) else None
            self._send(link)
        if question is not None:
            question.heard = dict(said)
            question.settle(None)

    def give_up(self) -> list[Question]:
        """Nobody comes who could answer; those that wait, and wait no more here."""
        with self._mutex:
            left = [*self._asked.values(), *self._later]
            self._asked.clear()
            self._later.clear()
            return left
