"""Writes scores as tables and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tests.bench.model import LAKELOG, Suite
from tests.bench.rounds import Score

_MOST_COLUMNS: Final = 16
"""More columns do not fit into a line."""
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
            medians = [
                format(score.median(column.name), column.form) if score.has(column.name) else ""
                for score in scores
            ]
            lines.add_row(column.heading, *medians)
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
            }
            if score.samples
            else {},
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
        *(
            format(score.median(column.name), column.form) if score.has(column.name) else ""
            for column in suite.columns
        ),
        f"{(max(values) - min(values)) / score.median(first.name):.0%}",
        *("" if each is None else f"{each:.2f}" for each in ratios),
    ]


def _notes(console: Console, results: Results) -> None:
    notes = {score.contender.name: score.contender.note for s in results.values() for score in s}
    for name, note in notes.items():
        console.print(f"  [bold]{name}[/]: {note}", highlight=False)
    console.print()
