"""The tables that passes land in: made from a specification, each with its state and position.

There is one table, with or without dead letters, or one for each topic. The position in a table is
authoritative. A pass without rows for a table does not commit to it: the end of the pass is kept in
memory instead, so that the next pass can start there.

The table of a topic is created when a pass finds the first record of the topic, before the commits
of that pass. It gets rows from the next pass on. It starts at the topic's first record, as found in
the topic's ConsumeQueues. It starts at the first record of the log instead if there are no such
queues, if they begin behind the record that was found, or if no table has any row yet. So a kill
between these steps loses no row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial, reduce
from pathlib import Path
from typing import Final

import attrs
import pyarrow as pa

import lakelog
from lakelog.errors import SettingsError
from lakelog.format.checksum import Fingerprint
from lakelog_lake.bodies import recorded
from lakelog_lake.bodies.base import BodyParser
from lakelog_lake.errors import PositionMissing, SelectionChanged
from lakelog_lake.landing.committing import CommitLock, commit, table_errors
from lakelog_lake.log import extent, records, wanted
from lakelog_lake.sinks import locations
from lakelog_lake.sinks.base import Head, Sink, Trimmed
from lakelog_lake.tables import settings, shape
from lakelog_lake.tables.position import Position, QueueEnds, from_text, merged
from lakelog_lake.tasks.task import ANY_TOPIC, Outlet, TablePart, first_offset, record_at


@attrs.frozen
class CommitResult:
    """The result of landing a range in one table.

    :ivar start: start of the range, a physical offset in bytes
    :ivar won: whether this dispatcher landed the range, and not another one
    :ivar dead_letters: whether it is a table of dead letters
    """

    start: int
    rows: int
    files: int
    won: bool
    dead_letters: bool


@attrs.define(slots=False)
class PassStore:
    """The store of one pass, and what lands of it.

    :ivar identity: the identity of the store in the tables
    :ivar accept_gaps: whether to continue where messages were deleted before they landed
    """

    store: lakelog.Store
    identity: str
    chosen: wanted.Chosen
    accept_gaps: bool

    @cached_property
    def first_places(self) -> dict[str, int]:
        """The physical offset of each topic's first record, as far as its ConsumeQueues have it."""
        path = self.store.path
        found: dict[str, int | None] = dict.fromkeys(extent.topics_of_batches(path))
        with extent.queue_files(path) as queues:
            for each in queues:
                place, topic = each.place(each.first), each.queue[0]
                known = found.get(topic, wanted.LAST)
                found[topic] = None if place is None or known is None else min(place[0], known)
        return {topic: place for topic, place in found.items() if place is not None}


@attrs.define(eq=False)
class Target:
    """A table, and the rows that go to it.

    :ivar sink: the prepared sink of the table
    :ivar topics: the topics of the table; ``None`` for all
    :ivar parsers: body parsers by topic; bodies that do not parse go to ``dead_letters``
    :ivar idle_bytes: a position is committed without rows only after this many bytes of the log
    :ivar compression: compression of its data files
    :ivar digest: of the file with its parsers, see :mod:`lakelog_lake.bodies.recorded`
    :ivar start: all rows of the table before this physical offset have landed
    :ivar resume: what counts until a commit shows the position
    """

    sink: Sink
    topics: frozenset[str] | None = None
    parsers: Mapping[str, BodyParser] = attrs.field(factory=dict)
    dead_letters: Target | None = None
    is_dead_letters: bool = False
    idle_bytes: int = 0
    compression: settings.ParquetCompression = settings.ParquetCompression.AUTO
    digest: str = ""
    start: int = 0
    resume: settings.Resume | None = None
    _head: Head | None = None
    _empty_to: Position | None = None
    _chosen: str | None = None
    _took_ms: tuple[int, int] | None = None

    def look(self, asked: PassStore, first: Callable[[], int]) -> None:
        """Read the position, and set ``start``.

        :param first: returns the start for a table without a position

        Raises the errors of :func:`~lakelog_lake.tasks.task.first_offset`,
        :class:`~lakelog_lake.errors.PositionMissing` and
        :class:`~lakelog_lake.errors.SelectionChanged`.
        """
        if self._head is None or not self.idle_bytes:
            self._head = self.newest(asked.identity)
        if self._head.form != self.sink.layout.form:
            with table_errors(self.sink.name):
                self.sink.prepare()
            self._head = self.newest(asked.identity)
        self._chosen = asked.chosen.description(of_one_topic=self.topics is not None)
        before = None if self._head.position is None else self._head.position.chosen
        if before not in (None, self._chosen):
            raise SelectionChanged(self.sink.name, asked.identity, str(before), self._chosen)
        if self._head.position is None:
            at = first()
            self._empty_to = Position(at, at)
        self.start = first_offset(
            asked.store, self._reached, self.sink.name, accept_gaps=asked.accept_gaps
        )
        if self.resume is not None:
            self._head = self._confirmed(asked.identity, self._head)

    def newest(self, identity: str) -> Head:
        """Read the newest version of the table."""
        with table_errors(self.sink.name):
            return self.sink.head(identity, self.resume)

    def _confirmed(self, identity: str, head: Head) -> Head:
        """Commit a position that only the user's word shows, without rows; the newest version."""
        with table_errors(self.sink.name):
            try:
                return self.sink.head(identity)
            except PositionMissing:
                said = head.position
                if said is None:
                    raise
            position = Position(
                said.end,
                said.end,
                said.last,
                said.next_offsets,
                chosen=said.chosen,
                bodies=said.bodies,
            )
            self.sink.commit(head, identity, [], position)
            self.resume = None
            return self.sink.head(identity)

    def has_landed(self, identity: str) -> bool:
        """Whether the table has a position of the store."""
        self._head = self._head or self.newest(identity)
        return self._head.position is not None

    @property
    def landed(self) -> Position:
        """The position at the last :meth:`look`; no record behind its end has landed."""
        position = None if self._head is None else self._head.position
        return Position(self.start, self.start) if position is None else position

    @property
    def _reached(self) -> Position | None:
        """The position in the table, or a later one kept in memory."""
        position = None if self._head is None else self._head.position
        known = self._empty_to
        if position is None or (known is not None and known.end > position.end):
            return known
        return position

    def outlet(self, number: int, numbers: Mapping[Target, int]) -> Outlet:
        """The description of this table for tasks."""
        dead = None if self.dead_letters is None else numbers[self.dead_letters]
        return Outlet(
            number,
            self.sink.folder,
            self.sink.layout,
            self.start,
            self.topics,
            self.parsers,
            dead,
            self.compression,
        )

    def settle(
        self,
        identity: str,
        end: int,
        last: Fingerprint | None,
        parts: Sequence[TablePart],
        commit_lock: CommitLock | None = None,
    ) -> CommitResult | None:
        """Commit the files written up to ``end``; return ``None`` if the table was not changed.

        Raises as :func:`.committing.commit`.
        """
        if self._head is None or end <= self.start:
            return None
        position = self._next(end, last, parts)
        files = [file for part in parts for file in part.files]
        has_one = self._head.position is not None  # the first one is slow to find again
        if not files and has_one and position.end - position.start < self.idle_bytes:
            self._empty_to = position
            return None
        begun = time.monotonic()
        won = commit(self.sink, self._head, identity, files, position, commit_lock)
        self._took_ms = (position.commit, round((time.monotonic() - begun) * 1000))
        self._head = self._empty_to = None
        rows = sum(each.rows for each in files)
        return CommitResult(position.start, rows, len(files), won, self.is_dead_letters)

    def _next(self, end: int, last: Fingerprint | None, parts: Sequence[TablePart]) -> Position:
        before = None if self._head is None else self._head.position
        ends: QueueEnds = {} if before is None else before.next_offsets
        ends = reduce(merged, (each.next_offsets for each in parts), ends)
        if last is None and self._reached is not None:
            last = self._reached.last
        begins = self._begins(before)
        made = Position(begins, end, last, ends, chosen=self._chosen, took_ms=self._took_ms)
        bodies = (before or made).bodies_from(begins, self.digest)
        return attrs.evolve(made, bodies=bodies)

    def _begins(self, before: Position | None) -> int:
        """The end of the last position, or ``start`` if messages between them were deleted."""
        reached = self._reached
        if before is None or reached is None or reached.end < self.start:
            return self.start
        return before.end

    def forget(self) -> None:
        """Read the table again before the next pass."""
        self._head = None

    def finish(self, identity: str, segments: Sequence[int], landed_end: int = 0) -> None:
        """Commit a position that is only in memory, unless it is in the segment of the last one.

        Retention removes whole segments: so no gap can come between the two, and a run without
        news for the table leaves no version in it. A table of dead letters follows its main table:
        the next run may have other parsers, which must not read what has landed.

        :param segments: the starts of the log's segments
        :param landed_end: the end of what may have landed in the table of these dead letters
        """
        known, head = self._empty_to, self._head
        position = None if head is None else head.position
        if self.dead_letters is not None:
            end = wanted.LAST if position is None else position.end
            self.dead_letters.finish(identity, segments, end)
        if known is None or head is None or position is None:
            return
        is_far = any(position.end < start <= known.end for start in segments)
        if is_far or position.end < landed_end:
            commit(self.sink, head, identity, [], known)
            self._head = self._empty_to = None


@attrs.frozen
class TableSpec:
    """The tables in which messages should land.

    :ivar to: ``KIND:PATH``; a PATH of folders may contain ``{topic}``
    :ivar table: for Iceberg, ``NAMESPACE.TABLE``, which may contain ``{topic}``
    :ivar parsers: body parsers by topic; :data:`ANY_TOPIC` for all other topics
    :ivar dead_letters: the table of bodies that do not parse, if not the default
    :ivar storage: options of the object store, or properties of the catalog
    :ivar compression: compression of data files
    :ivar history: the history that the tables keep, see
        :mod:`~lakelog_lake.tables.settings`; ``None`` leaves each table's own setting
    :ivar resume: what counts in a table that does not show its position
    """

    to: str
    table: str | None = None
    partition: tuple[str, ...] = shape.DEFAULT
    parsers: Mapping[str, BodyParser] = attrs.field(factory=dict)
    dead_letters: str | None = None
    storage: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    compression: settings.ParquetCompression = settings.ParquetCompression.AUTO
    history: str | None = attrs.field(default=None)
    resume: settings.Resume | None = None

    @history.validator
    def _says_history(self, _field: object, history: str | None) -> None:
        settings.kept(history, "--history")


IDLE_BYTES: Final = 64 << 20
"""Bytes of the log after which a table without rows gets a position; of tables of topics."""


@attrs.frozen
class TopicTables:
    """Finds and makes the tables of one specification.

    :ivar name: name of the table, or a template with ``{topic}``
    :ivar dead: the same for its table of dead letters
    """

    place: locations.TableLocation
    name: str
    dead: str
    spec: TableSpec

    @classmethod
    def of(cls, spec: TableSpec, place: locations.TableLocation | None = None) -> TopicTables:
        """Those of ``spec``, in ``place`` if it is not their own location.

        Raises :class:`~lakelog.errors.SettingsError`.
        """
        place = place or locations.location_of(spec.to, spec.storage)
        name = place.table(spec.table)
        return cls(place, name, place.dead_letters(name, spec.dead_letters), spec)

    def topics(self) -> Iterable[str]:
        """The topics of the tables marked with a topic; other tables there are ignored."""
        with table_errors(self.place.shown(self.name)):
            yield from self.place.topics(self.name)

    def target(self, topic: str | None) -> Target:
        """The table of a topic, or of all topics; created if needed, with that of dead letters."""
        parsers = self._parsers(topic)
        main = shape.TableShape(self._columns(topic, parsers), self.spec.partition, topic)
        dead = None
        if parsers:
            bad = shape.TableShape(shape.dead_letter_columns(), self.spec.partition, topic)
            dead = Target(
                self._made(self.dead, bad),
                is_dead_letters=True,
                idle_bytes=IDLE_BYTES,
                compression=self.spec.compression,
                resume=self.spec.resume,
            )
        sink = self._made(self.name, main)
        with table_errors(sink.name):
            digest = recorded.keep(sink.folder, parsers)
        return Target(
            sink,
            None if topic is None else frozenset({topic}),
            parsers,
            dead,
            idle_bytes=0 if topic is None else IDLE_BYTES,
            compression=self.spec.compression,
            digest=digest,
            resume=self.spec.resume,
        )

    def _parsers(self, topic: str | None) -> Mapping[str, BodyParser]:
        if topic is None:
            return self.spec.parsers
        parser = self.spec.parsers.get(topic) or self.spec.parsers.get(ANY_TOPIC)
        return {} if parser is None else {topic: parser}

    def _columns(self, topic: str | None, parsers: Mapping[str, BodyParser]) -> pa.Schema:
        if not parsers:
            return shape.message_columns()
        keep_body = topic is None and ANY_TOPIC not in parsers
        return shape.parsed_columns((each.fields for each in parsers.values()), keep_body=keep_body)

    def _made(self, template: str, form: shape.TableShape) -> Sink:
        name = template if form.topic is None else locations.named(template, form.topic)
        history = self.spec.history
        with table_errors(self.place.shown(name)):
            sink = self.place.sink(name, form)
            if history is not None and not isinstance(sink, Trimmed):
                raise SettingsError(
                    f"{sink.name} keeps its history until 'lakelog lake expire', or its engine, "
                    "removes it",
                    key="--history",
                )
            sink.prepare()
            if history is not None and isinstance(sink, Trimmed):
                sink.keep(history.strip())
        return sink


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

    def starts(self, at: int) -> list[tuple[Target, int, Hashable]]:
        """The start and form of each table after a pass up to ``at``, as in :meth:`outlets`.

        A task for a range from ``at`` on writes the same rows before and after the commit of that
        pass: rows behind ``at`` that a table already has are left out, and no record before ``at``
        is read.
        """
        return [(each, max(each.start, at), each.sink.layout.form) for each in self.served]

    def look(self, asked: PassStore) -> int:
        """Read the position of each table; return the start of the next range.

        The first time, the store gets the name in ``asked`` under which its log has landed.
        """
        if self._looked:
            return self._start(asked)
        if self._tables is None:
            self._looked = True
            self._rename(asked)
            return self._start(asked)
        self.make(each for each in sorted(self._tables.topics()) if asked.chosen.takes(each))
        self._rename(asked)
        start, landed = self._start(asked), self._has_landed(asked.identity)
        self.make(
            topic
            for topic, place in sorted(asked.first_places.items())
            if asked.chosen.takes(topic) and (place < start or not landed)
        )
        self._looked = True
        return self._start(asked)

    def _rename(self, asked: PassStore) -> None:
        if asked.identity != records.store_name(asked.store.path):
            return  # the user has named it
        heads = (each.newest(asked.identity) for each in self._targets)
        asked.identity = landed_as(asked.store, asked.identity, (each.texts for each in heads))
        for each in self.served:
            each.forget()

    def _has_landed(self, identity: str) -> bool:
        return any(each.has_landed(identity) for each in self._targets)

    def may_hold(self, identity: str) -> bool:
        """Whether a table has a position of the store; also true if a table cannot be read."""
        try:
            return any(each.newest(identity).position is not None for each in self.served)
        except Exception:  # noqa: BLE001  # called after an error, which must not be hidden
            return True

    def _start(self, asked: PassStore) -> int:
        landed = self._tables is not None and self._has_landed(asked.identity)
        minimum = asked.store.min_offset
        for target in self._targets:
            topics = target.topics if landed and target.topics is not None else ()
            target.look(asked, partial(self._first, asked, topics))
            if target.dead_letters is not None:
                target.dead_letters.look(asked, partial(int, target.start))
        begun = max(minimum, self._read_to)
        return min((each.start for each in self.served), default=begun)

    def _first(self, asked: PassStore, topics: Iterable[str]) -> int:
        """The first physical offset of a record of ``topics``; the log's start if not known."""
        minimum = asked.store.min_offset
        first = wanted.LAST if topics else 0
        for topic in topics:
            place = asked.first_places.get(topic, 0)
            first = min(first, 0 if self._met.get(topic, wanted.LAST) < place else place)
        return max(minimum, first)

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

    def finish(self, identity: str, segments: Sequence[int]) -> None:
        """Commit positions that are only in memory, see :meth:`Target.finish`."""
        for each in self._targets:
            each.finish(identity, segments)

    def read_to(self, end: int) -> None:
        """Record that the log was read up to ``end``: only the rest may have new topics."""
        self._read_to = max(self._read_to, end)


def targets_for(spec: TableSpec, place: locations.TableLocation | None = None) -> Targets:
    """Create the tables that do not exist; raises :class:`~lakelog.errors.SettingsError`.

    :param place: the location of the tables; ``None`` for that of ``spec``
    """
    tables = TopicTables.of(spec, place)
    if locations.is_template(tables.name):
        return Targets(tables=tables)
    return Targets([tables.target(None)])


def landed_as(store: lakelog.Store, identity: str, tables: Iterable[Mapping[str, str]]) -> str:
    """The name under which the log of a store has landed; ``identity`` if it has not.

    A store gets a UUID when lakelog first owns it, and a directory of RocketMQ may be renamed. The
    log is known by its bytes: it has the last record of a position, at the same offset.

    :param identity: the present name of the store
    :param tables: the texts of the positions of all stores, for each table
    """
    found: dict[str, int] = {}
    for texts in tables:
        if identity in texts:
            return identity
        for name, text in texts.items():
            with suppress(ValueError):
                position = from_text(text)
                if _has_record(store, position.last):
                    found[name] = max(found.get(name, 0), position.end)
    return max(found, key=lambda name: found[name], default=identity)


def _has_record(store: lakelog.Store, last: Fingerprint | None) -> bool:
    if last is None or last.offset < store.min_offset:
        return False
    record = record_at(store, last.offset, last.offset + last.size)
    return record is not None and record[0] == last


def identity_of(path: Path, store_id: str | None) -> str:
    """The identity of the store in ``path``: ``store_id``, else its UUID, else its folder's name.

    A table that has its log under another name keeps that, see :func:`landed_as`. Two stores in
    folders of one name are distinguished by their records: the second one is refused. Raises
    :class:`~lakelog.errors.NotAStore` before any table is created, and
    :class:`~lakelog.errors.SettingsError` for a name without a visible character.
    """
    if store_id is not None and not store_id.strip():
        raise SettingsError(f"{store_id!r} is not a name of a store", key="--store-id")
    with lakelog.open(path, mode="read"):
        pass
    return store_id or records.store_name(path)
