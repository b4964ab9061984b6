"""Makes the tables for a location such as ``iceberg:/data/lake``, and identifies stores.

Maintains the dispatcher's pin, by which retention keeps the messages that have not landed yet.

The pin has the smallest position of the tables, so it is never ahead of them. It also protects the
log while no dispatcher runs. It is not written if the store directory is read-only or was never
used by lakelog, as lakelog then deletes no segment. If the pin cannot be written, a warning is
logged and landing continues: the older pin protects more of the log. A dispatcher that fails before
any row has landed removes a pin that it created: otherwise the pin might protect the log for ever.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

import lakelog
from lakelog.errors import SettingsError
from lakelog.files.filesystem import FileSystem, RealFileSystem
from lakelog.format.layout import OWN_DIR
from lakelog.maintenance import pins
from lakelog_lake.bodies.base import BodyParser
from lakelog_lake.landing.committing import table_errors
from lakelog_lake.landing.destinations import Destination, TableLocation, folder_of
from lakelog_lake.landing.target import Target, Targets
from lakelog_lake.log.columns import store_name
from lakelog_lake.sinks.base import Sink, Trimmed
from lakelog_lake.tables.fields import (
    TableShape,
    dead_letter_columns,
    message_columns,
    parsed_columns,
)
from lakelog_lake.tables.history_setting import kept
from lakelog_lake.tables.parquet_writer import ParquetCompression
from lakelog_lake.tables.partitions import DEFAULT
from lakelog_lake.tables.position import UNCHECKED, Position
from lakelog_lake.tables.topic_names import DEAD_LETTERS, is_template, named, topics_beside
from lakelog_lake.tasks.task import ANY_TOPIC

if TYPE_CHECKING:
    import pyarrow as pa

RENEW_MS: Final = 60_000
"""Interval at which an unchanged pin is written again, so that it does not expire."""
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]+")
_WORD_LENGTH: Final = 40
_log = logging.getLogger("lakelog")


def now_ms() -> int:
    """The current time, in ms since 1970."""
    return time.time_ns() // 1_000_000


@attrs.define
class PinWriter:
    """Writes one pin.

    :ivar path: the store directory
    :ivar name: name of the pin
    :ivar destination: description of the tables for users
    :ivar clock: returns the time in ms since 1970
    """

    path: Path
    name: str
    destination: str
    clock: Callable[[], int] = now_ms
    files: FileSystem = attrs.field(
        default=attrs.Factory(lambda self: RealFileSystem.of_store(self.path), takes_self=True)
    )
    _written: pins.Pin | None = None
    _is_new: bool = False

    def renew(self, position: Position) -> None:
        """Set the pin to the end of ``position``, the smallest one of the tables."""
        pin = self._pin(position)
        if self._has_changed(pin) and self._is_allowed():
            if self._written is None:
                self._is_new = self._there() is None
            try:
                pins.write_pin(self.files, self.path, pin)
            except OSError as error:
                _log.warning("the pin %r cannot be written: %s", self.name, error)
            self._written = pin

    @property
    def may_go(self) -> bool:
        """Whether this object created the pin, and no other process has changed it since."""
        return self._is_new and self._there() == self._written

    def remove(self) -> None:
        """Delete the pin, so that retention no longer waits."""
        try:
            pins.remove_pin(self.files, self.path, self.name)
        except OSError as error:
            _log.warning("the pin %r cannot be removed: %s", self.name, error)

    def _there(self) -> pins.Pin | None:
        there = pins.read_pins(self.files, self.path)
        return next((each for each in there if each.name == self.name), None)

    def _pin(self, position: Position) -> pins.Pin:
        last = position.last
        if last is not None and last.crc == UNCHECKED:
            last = None
        return pins.Pin(self.name, position.end, self.clock(), self.destination, last)

    def _has_changed(self, pin: pins.Pin) -> bool:
        before = self._written
        if before is None or attrs.evolve(before, time_ms=pin.time_ms) != pin:
            return True
        return not 0 <= pin.time_ms - before.time_ms < RENEW_MS

    def _is_allowed(self) -> bool:
        return os.access(self.path / OWN_DIR, os.W_OK | os.X_OK)


def pin_name(given: str | None, destination: str, table: str, store: str) -> str:
    """Return ``given``, or a name derived from the destination that is the same in each run.

    :param destination: ``KIND:PATH``, absolute
    :param store: its identity in the tables

    Raises :class:`~lakelog.errors.SettingsError` for an invalid name.
    """
    if given is not None:
        try:
            return pins.check_name(given)
        except ValueError as error:
            raise SettingsError(str(error), key="--pin") from None
    digest = hashlib.sha256(repr((destination, table, store)).encode()).hexdigest()[:8]
    word = _UNFIT.sub("-", table.rpartition("/")[2]).strip("-")[:_WORD_LENGTH]
    return "-".join(filter(None, (destination.partition(":")[0], word, digest)))


IDLE_BYTES: Final = 64 << 20


def sink_for(
    to: str,
    table: str | None = None,
    shape: TableShape | None = None,
    storage: Mapping[str, str] | None = None,
) -> Sink:
    """The sink of the table ``KIND:PATH``.

    :param table: for Iceberg, its name in the catalog, ``NAMESPACE.TABLE``
    :param shape: the table's columns and partitions; the default is for all messages
    :param storage: options of the object store, or properties of the catalog

    Raises :class:`~lakelog.errors.SettingsError`.
    """
    place = TableLocation.of(to, storage)
    return place.sink(place.table(table), shape or TableShape())


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
        :mod:`~lakelog_lake.tables.history_setting`; ``None`` leaves each table's own setting
    """

    to: str
    table: str | None = None
    partition: tuple[str, ...] = DEFAULT
    parsers: Mapping[str, BodyParser] = attrs.field(factory=dict)
    dead_letters: str | None = None
    storage: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    compression: ParquetCompression = ParquetCompression.AUTO
    history: str | None = attrs.field(default=None)

    @history.validator
    def _says_history(self, _field: object, history: str | None) -> None:
        kept(history, "--history")


def targets_for(spec: TableSpec, place: Destination | None = None) -> Targets:
    """Create the tables that do not exist; raises :class:`~lakelog.errors.SettingsError`.

    :param place: the location of the tables; ``None`` for that of ``spec``
    """
    place = place or TableLocation.of(spec.to, spec.storage)
    name = place.table(spec.table)
    dead = dead_letters_of(place, name, spec.dead_letters)
    tables = _Tables(place, name, dead, spec)
    return Targets(tables=tables) if is_template(name) else Targets([tables.target(None)])


def target_of(spec: TableSpec, topic: str | None) -> Target:
    """The target of one table, which is created if needed, with its table of dead letters.

    :param topic: the only topic of the table; ``None`` for all topics
    """
    place = TableLocation.of(spec.to, spec.storage)
    name = place.table(spec.table)
    dead = dead_letters_of(place, name, spec.dead_letters)
    return _Tables(place, name, dead, spec).target(topic)


def dead_letters_of(place: Destination, name: str, given: str | None) -> str:
    """The name, or template, of the table of dead letters for the table ``name``.

    Raises :class:`~lakelog.errors.SettingsError`.
    """
    if given is None:
        return name + DEAD_LETTERS
    text = given.removeprefix(f"{place.kind}:")
    dead = text if place.kind == "iceberg" else str(folder_of(text))
    if is_template(dead) is not is_template(name) or dead == name:
        raise SettingsError(
            f"{given!r} must be another table, and contain {{topic}} exactly if the name of the "
            "tables of messages does",
            key="--dead-letters",
        )
    return dead


def pin_for(
    path: Path, store: str, spec: TableSpec, given: str | None, place: Destination | None = None
) -> PinWriter:
    """The pin of a dispatcher that lands the store in ``path``.

    :param store: the identity of the store in the tables
    :param given: the pin's name; ``None`` derives one, see :func:`pin_name`
    :param place: the location of the tables; ``None`` for that of ``spec``

    Raises :class:`~lakelog.errors.SettingsError`.
    """
    place = place or TableLocation.of(spec.to, spec.storage)
    table, destination = place.table(spec.table), place.text
    shown = f"{destination} {table}" if place.kind == "iceberg" else destination
    return PinWriter(path, pin_name(given, destination, table, store), shown)


@attrs.frozen
class _Tables:
    """Finds and makes tables in one location.

    :ivar name: name of the table, or a template with ``{topic}``
    :ivar dead: the same for its table of dead letters
    """

    place: Destination
    name: str
    dead: str
    spec: TableSpec

    def topics(self) -> Iterable[str]:
        """The topics of the tables marked with a topic; other tables there are ignored."""
        with table_errors(self._display_name(self.name)):
            beside = self.place.beside(self.name)
        yield from topics_beside(self.name, beside, self._marked)

    def _marked(self, name: str) -> str | None:
        with table_errors(self._display_name(name)):
            return self.place.sink(name, TableShape()).marked()

    def target(self, topic: str | None) -> Target:
        """The table of a topic, or of all topics; created if needed, with that of dead letters."""
        parsers = self._parsers(topic)
        shape = TableShape(self._columns(topic, parsers), self.spec.partition, topic)
        dead = None
        if parsers:
            bad = TableShape(dead_letter_columns(), self.spec.partition, topic)
            dead = Target(
                self._made(self.dead, bad),
                is_dead_letters=True,
                idle_bytes=IDLE_BYTES,
                compression=self.spec.compression,
            )
        return Target(
            self._made(self.name, shape),
            None if topic is None else frozenset({topic}),
            parsers,
            dead,
            idle_bytes=0 if topic is None else IDLE_BYTES,
            compression=self.spec.compression,
        )

    def _parsers(self, topic: str | None) -> Mapping[str, BodyParser]:
        if topic is None:
            return self.spec.parsers
        parser = self.spec.parsers.get(topic) or self.spec.parsers.get(ANY_TOPIC)
        return {} if parser is None else {topic: parser}

    def _columns(self, topic: str | None, parsers: Mapping[str, BodyParser]) -> pa.Schema:
        if not parsers:
            return message_columns()
        keep_body = topic is None and ANY_TOPIC not in parsers
        return parsed_columns((each.fields for each in parsers.values()), keep_body=keep_body)

    def _made(self, name: str, shape: TableShape) -> Sink:
        name = name if shape.topic is None else named(name, shape.topic)
        with table_errors(self._display_name(name)):
            sink = self.place.sink(name, shape)
            history = self.spec.history
            if history is None:
                sink.prepare()
            else:
                trimmed = _trimmed(sink)
                sink.prepare()
                trimmed.keep(history.strip())
        return sink

    def _display_name(self, name: str) -> str:
        """The name of a table in messages, before the table exists."""
        return f"{self.place.text}, table {name}," if self.place.kind == "iceberg" else name


def _trimmed(sink: Sink) -> Trimmed:
    """Raises :class:`~lakelog.errors.SettingsError` for a kind of table without this setting."""
    if not isinstance(sink, Trimmed):
        raise SettingsError(
            f"{sink.name} keeps its history until 'lakelog lake expire', or its engine, removes it",
            key="--history",
        )
    return sink


def identity_of(path: Path, store_id: str | None) -> str:
    """The identity of the store in ``path``: ``store_id``, else its UUID, else its folder's name.

    Two stores in folders of one name are distinguished by their records: the second one is
    refused. Raises :class:`~lakelog.errors.NotAStore` before any table is created, and
    :class:`~lakelog.errors.SettingsError` for a name without a visible character.
    """
    if store_id is not None and not store_id.strip():
        raise SettingsError(f"{store_id!r} is not a name of a store", key="--store-id")
    with lakelog.open(path, mode="read"):
        pass
    return store_id or store_name(path)
