"""Chooses a queue for messages that name none: round robin over the queues of the topic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import count, islice


class RoundRobin:
    """A counter per topic; safe to use from several threads."""

    def __init__(self, queues_per_topic: int) -> None:
        self._queues = queues_per_topic
        self._turns: defaultdict[str, Iterator[int]] = defaultdict(count)

    def choose(self, topic: str) -> int:
        """The next queue id for ``topic``, from 0."""
        return next(self._turns[topic]) % self._queues

    def choose_many(self, topic: str, number: int) -> list[int]:
        """The queue ids for the next ``number`` messages of ``topic``."""
        return [turn % self._queues for turn in islice(self._turns[topic], number)]
