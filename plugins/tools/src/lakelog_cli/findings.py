"""Reports findings of a check: some of each kind and a count of the rest, or all of it as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs
import typer

from lakelog.errors import BadSegment
from lakelog.log.reading.pieces import Damage
from lakelog.recovery.report import MissingEnd
from lakelog_cli.crashes import Crash
from lakelog_cli.output import write_lines
from lakelog_cli.walk import print_damage
from lakelog_interfaces.strategies.verifying import Problem

MOST_SHOWN: Final = 20
MOST_KEPT: Final = 1000


class ProblemReporter:
    """Writes problems to stderr as text, or to stdout as JSON, as they are found.

    :param crash: problems explained by it are counted, and written only as JSON
    :ivar behind: number of places where queues and index lag behind the log, or are ahead of it
    :ivar torn_bytes: bytes after the last record of a log whose owner crashed
    :ivar rows: the first thousand findings, as in JSON
    :ivar not_kept: number of the others
    """

    def __init__(self, crash: Crash | None, *, as_json: bool) -> None:
        self.behind = 0
        self.torn_bytes = 0
        self.rows: list[Mapping[str, Any]] = []
        self.not_kept = 0
        self._crash = crash
        self._as_json = as_json
        self._found: Counter[str] = Counter()

    @property
    def problems(self) -> int:
        """The number of problems, including those only counted."""
        return self._found.total()

    def report(self, problems: Iterable[Problem]) -> None:
        """Report problems of queues and index."""
        for problem in problems:
            if self._crash is not None and self._crash.explains(problem):
                self.behind += 1
                self._add(_row("behind", problem))
                continue
            self._found[problem.what] += 1
            is_shown = self._found[problem.what] <= MOST_SHOWN
            self._add(_row("problem", problem), f"problem: {problem}" if is_shown else None)

    def finish(self) -> None:
        """Report the number of problems that were only counted."""
        for what, count in self._found.items():
            if not self._as_json and count > MOST_SHOWN:
                typer.echo(f"problem: {what}: {count - MOST_SHOWN} more", err=True)

    def segment(self, problem: BadSegment) -> None:
        """Report a wrong name or length of a segment."""
        self._add({"kind": "segment", "what": str(problem)}, f"segment: {problem}")

    def missing(self, missing: MissingEnd) -> None:
        """Report lost records that were durable."""
        self._found["missing"] += 1
        self._add({"kind": "missing", **attrs.asdict(missing)}, f"missing: records from {missing}")

    def damage(self, damage: Damage) -> None:
        """Report damage in the log, also on stderr."""
        torn = self.is_torn(damage)
        if torn:
            self.torn_bytes += damage.end_offset - damage.offset
        else:
            print_damage(damage)
        kind = "torn" if torn else "damage"
        place = {"offset": damage.offset, "end_offset": damage.end_offset}
        path = str(damage.path) if damage.path is not None else None
        self._add({"kind": kind, "path": path, **place, "what": str(damage.error)})

    def is_torn(self, damage: Damage) -> bool:
        """Whether it is the torn end of a put at the crash, not damage."""
        return self._crash is not None and self._crash.explains_damage(damage)

    def line(self, row: Mapping[str, Any]) -> None:
        """Write one line of JSON."""
        write_lines([row])

    def _add(self, row: Mapping[str, Any], text: str | None = None) -> None:
        """Keep a finding, and write it; ``None`` if there is nothing to write as text."""
        if len(self.rows) < MOST_KEPT:
            self.rows.append(row)
        else:
            self.not_kept += 1
        if self._as_json:
            self.line(row)
        elif text is not None:
            typer.echo(text, err=True)


def _row(kind: str, problem: Problem) -> dict[str, Any]:
    return {
        "kind": kind,
        "path": str(problem.path),
        "position": problem.position,
        "what": problem.what,
        "expected": problem.expected,
        "found": problem.found,
    }
