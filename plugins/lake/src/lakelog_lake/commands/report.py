"""Prints the results of ``lake verify``, ``rewind`` and ``status``: as text, JSON or a page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog_cli import output, pages
from lakelog_lake.maintenance import removal, tables
from lakelog_lake.verify.comparing import GAP, MEANINGS, has_parsed
from lakelog_lake.verify.verify import Verified


def print_verified(found: Verified, *, as_json: bool) -> None:
    """Print the queues, the ranges that differ, and what could not be compared.

    JSON has an object for each line, and the summary in the last one.
    """
    queues, ranges = queue_rows(found), range_rows(found)
    if as_json:
        output.write_lines({"kind": "queue", **row} for row in queues)
        for row in ranges:
            kind = GAP if row["difference"] == GAP else "difference"
            output.write_lines([{"kind": kind, **row}])
        output.write_lines(
            {"kind": "damage", "start": s.start, "end": s.end} for s in found.damaged
        )
        output.write_lines([_summary(found)])
        return
    output.write_rows(queues)
    if ranges:
        output.print_line()
        output.write_rows(ranges)
    output.print_line()
    output.print_lines(remarks(found))
    output.print_line(f"{found.asked.table.name}: {verdict(found)}")


def queue_rows(found: Verified) -> list[dict[str, Any]]:
    """The counts of each queue, by name."""
    names, tallies = found.queues.names, found.differences.tallies
    kinds = [kind for kind in MEANINGS if kind != GAP]
    return [
        {
            "topic": names[each][0],
            "queue": names[each][1],
            "log": tallies[each].log,
            "table": tallies[each].table,
            **{kind: tallies[each].kinds.get(kind, 0) for kind in kinds},
            "gaps": tallies[each].gaps,
            "older": tallies[each].older,
        }
        for each in sorted(tallies, key=names.__getitem__)
    ]


def range_rows(found: Verified) -> list[dict[str, Any]]:
    """The ranges that differ, by kind and in log order."""
    return [
        {
            "difference": each.kind,
            "topic": found.queues.names[each.queue][0],
            "queue": found.queues.names[each.queue][1],
            "first": each.first,
            "last": each.last,
            "rows": each.rows,
            "physical_first": each.start,
            "physical_last": each.end,
        }
        for each in found.differences.each()
    ]


def remarks(found: Verified) -> Iterator[str]:
    """What the counts mean, and what could not be compared."""
    differences, log = found.differences, found.log
    for kind in MEANINGS:
        if any(each.kind == kind for each in differences.ranges):
            yield f"{kind}: {MEANINGS[kind]}"
    if differences.not_listed:
        yield f"{differences.not_listed} more ranges are not listed"
    if log.problem is not None:
        yield log.problem
    older = sum(each.older for each in differences.tallies.values())
    if older:
        yield (
            f"{older} rows are of messages deleted from the log (before {log.low}); they were "
            "not compared with it"
        )
    for span in found.damaged:
        yield f"the log is damaged at {span.start} to {span.end}; nothing was compared there"
    if differences.unparsed:
        yield (
            f"{differences.unparsed} rows were not compared in the columns of their bodies: the "
            "schema by which they landed is not known, or their bodies do not parse by it"
        )
    elif "body" not in found.columns and not has_parsed(found.columns):
        yield "bodies were not compared: the table does not have the bodies of the log"
    if log.end > found.position.end:
        yield f"{log.end - found.position.end} bytes of the log have not landed yet"


def verdict(found: Verified) -> str:
    """The result in a few words."""
    words = "equal" if found.is_clean else f"{found.differences.rows} ROWS DIFFER"
    return f"{words} (log {found.log.low} to {min(found.position.end, found.log.end)})"


def _summary(found: Verified) -> dict[str, Any]:
    tallies = found.differences.tallies.values()
    return {
        "kind": "summary",
        "clean": found.is_clean,
        "table": found.asked.table.name,
        "store": found.asked.store,
        "log_start": found.log.low,
        "log_end": found.log.end,
        "position": found.position.end,
        "problem": found.log.problem,
        "log_rows": sum(each.log for each in tallies),
        "table_rows": sum(each.table for each in tallies),
        "not_compared_rows": sum(each.older for each in tallies),
        "not_parsed_rows": found.differences.unparsed,
        "differing_rows": found.differences.rows,
        "ranges_not_listed": found.differences.not_listed,
        "columns": list(found.columns),
        "damaged": len(found.damaged),
    }


def print_rewind(each: removal.Rewind, *, is_done: bool, as_json: bool) -> None:
    """Print the queues with rows to remove, and the change of the position."""
    queues = [attrs.asdict(rows) for rows in each.queues]
    row = {
        "table": each.table.name,
        "rows": each.rows,
        "start": each.start,
        "position_before": each.before.end,
        "position_after": each.after.end,
        "queues": queues,
        "is_done": is_done,
    }
    if each.rows and not as_json:
        output.write_rows(queues)
    goes = "go" if is_done else "would be removed; give --yes to remove them"
    text = (
        f"{each.table.name}: {each.rows} rows from physical offset {each.start} on are not in the "
        f"log and {goes}. The position moves from {each.before.end} to {each.after.end}"
    )
    output.write_result(row, text, as_json=as_json)


def print_status(found: Sequence[tables.Status], *, as_json: bool) -> None:
    """Print a row for each table, with a bar of the landed part, and its last commits."""
    rows = [{**attrs.asdict(each), "lag_bytes": each.lag_bytes} for each in found]
    if as_json:
        output.write_lines(rows)
        return
    names = ("lag_bytes", "rows", "dead_letters", "files", "bytes", "versions")
    output.write_rows(
        [
            {
                "table": each.table,
                "landed": _bar(each.landed_share),
                **{name: row[name] for name in names},
            }
            for each, row in zip(found, rows, strict=True)
        ]
    )
    for each in found:
        if each.commits:
            output.print_line()
            _picture(each)


def _picture(status: tables.Status) -> None:
    """Print charts of what each of the last commits added, oldest on the left."""
    commits = status.commits
    seconds = [(b.at_ms - a.at_ms) / 1000 for a, b in pairwise(commits)]
    output.print_line(f"the last {len(commits)} commits of {status.table}")
    for name, values in (
        ("rows", [each.rows for each in commits]),
        ("files", [each.files for each in commits]),
        ("bytes", [each.bytes for each in commits]),
        ("seconds apart", [0, *seconds]),
        ("duration ms", [each.took_ms or 0 for each in commits]),
    ):
        most = max(values)
        output.print_line(f"{name:>13} |{output.blocks(values)}| at most {most:.15g}")


def _bar(share: float | None) -> str:
    if share is None:
        return "not known"
    return f"{output.bar(share, 20)} {math.floor(share * 100)} %"


_CELLS: Final = 240
"""Parts of the log on its map."""


def page(store: Path, compared: Sequence[Verified]) -> str:
    """The whole document, with a part for each table."""
    return pages.document(
        f"Tables of {store}", (part for each in compared for part in _parts(each))
    )


def _parts(found: Verified) -> Iterator[str]:
    tallies = found.differences.tallies.values()
    values = {
        "verdict": "equal" if found.is_clean else "differs",
        "rows in the log": f"{sum(each.log for each in tallies):,}",
        "rows in the table": f"{sum(each.table for each in tallies):,}",
        "rows that differ": f"{found.differences.rows:,}",
        "not landed yet": output.size(max(0, found.log.end - found.position.end)),
        "not compared": f"{sum(each.older for each in tallies):,} older rows",
    }
    yield f"<h2>{pages.safe(found.asked.table.name)}</h2>"
    yield pages.facts(values, bad=[] if found.is_clean else ["verdict"])
    yield pages.paragraphs([*remarks(found), verdict(found)])
    yield pages.section("The log, and where rows differ", pages.cell_map(_cells(found)) + _LEGEND)
    for title, rows in (("Queues", queue_rows(found)), ("Ranges that differ", range_rows(found))):
        heads = [name.replace("_", " ") for name in rows[0]] if rows else []
        yield pages.section(title, pages.table(heads, [list(row.values()) for row in rows]))


_LEGEND: Final = (
    "<p>From the start of the log to its end. A filled cell has landed; a red one has rows that "
    "differ, or damage. Point at a cell to see its offsets.</p>"
)


def _cells(found: Verified) -> Iterator[pages.Cell]:
    start, end = found.log.low, max(found.log.end, found.position.end)
    bad = [(each.start, each.end) for each in found.differences.ranges]
    bad += [(each.start, each.end - 1) for each in found.damaged]
    width = max(1, -(-(end - start) // _CELLS))
    for first in range(start, end, width):
        last = min(first + width, end) - 1
        landed = min(max(0, found.position.end - first) / (last - first + 1), 1.0)
        is_bad = any(low <= last and first <= high for low, high in bad)
        words = f"{first} to {last}: " + ("differs" if is_bad else f"{landed:.0%} has landed")
        yield pages.Cell(1.0 if is_bad else landed, is_bad, words)
