"""Exports a whole store: to a table, by the dispatcher's passes, or to one text file."""

from __future__ import annotations

import base64
import csv
import json
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa

import lakelog
from lakelog.errors import SettingsError
from lakelog_lake.landing.committing import table_errors
from lakelog_lake.landing.dispatcher import Landed, LandingDispatcher, until_done
from lakelog_lake.landing.targets import TableSpec
from lakelog_lake.log import extent, records, wanted
from lakelog_lake.sinks.locations import location_of
from lakelog_lake.tasks.engines import Engine
from lakelog_lake.tasks.task import LandingSource, TaskLimits, next_spans

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_YEARS: Final = 400
_CYCLE_MS: Final = 146_097 * 86_400_000
"""The Gregorian calendar repeats after 400 years; their number of days."""
_FOUR_DIGITS: Final = range(10_000)


def iso(ms: int) -> str:
    """Format ``ms`` since 1970 in UTC; years of more than four digits get a sign.

    >>> iso(1_795_262_571_687), iso(-1), iso(253_402_300_800_000)
    ('2026-11-21T12:02:51.687Z', '1969-12-31T23:59:59.999Z', '+010000-01-01T00:00:00.000Z')
    """
    cycles, rest = divmod(ms, _CYCLE_MS)
    at = _EPOCH + timedelta(milliseconds=rest)
    number = at.year + _YEARS * cycles
    year = f"{number:04d}" if number in _FOUR_DIGITS else f"{number:+07d}"
    return f"{year}-{at:%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"


UNREADABLE_BODY: Final = "body_base64"
"""For a body that is not UTF-8: the body in Base64; ``body`` is then empty."""
_TIMES: Final = ("born_timestamp", "store_timestamp")
_SMALL: Final = TaskLimits(8 << 20, 8 << 20)


def to_table(
    source: LandingSource, spec: TableSpec, engine: Engine, on_landed: Callable[[Landed], None]
) -> int:
    """Land all present messages; return the number of rows that this call added.

    Raises :class:`~lakelog.errors.SettingsError` if part of a store would be added to an existing
    table, whose position could not describe it.
    """
    if source.chosen.is_partial:
        place = location_of(spec.to, spec.storage)
        with table_errors(place.text):
            there = place.there(place.table(spec.table))
        if there is not None:
            raise SettingsError(
                f"{there} exists; a selection of messages needs a new folder or table", key="--to"
            )
    rows = 0

    def count(landed: Landed) -> None:
        nonlocal rows
        rows += landed.rows if landed.won else 0
        on_landed(landed)

    with LandingDispatcher.of(source, spec, engine, TaskLimits(), is_pinned=False) as lander:
        until_done(lander.one_pass, Event(), count)
    return rows


def to_file(
    source: LandingSource,
    to: Path,
    kind: str,
    on_read: Callable[[int, int], None] = lambda _done, _total: None,
) -> int:
    """Write one file, which gets its name once it is complete; return the number of its rows.

    A device or a pipe is written directly: a rename would replace it.

    :param kind: ``jsonl`` or ``csv``; in a CSV file, lists and maps are written as JSON
    :param on_read: called with the bytes of the log read so far, and their total
    """
    if to.is_dir():
        raise SettingsError(f"{to} is a folder: name a file", key="--to")
    if to.exists() and not to.is_file():
        with to.open("w", newline="", encoding="utf-8") as file:
            return _write(file, kind, _rows(source, on_read))
    to = Path(os.path.realpath(to))  # a rename would replace a symbolic link
    to.parent.mkdir(parents=True, exist_ok=True)
    temporary = to.with_name(f".{to.name}.{uuid4().hex}.tmp")
    try:
        with temporary.open("x", newline="", encoding="utf-8") as file:
            rows = _write(file, kind, _rows(source, on_read))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(to)
    finally:
        temporary.unlink(missing_ok=True)
    return rows


def _write(file: Any, kind: str, rows: Iterator[dict[str, Any]]) -> int:
    """Write the rows as lines; return their number."""
    table = csv.DictWriter(file, [*records.NAMES, UNREADABLE_BODY], restval="")
    if kind == "csv":
        table.writeheader()
    count = 0
    for row in rows:
        count += 1
        if kind == "csv":
            flat = {"keys": json.dumps(row["keys"]), "properties": json.dumps(row["properties"])}
            table.writerow({**row, **flat})
        else:
            file.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
    return count


def _rows(source: LandingSource, on_read: Callable[[int, int], None]) -> Iterator[dict[str, Any]]:
    """Yield the durable messages as rows, in log order."""
    damages, durable = records.DamagePolicy(skip=source.skip_damage), extent.DurableEnd()
    with lakelog.open(source.path, mode="read") as store:
        at = first = store.min_offset
        while spans := next_spans(store, at, _SMALL, durable):
            for span in spans:
                on_read(span.start - first, store.max_offset - first)
                at = span.end
                for batch in damages.records(store.scan_pieces(span.start, span.end), span):
                    kept = wanted.chosen_rows(batch, *wanted.coded_topics(batch), source.chosen)
                    part = batch.take(kept)
                    table, errors = records.unpacked(part, records.NAMES[1:])
                    damages.bodies(errors)
                    yield from (_row(each, source.store) for each in _with_ms(table).to_pylist())


def _with_ms(table: pa.RecordBatch) -> pa.RecordBatch:
    """Convert times to ms since 1970, as Python's ``datetime`` lacks years beyond 9999."""
    for name in _TIMES:
        at = table.schema.get_field_index(name)
        ms = table.column(at).cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
        table = table.set_column(at, name, ms)
    return table


def _row(columns: Mapping[str, Any], store: str) -> dict[str, Any]:
    row = {"store": store, **columns, "properties": dict(columns["properties"] or ())}
    row |= {name: iso(row[name]) for name in _TIMES}
    try:
        row["body"] = columns["body"].decode()
    except UnicodeDecodeError:
        row["body"] = ""
        row[UNREADABLE_BODY] = base64.b64encode(columns["body"]).decode()
    return row
