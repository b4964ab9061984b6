"""The work of one task: open the store, and convert its part of the log to rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import lakelog
from lakelog_lake.errors import CorruptLog
from lakelog_lake.log.coverage import record_batches
from lakelog_lake.log.wanted import NumberSpan, RecordCondition
from lakelog_lake.reading.byte_spans import byte_spans
from lakelog_lake.reading.options import FAIL, SKIP, ReadOptions, names_of

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.log.reading.pieces import Damage
    from lakelog_lake.reading.plan import LogRange
    from lakelog_lake.reading.tables import Tables

_log = logging.getLogger("lakelog_lake")


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
    from lakelog_lake.reading.tables import Tables, joined

    names = names_of(options) if columns is None else tuple(columns)
    unpack = options.decompress and "body" in names
    tables = Tables(name, names, unpack, lenient=options.corrupt != FAIL)
    yield from joined(_rows(store, options, part, tables))


def _rows(
    store: lakelog.Store, options: ReadOptions, part: LogRange, tables: Tables
) -> Iterator[pa.RecordBatch]:
    wanted = options.wanted
    damages: list[Damage] = []
    on_damage = _REPORTS.get(options.corrupt, damages.append)
    for span in byte_spans(store, part):
        pieces = store.scan_pieces(span.low, span.end)
        for batch in record_batches(pieces, span, on_damage):
            yield from _collected(damages, tables, wanted)
            good = wanted.flags(batch)
            if good.any():
                yield tables.of_records(batch if good.all() else batch.take(good))
        yield from _collected(damages, tables, wanted)


def _collected(
    damages: list[Damage], tables: Tables, wanted: RecordCondition
) -> Iterator[pa.RecordBatch]:
    """Rows for damage, with only its place and cause."""
    found = [each for each in damages if _is_in(each, wanted.physical)]
    damages.clear()
    if found:
        yield tables.of_damage(found)


def _is_in(damage: Damage, span: NumberSpan) -> bool:
    return damage.offset < span.end and damage.end_offset > span.low


def _fail(damage: Damage) -> None:
    raise CorruptLog(damage)


def _skip(damage: Damage) -> None:
    _log.warning("%s", damage)


_REPORTS: dict[str, Callable[[Damage], None]] = {FAIL: _fail, SKIP: _skip}
