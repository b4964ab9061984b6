"""Tells what a check finds: some of each kind and a count of the rest, or all of it as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import typer

from lakelog.cli.output import write_lines
from lakelog.errors import BadSegment
from lakelog.pieces import Damage
from lakelog.verifying import Problem

MOST_TOLD: Final = 20


class Reporter:
    """Problems go to stderr as text, or to stdout as JSON, as they are found."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._found: Counter[str] = Counter()

    @property
    def problems(self) -> int:
        """How many were told, or counted only."""
        return self._found.total()

    def tell(self, problems: Iterable[Problem]) -> None:
        """Take what is wrong with queues and index."""
        for problem in problems:
            self._found[problem.what] += 1
            if self._as_json:
                self.line(_row(problem))
            elif self._found[problem.what] <= MOST_TOLD:
                typer.echo(f"problem: {problem}", err=True)

    def finish(self) -> None:
        """Say how many were not told."""
        for what, count in self._found.items():
            if not self._as_json and count > MOST_TOLD:
                typer.echo(f"problem: {what}: {count - MOST_TOLD} more", err=True)

    def segment(self, problem: BadSegment) -> None:
        """Tell of a segment's name or length."""
        if self._as_json:
            self.line({"kind": "segment", "what": str(problem)})
        else:
            typer.echo(f"segment: {problem}", err=True)

    def damage(self, damage: Damage) -> None:
        """Tell of damage in the log; a walk has said it on stderr already."""
        if self._as_json:
            place = {"offset": damage.offset, "end_offset": damage.end_offset}
            path = str(damage.path) if damage.path is not None else None
            self.line({"kind": "damage", "path": path, **place, "what": str(damage.error)})

    def line(self, row: Mapping[str, Any]) -> None:
        """One line of JSON."""
        write_lines([row])


def _row(problem: Problem) -> dict[str, Any]:
    return {
        "kind": "problem",
        "path": str(problem.path),
        "position": problem.position,
        "what": problem.what,
        "expected": problem.expected,
        "found": problem.found,
    }
