"""The rows of one task of a read: its part of the log, as Arrow batches.

A task reads its whole range, or the surroundings of known records.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import lakelog
from lakelog.arrow import schema, to_arrow
from lakelog.errors import CorruptRecord, OffsetOutOfRange
from lakelog.format.record_batch import Damage, RecordBatch
from lakelog_lake.errors import CorruptLog
from lakelog_lake.log import extent, range_reader
from lakelog_lake.log.columns import ERROR, unpacked
from lakelog_lake.log.wanted import NumberSpan, RecordCondition
from lakelog_lake.reading.options import FAIL, SKIP, ReadOptions, names_of
from lakelog_lake.reading.plan import LogRange

Longs: TypeAlias = "NDArray[np.int64]"
GAP_BYTES: Final = 64 << 10
"""Records with smaller gaps between them are read together."""

_log = logging.getLogger("lakelog_lake")


def byte_spans(store: lakelog.Store, part: LogRange) -> Iterator[NumberSpan]:
    """The spans to read, in log order; each starts where a record should."""
    if part.places is not None:
        yield from _joined(*_at_places(store, part.places))
    elif part.units is not None:
        yield from _joined(*_led_to(store.path, part))
    else:
        yield NumberSpan(part.start, part.end)


def _at_places(store: lakelog.Store, places: Sequence[int]) -> tuple[Longs, Longs]:
    """Start and end of records at offsets from an index, which may name deleted records."""
    found: list[tuple[int, int]] = []
    for place in places:
        try:
            found.append((place, place + store.look_up(place).size))
        except (CorruptRecord, OffsetOutOfRange) as error:
            _log.warning("the key index names an offset without a whole record: %s", error)
    both = np.array(found, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _led_to(path: Path, part: LogRange) -> tuple[Longs, Longs]:
    """Start and end of the records of the units, sorted."""
    offsets, ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    with extent.queue_files(path) as queues:
        by_name = {each.queue: each for each in queues}
        for topic, queue_id, first, end in part.units or ():
            raw = by_name[topic, queue_id].units(first, end - first)
            raw = raw[extent.real(raw)]
            offsets.append(raw["offset"].astype(np.int64))
            ends.append(offsets[-1] + raw["size"])
    starts, stops = np.concatenate(offsets), np.concatenate(ends)
    inside = (starts >= part.start) & (starts < part.end)
    order = np.argsort(starts[inside], kind="stable")
    return starts[inside][order], stops[inside][order]


def _joined(starts: Longs, ends: Longs) -> Iterator[NumberSpan]:
    """Merge neighbouring records to spans."""
    if not len(starts):
        return
    ends = np.maximum.accumulate(ends)
    far = np.flatnonzero(starts[1:] - ends[:-1] > GAP_BYTES) + 1
    bounds = [0, *far.tolist(), len(starts)]
    for first, behind in pairwise(bounds):
        yield NumberSpan(int(starts[first]), int(ends[behind - 1]))


def rows(options: ReadOptions, name: str, part: LogRange) -> Iterator[pa.RecordBatch]:
    """Yield the wanted records of ``part``, in log order.

    Raises :class:`CorruptLog` at damage, unless that is skipped or collected.
    """
    with lakelog.open(options.path, mode="read") as store:
        yield from rows_in(store, options, name, part)


def rows_in(
    store: lakelog.Store,
    options: ReadOptions,
    name: str,
    part: LogRange,
    columns: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted records of ``part`` from an open store.

    :param columns: the columns of the rows; by default all columns of the options
    """
    names = names_of(options) if columns is None else tuple(columns)
    unpack = options.decompress and "body" in names
    tables = Tables(name, names, unpack, lenient=options.corrupt != FAIL)
    yield from joined(_rows(store, options, part, tables))


def _rows(
    store: lakelog.Store, options: ReadOptions, part: LogRange, tables: Tables
) -> Iterator[pa.RecordBatch]:
    wanted = options.wanted
    damages: list[Damage] = []

    def on_damage(damage: Damage) -> None:
        if options.corrupt == FAIL:
            raise CorruptLog(damage)
        if options.corrupt == SKIP:
            _log.warning("%s", damage)
        else:
            damages.append(damage)

    for span in byte_spans(store, part):
        pieces = store.scan_pieces(span.low, span.end)
        for batch in range_reader.record_batches(pieces, span, on_damage):
            yield from _collected(damages, tables, wanted)
            good = wanted.flags(batch)
            if good.any():
                yield tables.of_records(batch if good.all() else batch.take(good))
        yield from _collected(damages, tables, wanted)


def _collected(
    damages: list[Damage], tables: Tables, wanted: RecordCondition
) -> Iterator[pa.RecordBatch]:
    """Rows for damage, with only its place and cause."""
    span = wanted.physical
    found = [each for each in damages if each.offset < span.end and each.end_offset > span.low]
    damages.clear()
    if found:
        yield tables.of_damage(found)


_LARGEST_INT: Final = (1 << 31) - 1
_ROWS: Final = 8192
_BYTES: Final = 4 << 20


@attrs.frozen
class Tables:
    """Makes rows.

    :ivar store: the value of the column ``store``
    :ivar names: the columns, in table order
    :ivar unpack: whether bodies are unpacked
    :ivar lenient: whether a body that cannot be unpacked is returned as stored, instead of an error
    """

    store: str
    names: Sequence[str]
    unpack: bool
    lenient: bool

    def of_records(self, batch: RecordBatch) -> pa.RecordBatch:
        """One row for each record; raises :class:`~lakelog.errors.CorruptRecord`."""
        errors: Mapping[int, CorruptRecord] = {}
        if self.unpack and self.lenient:
            fields, errors = unpacked(batch, self._fields)
        else:
            fields = to_arrow(batch, columns=self._fields, decompress=self.unpack)
        return self._with_own(fields, self._errors(len(batch), errors), len(batch))

    def _errors(self, count: int, errors: Mapping[int, CorruptRecord]) -> pa.Array | None:
        if ERROR not in self.names:
            return None
        if not errors:
            return pa.nulls(count, pa.string())
        texts = {row: error.what for row, error in errors.items()}
        return pa.array([texts.get(row) for row in range(count)], pa.string())

    def of_damage(self, damages: Sequence[Damage]) -> pa.RecordBatch:
        """One row for each damage, with its place, length and cause; other columns are null."""
        count, lengths = len(damages), [each.end_offset - each.offset for each in damages]
        known: dict[str, list[Any]] = {
            "physical_offset": [each.offset for each in damages],
            "store_size": [each if each <= _LARGEST_INT else None for each in lengths],
        }
        arrays = [
            pa.array(known.get(each.name, [None] * count), each.type)
            for each in schema(self._fields)
        ]
        fields = pa.RecordBatch.from_arrays(arrays, names=self._fields)
        error_texts = pa.array(map(str, damages), pa.string()) if ERROR in self.names else None
        return self._with_own(fields, error_texts, count)

    @property
    def _fields(self) -> list[str]:
        return [name for name in self.names if name not in ("store", ERROR)]

    def _with_own(
        self, fields: pa.RecordBatch, errors: pa.Array | None, rows: int
    ) -> pa.RecordBatch:
        arrays = [*fields.columns, *([] if errors is None else [errors])]
        if "store" in self.names:
            arrays.insert(0, pa.repeat(pa.scalar(self.store, pa.string()), rows))
        return pa.RecordBatch.from_arrays(arrays, names=list(self.names))


def joined(tables: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches, as each one costs Spark about a millisecond."""
    held: list[pa.RecordBatch] = []
    count = size = 0
    for table in tables:
        held.append(table)
        count, size = count + len(table), size + table.nbytes
        if count >= _ROWS or size >= _BYTES:
            yield from _as_one(held)
            held, count, size = [], 0, 0
    yield from _as_one(held)


def _as_one(tables: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if len(tables) > 1:
        yield from pa.Table.from_batches(tables).combine_chunks().to_batches()
    else:
        yield from tables
