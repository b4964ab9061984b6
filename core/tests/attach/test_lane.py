"""Questions that wait together: each gets an answer, whatever answers them does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from queue import Queue
from typing import Any, cast

from lakelog.attach.attached import Client
from lakelog.attach.lane import Lane


class Asking:
    """A client that keeps what it is told."""

    def __init__(self) -> None:
        self.told = Queue[dict[str, Any]]()

    def say(self, **said: Any) -> None:
        self.told.put(said)


def test_too_few_answers_fail_those_who_asked_and_nobody_else() -> None:
    client = Asking()
    answers: list[Sequence[Mapping[str, Any]]] = [[], [{"flushed": 7}]]
    lane = Lane[int]("test-lane", lambda _: answers.pop(0))
    lane.add(cast(Client, client), 1, 0)
    assert client.told.get(timeout=20) == {"id": 1, "failed": "0 answers to 1 questions"}
    lane.add(cast(Client, client), 2, 0)
    assert client.told.get(timeout=20) == {"id": 2, "flushed": 7}
    lane.end()
