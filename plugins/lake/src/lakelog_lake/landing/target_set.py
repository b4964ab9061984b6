"""All tables that passes land in: one, with or without dead letters, or one for each topic.

The table of a topic is created when a pass finds the first record of the topic, before the commits
of that pass. It gets rows from the next pass on. It starts at the topic's first record, as found in
the topic's ConsumeQueues. It starts at the first record of the log instead if there are no such
queues, if they begin behind the record that was found, or if no table has any row yet. So a kill
between these steps loses no row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from typing import Protocol

import attrs

import lakelog
from lakelog_lake.landing.target import Target
from lakelog_lake.log.queue_files import queue_files, topics_of_batches
from lakelog_lake.log.selection import Chosen
from lakelog_lake.log.wanted import LAST
from lakelog_lake.tables.position import Position
from lakelog_lake.tasks.task import Outlet


class TopicTables(Protocol):
    """Finds and creates the table of each topic."""

    def topics(self) -> Iterable[str]:
        """The topics that have a table now."""

    def target(self, topic: str) -> Target:
        """The table of a topic, created if it does not exist."""


class Targets:
    """The tables of a dispatcher; see the module's docstring."""

    def __init__(self, fixed: Iterable[Target] = (), tables: TopicTables | None = None) -> None:
        """Start with the tables ``fixed``; tables of topics are added when found or needed."""
        self._targets = list(fixed)
        self._tables = tables
        self._of_topics: set[str] = set()
        self._met: dict[str, int] = {}
        self._looked = False
        self._read_to = 0

    @property
    def served(self) -> list[Target]:
        """All tables, each table of dead letters before the table it belongs to.

        A table of dead letters without a position starts at the position of its main table. So its
        first position must be committed before the main table's position moves.
        """
        dead = [each.dead_letters for each in self._targets if each.dead_letters is not None]
        return [*dead, *self._targets]

    def landed(self) -> Position | None:
        """The smallest position at the last :meth:`look`; ``None`` without tables."""
        return min((each.landed for each in self.served), key=lambda each: each.end, default=None)

    def outlets(self) -> tuple[Outlet, ...]:
        """The descriptions of the tables for tasks."""
        numbers = {each: number for number, each in enumerate(self.served)}
        return tuple(each.outlet(number, numbers) for each, number in numbers.items())

    def starts(self, at: int) -> list[tuple[Target, int]]:
        """The start of each table after a pass up to ``at``, in the order of :meth:`outlets`.

        A task for a range from ``at`` on writes the same rows before and after the commit of that
        pass: rows behind ``at`` that a table already has are left out, and no record before ``at``
        is read.
        """
        return [(each, max(each.start, at)) for each in self.served]

    def look(
        self, store: lakelog.Store, identity: str, chosen: Chosen, *, accept_gaps: bool
    ) -> int:
        """Read the position of each table; return the start of the next range."""
        asked = _Asked(store, identity, chosen, accept_gaps)
        if self._tables is None or self._looked:
            return self._start(asked)
        self.make(each for each in sorted(self._tables.topics()) if chosen.takes(each))
        start, landed = self._start(asked), self._has_landed(identity)
        self.make(
            topic
            for topic, place in sorted(asked.first_places.items())
            if chosen.takes(topic) and (place < start or not landed)
        )
        self._looked = True
        return self._start(asked)

    def _has_landed(self, identity: str) -> bool:
        return any(each.has_landed(identity) for each in self._targets)

    def may_hold(self, identity: str) -> bool:
        """Whether a table has a position of the store; also true if a table cannot be read."""
        try:
            return any(each.newest(identity).position is not None for each in self.served)
        except Exception:  # noqa: BLE001  # called after an error, which must not be hidden
            return True

    def _start(self, asked: _Asked) -> int:
        landed = self._tables is not None and self._has_landed(asked.identity)
        minimum = asked.store.min_offset
        for target in self._targets:
            topics = target.topics if landed and target.topics is not None else ()
            first = partial(self._first, asked, topics)
            asked.look(target, first)
            dead, at = target.dead_letters, target.start
            if dead is not None:
                first = partial(int, at)
                asked.look(dead, first)
        begun = max(minimum, self._read_to)
        return min((each.start for each in self.served), default=begun)

    def _first(self, asked: _Asked, topics: Iterable[str]) -> int:
        """The first physical offset of a record of ``topics``; the log's start if not known."""
        minimum = asked.store.min_offset
        places = [self._first_of(asked, each) for each in topics]
        return max(minimum, min((each or 0 for each in places), default=0))

    def _first_of(self, asked: _Asked, topic: str) -> int | None:
        place, met = asked.first_places.get(topic), self._met.get(topic)
        return None if place is None or (met is not None and met < place) else place

    def make(self, topics: Iterable[str]) -> None:
        """Create the tables of ``topics`` that do not exist."""
        for topic in topics:
            if self._tables is not None and topic not in self._of_topics:
                self._targets.append(self._tables.target(topic))
                self._of_topics.add(topic)

    def met(self, places: Mapping[str, int]) -> None:
        """Create the tables of new topics, given the physical offset of a first record of each."""
        self._met.update(places)
        self.make(places)

    def read_to(self, end: int) -> None:
        """Record that the log was read up to ``end``: only the rest may have new topics."""
        self._read_to = max(self._read_to, end)


@attrs.define(slots=False)
class _Asked:
    """The parameters of one :meth:`Targets.look`."""

    store: lakelog.Store
    identity: str
    chosen: Chosen
    accept_gaps: bool

    def look(self, target: Target, first: Callable[[], int]) -> None:
        """Read the position of ``target``."""
        target.look(self.store, self.identity, first, self.chosen, accept_gaps=self.accept_gaps)

    @cached_property
    def first_places(self) -> dict[str, int]:
        """The physical offset of each topic's first record, as far as its ConsumeQueues have it."""
        path = self.store.path
        found: dict[str, int | None] = dict.fromkeys(topics_of_batches(path))
        with queue_files(path) as queues:
            for each in queues:
                place, topic = each.place(each.first), each.queue[0]
                known = found.get(topic, LAST)
                found[topic] = None if place is None or known is None else min(place[0], known)
        return {topic: place for topic, place in found.items() if place is not None}
