"""Writes figures as a page: medians, the spread of the rounds, and ratios, as bars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from lakelog_cli.report.charts import Bar, table
from lakelog_cli.report.document import document, facts, paragraphs, safe, section
from tests.bench.model import LAKELOG, Suite
from tests.bench.suites import SUITES

Row = Mapping[str, Any]
_LEGEND: Final = (
    "A bar is the median of all rounds, and the thin line on it goes from the least to the most. "
    "The line in a bar of a ratio is at 1: what reaches beyond it is faster than what it is "
    "compared with. Figures of different runs or machines are not to be compared."
)


def page(figures: Mapping[str, Any]) -> str:
    """Return the whole document.

    :param figures: the output of ``--json``
    """
    return document("Bench of lakelog", _parts(figures))


def _parts(figures: Mapping[str, Any]) -> Iterator[str]:
    yield facts(figures["machine"])
    yield paragraphs([_LEGEND])
    for name, rows in groupby(figures["rows"], lambda row: row["suite"]):
        suite = SUITES[name]
        better = "less is better" if suite.lower_is_better else "more is better"
        yield section(f"{name}: {suite.about}; {better}", "".join(_suite(suite, list(rows))))


def _suite(suite: Suite, rows: Sequence[Row]) -> Iterator[str]:
    for title, contest in groupby(rows, lambda row: row["contest"]):
        yield f"<h3>{safe(title)}</h3>{_contest(suite, list(contest))}"
    notes = {row["store"]: row["settings"] for row in rows if row["settings"]}
    yield paragraphs(f"{name}: {note}" for name, note in notes.items())


def _contest(suite: Suite, rows: Sequence[Row]) -> str:
    """Return a table with a row for each store."""
    first, *others = suite.columns
    headings = list(dict.fromkeys(each for row in rows for each in row["times"])) or [LAKELOG]
    ratios = [ratio for row in rows for each in headings if (ratio := _ratio(row, each))]
    most = max((max(_values(row, first.name)) for row in rows if row["samples"]), default=0) or 1
    most_times = max([1.0, *ratios])
    times = [part for each in headings for part in (f"times {each}", "")]
    heads = ["store", first.heading, "", "spread", *times, *(each.heading for each in others)]
    lines = []
    for row in rows:
        if not row["samples"]:
            lines.append([row["store"], row["not_run"]])
            continue
        values, median = _values(row, first.name), row["median"]
        bar = Bar(median[first.name] / most, min(values) / most, max(values) / most)
        line = [row["store"], bar, format(median[first.name], first.form)]
        line.append(f"{(max(values) - min(values)) / (median[first.name] or 1):.0%}")
        for each in headings:
            ratio = _ratio(row, each)
            drawn = "" if ratio is None else Bar(ratio / most_times, mark=1 / most_times)
            line += [drawn, "" if ratio is None else f"{ratio:.2f}"]
        line += [
            format(median[each.name], each.form) if each.name in median else "" for each in others
        ]
        lines.append(line)
    return f'<div class="small">{table(heads, lines)}</div>'


def _values(row: Row, column: str) -> list[float]:
    return [sample[column] for sample in row["samples"]]


def _ratio(row: Row, heading: str) -> float | None:
    found: float | None = row["times_lakelog"] if heading == LAKELOG else row["times"].get(heading)
    return found
