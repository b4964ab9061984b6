"""Lands a store in its tables, pass by pass: positions, range, files, one commit for each table.

A pass begins with the positions that the tables say, and with a look at whether the log still
holds the records they name. Its range starts at the smallest; what a table has already is left out
by the tasks, row by row. So each table lands exactly once by its own position, whatever becomes of
the others. What is remembered between passes is only that there was nothing for a table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

import lakelog
from lakelog_lake.errors import TooManyDeadLetters
from lakelog_lake.landing.pin import Pinning
from lakelog_lake.landing.target import Settled, Target
from lakelog_lake.landing.target_set import Targets
from lakelog_lake.landing.waiting import Newcoming
from lakelog_lake.log.cached_store import KeptStore
from lakelog_lake.log.durable_end import DurableEnd
from lakelog_lake.log.range_reader import Span
from lakelog_lake.log.selection import EVERYTHING, Chosen
from lakelog_lake.sinks.base import Sink
from lakelog_lake.tables.position import Position
from lakelog_lake.tasks.engines import Engine, drop
from lakelog_lake.tasks.ranges import Bounds, next_spans
from lakelog_lake.tasks.task import Task, Written


@attrs.frozen
class Source:
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
    """

    start: int
    end: int
    rows: int
    files: int
    damaged: int
    won: bool
    dead_letters: int = 0
    is_more: bool = False


def _nothing(_: str) -> None:
    """Told of phases."""


def land(
    source: Source,
    sink: Sink,
    engine: Engine,
    bounds: Bounds,
    on_phase: Callable[[str], None] = _nothing,
) -> Landed | None:
    """One pass for one table; see :meth:`Dispatcher.one_pass`."""
    return Dispatcher(source, Targets([Target(sink)]), engine, bounds, on_phase).one_pass()


@attrs.define
class Dispatcher:
    """Lands ``source`` in ``targets``.

    :ivar on_phase: told ``planned``, ``written`` and ``committed`` at the end of each phase, and
        ``one committed`` after each table
    :ivar max_dead_letters: so many may land by this object; a pass with more lands nothing
    :ivar pin: renewed as each pass begins: what the one before has landed may go from the log
    """

    source: Source
    targets: Targets
    engine: Engine
    bounds: Bounds
    on_phase: Callable[[str], None] = _nothing
    pin: Pinning | None = None
    max_dead_letters: int | None = None
    _dead_letters: int = attrs.field(default=0, init=False)
    _durable: DurableEnd = attrs.field(factory=DurableEnd)
    _kept: KeptStore = attrs.field(init=False)
    _looked_to: int | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._kept = KeptStore(self.source.path)

    @property
    def newcoming(self) -> Newcoming:
        """Waits for more, after a pass that found nothing."""
        return Newcoming(self._kept, self._durable, lambda: self._looked_to)

    def one_pass(self) -> Landed | None:
        """One pass; ``None`` if there is nothing to land.

        Raises :class:`~lakelog_lake.errors.LandingError`, and what the engine and the
        table raise; whatever happens, what was not committed lands in a later pass.
        """
        self._looked_to = None
        try:
            return self._pass()
        except BaseException:
            self._kept.close()  # whatever it was, look at everything anew
            raise

    def _pass(self) -> Landed | None:
        spans = self._planned(self._kept.now())
        if not spans:
            return None
        self.on_phase("planned")
        written = self.engine([self._task(span) for span in spans])
        self.on_phase("written")
        self._check_dead_letters(spans, written)
        strays = _first_places(written)
        self.targets.met(strays)
        landed = self._settle(spans, written)
        self._dead_letters += landed.dead_letters
        self.on_phase("committed")
        size = spans[-1].end - spans[0].start
        is_more = bool(strays) or not landed.won or size >= self.bounds.pass_bytes
        return attrs.evolve(landed, is_more=is_more)

    def _planned(self, store: lakelog.Store) -> list[Span]:
        """Where each table has come to, and what lands next."""
        source, targets = self.source, self.targets
        start = targets.look(store, source.store, source.chosen, accept_gaps=source.accept_gaps)
        if self.pin is not None:
            self.pin.renew(targets.landed() or Position(start, start))
        spans = next_spans(store, start, self.bounds, self._durable)
        self._looked_to = None if spans else start
        return spans

    def close(self) -> None:
        """Let go of the store; another pass opens it again."""
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

    def _task(self, span: Span) -> Task:
        source = self.source
        return Task(
            source.path,
            source.store,
            span,
            self.targets.outlets(),
            source.skip_damage,
            source.chosen,
            self.bounds.file_bytes,
        )

    def _check_dead_letters(self, spans: Sequence[Span], written: Sequence[Written]) -> None:
        if self.max_dead_letters is None:
            return
        dead = [n for n, target in enumerate(self.targets.served) if target.is_dead_letters]
        rows = sum(part.rows for each in written for n, part in each.parts.items() if n in dead)
        if self._dead_letters + rows > self.max_dead_letters:
            drop(written)
            count = self._dead_letters + rows
            raise TooManyDeadLetters(count, self.max_dead_letters, spans[0].start, spans[-1].end)

    def _settle(self, spans: Sequence[Span], written: Sequence[Written]) -> Landed:
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


def _landed(spans: Sequence[Span], done: Sequence[Settled], damaged: int) -> Landed:
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
