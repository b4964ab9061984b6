"""Lands a store in its tables, pass by pass: positions, range, files, one commit for each table.

A pass begins with the positions that the tables say, and with a look at whether the log still
holds the records they name. Its range starts at the smallest; what a table has already is left out
by the tasks, row by row. So each table lands exactly once by its own position, whatever becomes of
the others. What is remembered between passes is only that there was nothing for a table.

While a pass is committed, the next one is written already, by a thread. It counts only if the
tables then say that it begins where they are; else its files are removed, and it is written anew.
So what decides is the same as without it, and a kill leaves files that no version names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

import lakelog
from lakelog_lake.errors import TooManyDeadLetters
from lakelog_lake.landing.pin import Pinning
from lakelog_lake.landing.target import Settled, Target
from lakelog_lake.landing.target_set import Targets
from lakelog_lake.landing.waiting import AppendWaiter
from lakelog_lake.log.cached_store import CachedStore
from lakelog_lake.log.durable_end import DurableEnd
from lakelog_lake.log.range_reader import LogSpan
from lakelog_lake.log.selection import EVERYTHING, Chosen
from lakelog_lake.sinks.base import Sink
from lakelog_lake.tables.position import Position
from lakelog_lake.tasks.ahead import ReadAhead
from lakelog_lake.tasks.engines import Engine, drop
from lakelog_lake.tasks.ranges import TaskLimits, next_spans
from lakelog_lake.tasks.task import Task, Written


@attrs.frozen
class LandingSource:
    """A store, and what of it lands.

    :ivar store: its identity in tables
    :ivar skip_damage: whether damage is passed over; else a pass ends there with an error
    :ivar accept_gaps: whether to go on where messages were deleted before they landed
    """

    path: Path
    store: str
    skip_damage: bool = False
    chosen: Chosen = EVERYTHING
    accept_gaps: bool = False


@attrs.frozen
class Landed:
    """What a pass did.

    :ivar start: of its range, in bytes of the log
    :ivar end: of its range
    :ivar won: whether it was this pass that landed the range, and not another dispatcher; of
        several tables, in all
    :ivar rows: in all tables, dead letters too; without what another dispatcher landed, but where
        that is all
    :ivar damaged: pieces of the log, and bodies, that were passed over
    :ivar dead_letters: rows whose bodies do not parse
    :ivar is_more: whether it is known that more waits to land: of the log, of a topic whose table
        is new, or because somebody else was faster
    :ivar commit_seconds: how long the commits to all tables took
    """

    start: int
    end: int
    rows: int
    files: int
    damaged: int
    won: bool
    dead_letters: int = 0
    is_more: bool = False
    commit_seconds: float = 0.0


def _nothing(_: str) -> None:
    """Told of phases."""


def _never() -> bool:
    """No pass is the last one."""
    return False


def land(
    source: LandingSource,
    sink: Sink,
    engine: Engine,
    bounds: TaskLimits,
    on_phase: Callable[[str], None] = _nothing,
) -> Landed | None:
    """One pass for one table; see :meth:`LandingDispatcher.one_pass`."""
    targets = Targets([Target(sink)])
    return LandingDispatcher(
        source, targets, engine, bounds, on_phase, is_last=lambda: True
    ).one_pass()


@attrs.define
class LandingDispatcher:
    """Lands ``source`` in ``targets``.

    :ivar on_phase: told ``planned``, ``written`` and ``committed`` at the end of each phase, and
        ``one committed`` after each table; by a thread ``written ahead``, of the next pass
    :ivar max_dead_letters: so many may land by this object; a pass with more lands nothing
    :ivar pin: renewed as each pass begins: what the one before has landed may go from the log
    :ivar is_last: whether no pass is to follow, so that none is written ahead
    """

    source: LandingSource
    targets: Targets
    engine: Engine
    bounds: TaskLimits
    on_phase: Callable[[str], None] = _nothing
    pin: Pinning | None = None
    max_dead_letters: int | None = None
    is_last: Callable[[], bool] = _never
    _ahead: ReadAhead | None = attrs.field(default=None, init=False)
    _dead_letters: int = attrs.field(default=0, init=False)
    _durable: DurableEnd = attrs.field(factory=DurableEnd)
    _kept: CachedStore = attrs.field(init=False)
    _looked_to: int | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._kept = CachedStore(self.source.path)

    @property
    def newcoming(self) -> AppendWaiter:
        """Waits for more, after a pass that found nothing."""
        return AppendWaiter(self._kept, self._durable, lambda: self._looked_to)

    def one_pass(self) -> Landed | None:
        """One pass; ``None`` if there is nothing to land.

        Raises :class:`~lakelog_lake.errors.LandingError`, and what the engine and the
        table raise; whatever happens, what was not committed lands in a later pass.
        """
        self._looked_to = None
        try:
            return self._pass()
        except BaseException:
            self.close()  # whatever it was, look at everything anew
            raise

    def _pass(self) -> Landed | None:
        store = self._kept.now()
        start = self._looked(store)
        ahead = self._ahead_from(start)
        spans = self._planned(store, start) if ahead is None else ahead.spans
        if not spans:
            return None
        self.on_phase("planned")
        written = self.engine(self._tasks(spans)) if ahead is None else ahead.written()
        self._ahead = None
        self.on_phase("written")
        self._check_dead_letters(spans, written)
        strays = _first_places(written)
        self.targets.met(strays)
        is_more = spans[-1].end - spans[0].start >= self.bounds.pass_bytes
        if is_more and not strays and not self.is_last():
            self._begin_from(spans[-1].end)
        begun = time.monotonic()
        landed = self._settle(spans, written)
        took = time.monotonic() - begun
        self._dead_letters += landed.dead_letters
        self.on_phase("committed")
        is_more = is_more or bool(strays) or not landed.won
        return attrs.evolve(landed, is_more=is_more, commit_seconds=took)

    def _looked(self, store: lakelog.Store) -> int:
        """Where each table has come to; where the next range starts."""
        source, targets = self.source, self.targets
        start = targets.look(store, source.store, source.chosen, accept_gaps=source.accept_gaps)
        if self.pin is not None:
            self.pin.renew(targets.landed() or Position(start, start))
        return start

    def _planned(self, store: lakelog.Store, start: int) -> list[LogSpan]:
        """What lands next, from ``start`` on."""
        spans = next_spans(store, start, self.bounds, self._durable)
        self._looked_to = None if spans else start
        return spans

    def _ahead_from(self, start: int) -> ReadAhead | None:
        """What was written ahead, if it begins where the tables are; else it is dropped."""
        if self._ahead is not None and not self._ahead.is_of(self.targets.starts(start)):
            self._ahead.drop()
            self._ahead = None
        return self._ahead

    def _begin_from(self, start: int) -> None:
        """Begin to write what follows ``start``, where the pass under way ends."""
        spans = next_spans(self._kept.now(), start, self.bounds, self._durable)
        tasks = self._tasks(spans)

        def write() -> Sequence[Written]:
            written = self.engine(tasks)
            self.on_phase("written ahead")
            return written

        if spans:
            self._ahead = ReadAhead.begun(spans, self.targets.starts(start), write)

    def close(self) -> None:
        """Let go of the store, and of what was written ahead; another pass begins anew."""
        ahead, self._ahead = self._ahead, None
        try:
            if ahead is not None:
                ahead.drop()
        finally:
            self._kept.close()

    def finish(self) -> None:
        """At an orderly end: move the tables that had no rows."""
        self.close()
        for each in self.targets.served:
            each.finish(self.source.store)

    def give_up(self) -> None:
        """At an end by an error: a pin that holds a log of which nothing has landed goes again."""
        self.close()
        pin = self.pin
        if pin is not None and pin.may_go and not self.targets.may_hold(self.source.store):
            pin.remove()

    def _tasks(self, spans: Sequence[LogSpan]) -> list[Task]:
        source, outlets = self.source, self.targets.outlets()
        return [
            Task(
                source.path,
                source.store,
                span,
                outlets,
                source.skip_damage,
                source.chosen,
                self.bounds.file_bytes,
            )
            for span in spans
        ]

    def _check_dead_letters(self, spans: Sequence[LogSpan], written: Sequence[Written]) -> None:
        if self.max_dead_letters is None:
            return
        dead = [n for n, target in enumerate(self.targets.served) if target.is_dead_letters]
        rows = sum(part.rows for each in written for n, part in each.parts.items() if n in dead)
        if self._dead_letters + rows > self.max_dead_letters:
            drop(written)
            count = self._dead_letters + rows
            raise TooManyDeadLetters(count, self.max_dead_letters, spans[0].start, spans[-1].end)

    def _settle(self, spans: Sequence[LogSpan], written: Sequence[Written]) -> Landed:
        """Commit to each table in its turn; what comes behind one that fails lands later."""
        end = spans[-1].end
        last = next((each.last for each in reversed(written) if each.last is not None), None)
        done: list[Settled] = []
        for number, target in enumerate(self.targets.served):
            parts = [each.parts[number] for each in written if number in each.parts]
            settled = target.settle(self.source.store, end, last, parts)
            if settled is not None:
                done.append(settled)
                self.on_phase("one committed")
        self.targets.read_to(end)
        return _landed(spans, done, sum(each.damaged for each in written))


def _first_places(written: Sequence[Written]) -> dict[str, int]:
    """The topics that have no table yet, and where the first record of each stands."""
    found: dict[str, int] = {}
    for each in written:
        for topic, place in each.strays.items():
            found.setdefault(topic, place)  # tasks are in the order of the log
    return found


def _landed(spans: Sequence[LogSpan], done: Sequence[Settled], damaged: int) -> Landed:
    won = not done or any(each.won for each in done)
    counted = [each for each in done if each.won is won]
    return Landed(
        min((each.start for each in done), default=spans[0].start),
        spans[-1].end,
        sum(each.rows for each in counted),
        sum(each.files for each in counted),
        damaged,
        won,
        sum(each.rows for each in counted if each.dead_letters),
    )
