"""Writes scores as tables and as JSON, and figures as a page with bars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from lakelog_cli import pages
from lakelog_cli.pages import document, facts, paragraphs, safe, section
from tests.bench.model import LAKELOG, Suite
from tests.bench.rounds import Score

_LEGEND: Final = (
    "A bar is the median of all rounds, and the thin line on it goes from the least to the most. "
    "The line in a bar of a ratio is at 1: what reaches beyond it is faster than what it is "
    "compared with. Figures of different runs or machines are not to be compared."
)
_MOST_COLUMNS: Final = 16
"""More columns do not fit into a line."""
Row = Mapping[str, Any]
Results = Mapping[str, Sequence[Score]]
"""The scores of a suite, by the title of the contest."""


def table(console: Console, suite: Suite, results: Results) -> None:
    """Print a suite: medians and spread of the rounds, and each store's settings."""
    if len(suite.columns) > _MOST_COLUMNS:
        _by_figure(console, suite, results)
        _notes(console, results)
        return
    lines = Table(title=f"{suite.name}: {suite.about}", title_justify="left")
    lines.add_column("")
    lines.add_column("store")
    for column in suite.columns:
        lines.add_column(column.heading, justify="right")
    lines.add_column("spread", justify="right")
    headings = _headings(results)
    for heading in headings or [LAKELOG]:
        lines.add_column(f"times {heading}", justify="right")
    for title, scores in results.items():
        for score in scores:
            lines.add_row(
                title if score is scores[0] else "", *_cells(suite, score, scores, headings)
            )
        lines.add_section()
    console.print(lines)
    _notes(console, results)


def _by_figure(console: Console, suite: Suite, results: Results) -> None:
    """Print a suite of many figures: a line for each, and a column for each store."""
    for title, scores in results.items():
        lines = Table("", title=f"{suite.name}: {suite.about}; {title}", title_justify="left")
        for score in scores:
            lines.add_column(score.contender.name, justify="right")
        for column in suite.columns:
            lines.add_row(column.heading, *(score.text(column) for score in scores))
        console.print(lines)


def as_json(suite: Suite, results: Results) -> list[dict[str, Any]]:
    """List every contender of every contest, with all samples."""
    return [
        {
            "suite": suite.name,
            "contest": title,
            "store": score.contender.name,
            "settings": score.contender.note,
            "not_run": score.reason or None,
            "median": {
                column.name: score.median(column.name)
                for column in suite.columns
                if score.has(column.name)
            },
            "samples": score.samples,
            "times_lakelog": ratio(suite, score, scores),
            "times": {
                heading: ratio(suite, score, scores, other)
                for heading, other in score.contender.beside.items()
            },
        }
        for title, scores in results.items()
        for score in scores
    ]


def ratio(suite: Suite, score: Score, scores: Sequence[Score], to: str = LAKELOG) -> float | None:
    """Return the ratio to another contender in the same rounds; above 1 is faster."""
    column = suite.columns[0].name
    for other in scores:
        if other.contender.name == to and other.samples and score.samples:
            quotient = score.median(column) / other.median(column)
            return 1 / quotient if suite.lower_is_better else quotient
    return None


def _headings(results: Results) -> list[str]:
    """Return the headings of comparisons with others than lakelog."""
    contenders = (score.contender for scores in results.values() for score in scores)
    return list(dict.fromkeys(heading for each in contenders for heading in each.beside))


def _cells(
    suite: Suite, score: Score, scores: Sequence[Score], headings: Sequence[str]
) -> list[str]:
    if not score.samples:
        return [score.contender.name, f"[dim]{score.reason}[/]"]
    first = suite.columns[0]
    values = score.values(first.name)
    others = [score.contender.beside.get(each, "") for each in headings] or [LAKELOG]
    ratios = [ratio(suite, score, scores, each) for each in others]
    return [
        score.contender.name,
        *map(score.text, suite.columns),
        f"{(max(values) - min(values)) / score.median(first.name):.0%}",
        *("" if each is None else f"{each:.2f}" for each in ratios),
    ]


def _notes(console: Console, results: Results) -> None:
    notes = {score.contender.name: score.contender.note for s in results.values() for score in s}
    for name, note in notes.items():
        console.print(f"  [bold]{name}[/]: {note}", highlight=False)
    console.print()


def page(suites: Mapping[str, Suite], figures: Mapping[str, Any]) -> str:
    """Return the whole document.

    :param figures: the output of ``--json``
    """
    return document("Bench of lakelog", _parts(suites, figures))


def _parts(suites: Mapping[str, Suite], figures: Mapping[str, Any]) -> Iterator[str]:
    yield facts(figures["machine"])
    yield paragraphs([_LEGEND])
    for name, rows in groupby(figures["rows"], lambda row: row["suite"]):
        suite = suites[name]
        better = "less is better" if suite.lower_is_better else "more is better"
        yield section(f"{name}: {suite.about}; {better}", "".join(_tables(suite, list(rows))))


def _tables(suite: Suite, rows: Sequence[Row]) -> Iterator[str]:
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
        bar = pages.Bar(median[first.name] / most, min(values) / most, max(values) / most)
        line = [row["store"], bar, format(median[first.name], first.form)]
        line.append(f"{(max(values) - min(values)) / (median[first.name] or 1):.0%}")
        for each in headings:
            ratio = _ratio(row, each)
            drawn = "" if ratio is None else pages.Bar(ratio / most_times, mark=1 / most_times)
            line += [drawn, "" if ratio is None else f"{ratio:.2f}"]
        line += [
            format(median[each.name], each.form) if each.name in median else "" for each in others
        ]
        lines.append(line)
    return f'<div class="small">{pages.table(heads, lines)}</div>'


def _values(row: Row, column: str) -> list[float]:
    return [sample[column] for sample in row["samples"]]


def _ratio(row: Row, heading: str) -> float | None:
    found: float | None = row["times_lakelog"] if heading == LAKELOG else row["times"].get(heading)
    return found
