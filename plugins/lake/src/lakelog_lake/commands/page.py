"""The page of ``lakelog lake verify``: a table beside its log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from lakelog_cli.amounts import size
from lakelog_cli.report import charts
from lakelog_cli.report.document import document, facts, paragraphs, safe, section
from lakelog_lake.commands.report import queue_rows, range_rows, remarks, verdict
from lakelog_lake.verify.verify import Verified

_CELLS: Final = 240
"""Parts of the log on its map."""


def page(store: Path, compared: Sequence[Verified]) -> str:
    """The whole document, with a part for each table."""
    return document(f"Tables of {store}", (part for each in compared for part in _parts(each)))


def _parts(found: Verified) -> Iterator[str]:
    tallies = found.differences.tallies.values()
    values = {
        "verdict": "equal" if found.is_clean else "differs",
        "rows in the log": f"{sum(each.log for each in tallies):,}",
        "rows in the table": f"{sum(each.table for each in tallies):,}",
        "rows that differ": f"{found.differences.rows:,}",
        "not landed yet": size(max(0, found.log.end - found.position.end)),
        "not compared": f"{sum(each.older for each in tallies):,} older rows",
    }
    yield f"<h2>{safe(found.asked.table.name)}</h2>"
    yield facts(values, bad=[] if found.is_clean else ["verdict"])
    yield paragraphs([*remarks(found), verdict(found)])
    yield section("The log, and where rows differ", charts.cell_map(_cells(found)) + _LEGEND)
    heads, rows = _as_table(queue_rows(found))
    yield section("Queues", charts.table(heads, rows))
    heads, rows = _as_table(range_rows(found))
    yield section("Ranges that differ", charts.table(heads, rows))


_LEGEND: Final = (
    "<p>From the start of the log to its end. A filled cell has landed; a red one has rows that "
    "differ, or damage. Point at a cell to see its offsets.</p>"
)


def _cells(found: Verified) -> Iterator[charts.Cell]:
    start, end = found.log.low, max(found.log.end, found.position.end)
    bad = [(each.start, each.end) for each in found.differences.ranges]
    bad += [(each.start, each.end - 1) for each in found.damaged]
    width = max(1, -(-(end - start) // _CELLS))
    for first in range(start, end, width):
        last = min(first + width, end) - 1
        landed = min(max(0, found.position.end - first) / (last - first + 1), 1.0)
        is_bad = any(low <= last and first <= high for low, high in bad)
        words = f"{first} to {last}: " + ("differs" if is_bad else f"{landed:.0%} has landed")
        yield charts.Cell(1.0 if is_bad else landed, is_bad, words)


def _as_table(rows: Sequence[dict[str, object]]) -> tuple[list[str], list[list[object]]]:
    heads = [name.replace("_", " ") for name in rows[0]] if rows else []
    return heads, [list(row.values()) for row in rows]
