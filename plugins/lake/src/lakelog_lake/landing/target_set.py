"""The tables that passes serve: one, with or without dead letters, or one for each topic.

A table for a topic is made when a record of the topic is met, before anything of that pass is
committed; it lands from the next pass on. It starts at the topic's first record, which the queues
tell; where they do not, or begin behind what was met, or nothing has landed in any table yet, at
the first record of the log. So it does not matter where a process was killed in between.
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
    """A table for each topic."""

    def topics(self) -> Iterable[str]:
        """Those that have a table now."""

    def target(self, topic: str) -> Target:
        """Its table, which is made if it is not there."""


class Targets:
    """See the module."""

    def __init__(self, fixed: Iterable[Target] = (), tables: TopicTables | None = None) -> None:
        """Of ``tables``, those that are there or needed come by themselves."""
        self._targets = list(fixed)
        self._tables = tables
        self._of_topics: set[str] = set()
        self._met: dict[str, int] = {}
        self._looked = False
        self._read_to = 0

    @property
    def served(self) -> list[Target]:
        """All tables; those of dead letters come before those whose they are.

        One without a position begins where the other one does, and so must have its first
        position before that one goes on.
        """
        dead = [each.dead_letters for each in self._targets if each.dead_letters is not None]
        return [*dead, *self._targets]

    def landed(self) -> Position | None:
        """The least of what the tables said, right after :meth:`look`; ``None`` without tables."""
        return min((each.landed for each in self.served), key=lambda each: each.end, default=None)

    def outlets(self) -> tuple[Outlet, ...]:
        """What tasks are told of them."""
        numbers = {each: number for number, each in enumerate(self.served)}
        return tuple(each.outlet(number, numbers) for each, number in numbers.items())

    def starts(self, at: int) -> list[tuple[Target, int]]:
        """Where each table goes on behind a pass that ends ``at``, in the order of outlets.

        A task whose range begins there writes the same before and after the commit of that pass:
        what a table has behind ``at`` is left out, and nothing before it is read.
        """
        return [(each, max(each.start, at)) for each in self.served]

    def look(
        self, store: lakelog.Store, identity: str, chosen: Chosen, *, accept_gaps: bool
    ) -> int:
        """Find out how far each has come; where the next range starts."""
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
        """Whether the store has a position in any table, or one of them cannot say so now."""
        try:
            return any(each.newest(identity).position is not None for each in self.served)
        except Exception:  # noqa: BLE001  # asked after an error, which is the one that counts
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
        """Where the first record of ``topics`` may stand; without any, of the log."""
        minimum = asked.store.min_offset
        places = [self._first_of(asked, each) for each in topics]
        return max(minimum, min((each or 0 for each in places), default=0))

    def _first_of(self, asked: _Asked, topic: str) -> int | None:
        place, met = asked.first_places.get(topic), self._met.get(topic)
        return None if place is None or (met is not None and met < place) else place

    def make(self, topics: Iterable[str]) -> None:
        """See to it that ``topics`` have tables."""
        for topic in topics:
            if self._tables is not None and topic not in self._of_topics:
                self._targets.append(self._tables.target(topic))
                self._of_topics.add(topic)

    def met(self, places: Mapping[str, int]) -> None:
        """Make the tables of topics that were met, each first at one of ``places``."""
        self._met.update(places)
        self.make(places)

    def read_to(self, end: int) -> None:
        """Remember that all before ``end`` was read: only what lies behind has unknown topics."""
        self._read_to = max(self._read_to, end)


@attrs.define(slots=False)
class _Asked:
    """What a look is about."""

    store: lakelog.Store
    identity: str
    chosen: Chosen
    accept_gaps: bool

    def look(self, target: Target, first: Callable[[], int]) -> None:
        """Find out where ``target`` goes on."""
        target.look(self.store, self.identity, first, self.chosen, accept_gaps=self.accept_gaps)

    @cached_property
    def first_places(self) -> dict[str, int]:
        """Where the first record of each topic stands; not of topics whose queues do not tell."""
        path = self.store.path
        found: dict[str, int | None] = dict.fromkeys(topics_of_batches(path))
        with queue_files(path) as queues:
            for each in queues:
                place, topic = each.place(each.first), each.queue[0]
                known = found.get(topic, LAST)
                found[topic] = None if place is None or known is None else min(place[0], known)
        return {topic: place for topic, place in found.items() if place is not None}
