"""A whole store at once: to a table by the dispatcher's rules, or to one file of text."""

from __future__ import annotations

import base64
import csv
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Event
from typing import Any, Final
from uuid import uuid4

import lakelog
from lakelog.errors import SettingsError
from lakelog_spark.columns import NAMES
from lakelog_spark.landing.dispatcher import Dispatcher, Landed, Source
from lakelog_spark.landing.engines import Engine
from lakelog_spark.landing.ondamage import Damages
from lakelog_spark.landing.ranges import Bounds, next_spans
from lakelog_spark.landing.runner import until_done
from lakelog_spark.landing.selection import chosen_rows
from lakelog_spark.landing.targets import Wish, targets_for
from lakelog_spark.landing.topicnames import is_template

UNREADABLE_BODY: Final = "body_base64"
"""Where a body is no UTF-8 it stands here, in Base64, and ``body`` is empty."""
_SMALL: Final = Bounds(8 << 20, 8 << 20)


def to_table(
    source: Source, to: str, table: str | None, engine: Engine, on_landed: Callable[[Landed], None]
) -> int:
    """Land everything; the number of rows that this call added.

    Raises :class:`~lakelog.errors.SettingsError` for a part of a store in a table that is there:
    its position could not say what has landed.
    """
    place = Path(to.partition(":")[2])
    folder = place.parent if is_template(str(place)) else place
    if source.chosen.is_partial and folder.is_dir() and any(folder.iterdir()):
        raise SettingsError(
            f"{folder} is there; a part of a store goes to a new folder", key="--to"
        )
    lander = Dispatcher(source, targets_for(Wish(to, table)), engine, Bounds())
    rows = 0

    def count(landed: Landed) -> None:
        nonlocal rows
        rows += landed.rows if landed.won else 0
        on_landed(landed)

    until_done(lander.one_pass, Event(), count)
    lander.finish()
    return rows


def to_file(source: Source, to: Path, kind: str) -> int:
    """Write one file, which gets its name when it is whole; the number of its rows.

    :param kind: ``jsonl`` or ``csv``; lists and maps stand in a CSV file as JSON
    """
    if to.is_dir():
        raise SettingsError(f"{to} is a folder: name a file", key="--to")
    to.parent.mkdir(parents=True, exist_ok=True)
    temporary = to.with_name(f".{to.name}.{uuid4().hex}.tmp")
    try:
        with temporary.open("x", newline="", encoding="utf-8") as file:
            rows = (_json_lines if kind == "jsonl" else _csv_lines)(file, _rows(source))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(to)
    finally:
        temporary.unlink(missing_ok=True)
    return rows


def _json_lines(file: Any, rows: Iterator[dict[str, Any]]) -> int:
    count = 0
    for row in rows:
        file.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
        count += 1
    return count


def _csv_lines(file: Any, rows: Iterator[dict[str, Any]]) -> int:
    writer = csv.DictWriter(file, [*NAMES, UNREADABLE_BODY], restval="")
    writer.writeheader()
    count = 0
    for row in rows:
        flat = {"keys": json.dumps(row["keys"]), "properties": json.dumps(row["properties"])}
        writer.writerow({**row, **flat})
        count += 1
    return count


def _rows(source: Source) -> Iterator[dict[str, Any]]:
    """What is durable now, row by row, in the order of the log."""
    from lakelog.arrow import to_arrow

    damages = Damages(skip=source.skip_damage)
    with lakelog.open(source.path, mode="read") as store:
        at = store.min_offset
        while spans := next_spans(store, at, _SMALL):
            for span in spans:
                at = span.end
                for batch in damages.records(store.scan_pieces(span.start, span.end), span):
                    column = to_arrow(batch, columns=["topic"]).column(0).dictionary_encode()
                    codes = column.indices.to_numpy(zero_copy_only=False)
                    kept = chosen_rows(batch, column.dictionary.to_pylist(), codes, source.chosen)
                    table = to_arrow(batch, columns=NAMES[1:], decompress=True).take(kept)
                    yield from (_row(each, source.store) for each in table.to_pylist())


def _row(columns: Mapping[str, Any], store: str) -> dict[str, Any]:
    row = {"store": store, **columns, "properties": dict(columns["properties"] or ())}
    for name in ("born_timestamp", "store_timestamp"):
        row[name] = row[name].isoformat(timespec="milliseconds").replace("+00:00", "Z")
    try:
        row["body"] = columns["body"].decode()
    except UnicodeDecodeError:
        row["body"] = ""
        row[UNREADABLE_BODY] = base64.b64encode(columns["body"]).decode()
    return row
