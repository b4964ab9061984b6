"""The page of ``lakelog verify``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lakelog_cli.findings import ProblemReporter
from lakelog_cli.report import charts
from lakelog_cli.report.document import document, facts, paragraphs, section
from lakelog_cli.report.segments import SegmentCounts


def page(
    path: str,
    values: Mapping[str, str],
    segments: SegmentCounts,
    reporter: ProblemReporter,
    advice: str,
) -> str:
    """The whole document.

    :param values: the summary, by name
    :param advice: the commands that mend the problems; empty if there are none
    """
    return document(f"Check of {path}", _parts(values, segments, reporter, advice))


def _parts(
    values: Mapping[str, str], segments: SegmentCounts, reporter: ProblemReporter, advice: str
) -> Iterator[str]:
    yield facts(values, bad=["state"] if values["state"] == "damaged" else [])
    if advice:
        yield section("What to do", paragraphs([advice]))
    yield section("Segments", charts.segment_map(segments))
    yield section("Findings", _findings(reporter))


def _findings(reporter: ProblemReporter) -> str:
    heads = ["kind", "file", "at", "what", "expected", "found"]
    table = charts.table(heads, map(_finding, reporter.rows))
    left = reporter.not_kept
    return table + (paragraphs([f"and {left} more: lakelog verify --json"]) if left else "")


def _finding(row: Mapping[str, Any]) -> list[object]:
    """One row; fields that only some kinds of findings have are joined in the column ``what``."""
    named = {"kind", "path", "position", "offset", "what", "expected", "found"}
    more = [f"{name} {value}" for name, value in row.items() if name not in named]
    at = row.get("position", row.get("offset", ""))
    words = ", ".join(filter(None, [row.get("what", ""), *more]))
    return [
        row["kind"],
        row.get("path") or "",
        at,
        words,
        row.get("expected", ""),
        row.get("found", ""),
    ]
