"""Questions of one kind: one thread answers them, and all that wait share one effort."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from threading import Thread
from typing import Any, Final, Generic, TypeAlias, TypeVar

from lakelog.attach.attached import Client
from lakelog.attach.packets import Nonsense
from lakelog.errors import LakelogError, ThreadNotStarted
from lakelog.gate import Gate
from lakelog.threads import started

MOST_ASKED: Final = 64
"""How many questions of one process may wait at once; the process itself sees to that."""
_MOST_CHARACTERS: Final = 1000
_LOG: Final = logging.getLogger("lakelog")

Asked = TypeVar("Asked")
Answer: TypeAlias = Mapping[str, Any]


class Lane(Generic[Asked]):
    """One thread, from the first question on.

    :param name: the thread's
    :param answer: gives an answer to each of some questions; what it raises is the answer to all
    """

    def __init__(self, name: str, answer: Callable[[Sequence[Asked]], Sequence[Answer]]) -> None:
        self._name = name
        self._answer = answer
        self._waiting: deque[tuple[Client, int, Asked]] = deque()
        self._counts = Counter[Client]()
        self._changed = Gate()
        self._thread: Thread | None = None
        self._ended = False

    def add(self, client: Client, number: int, asked: Asked) -> None:
        """``client`` asks; raises :class:`~lakelog.attach.packets.Nonsense`."""
        with self._changed:
            if self._counts[client] >= MOST_ASKED:
                raise Nonsense(f"{MOST_ASKED} questions wait already")
            if self._thread is None:
                try:
                    self._thread = started(Thread(target=self._run, name=self._name, daemon=True))
                except ThreadNotStarted as error:
                    client.say(id=number, **failed(error))
                    return
            self._counts[client] += 1
            self._waiting.append((client, number, asked))
            self._changed.notify_all()

    def _run(self) -> None:
        while waiting := self._next():
            answers = self._answers([asked for _, _, asked in waiting])
            for (client, number, _), answer in zip(waiting, answers, strict=True):
                client.say(id=number, **answer)

    def _answers(self, asked: Sequence[Asked]) -> Sequence[Answer]:
        try:
            return _one_for_each(asked, self._answer(asked))
        except LakelogError as error:
            return [failed(error)] * len(asked)
        except Exception as error:  # noqa: BLE001  # logged, and the answer to each of these; the next ones are asked all the same
            _LOG.exception("questions of attached processes cannot be answered")
            return [failed(error)] * len(asked)

    def _next(self) -> list[tuple[Client, int, Asked]]:
        with self._changed:
            while not (self._waiting or self._ended):
                self._changed.wait()
            waiting = list(self._waiting)
            self._waiting.clear()
            self._counts.clear()
            return waiting

    def end(self) -> None:
        """Answer what was asked, then stop."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()


def _one_for_each(asked: Sequence[object], answers: Sequence[Answer]) -> Sequence[Answer]:
    if len(answers) != len(asked):
        raise ValueError(f"{len(answers)} answers to {len(asked)} questions")
    return answers


def failed(error: Exception) -> Answer:
    """The answer where it could not be done."""
    return {"failed": (str(error) or repr(error))[:_MOST_CHARACTERS]}
