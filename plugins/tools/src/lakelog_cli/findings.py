"""Reports findings of a check: some of each kind and a count of the rest, or all of it as JSON.

Findings of a check that are explained by a crash: recovery repairs them without loss.

The result of a recovery, as text for a terminal and as a row of JSON.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import typer

from lakelog import Store
from lakelog.errors import BadSegment
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.layout import ABORT_FILE
from lakelog.format.record_batch import Damage
from lakelog.hooks.dispatching import Problem
from lakelog.processes.ownership import is_owned
from lakelog.recovery.examine import examine
from lakelog.recovery.report import Aside, MissingEnd, RecoveryReport
from lakelog_cli.output import progress, shown, write_lines
from lakelog_cli.walk import directory_of, print_damage


@attrs.frozen
class Crash:
    """The outcome of a recovery of a store without an owner that was not closed.

    :ivar end_offset: end of the recovered log; later bytes are moved to quarantine
    :ivar missing: records that were durable, and are lost
    """

    end_offset: int
    missing: tuple[MissingEnd, ...]

    def explains_damage(self, damage: Damage) -> bool:
        """Whether it is the torn end of the log, which contains no acknowledged message."""
        return damage.offset >= self.end_offset and not self.missing

    def explains(self, problem: Problem) -> bool:
        """Whether queues or index only lag behind the log, or are ahead of it."""
        return problem.recoverable


def crash_of(store: Store) -> Crash | None:
    """Plan a recovery, without changing anything.

    ``None`` after a clean stop, beside an owner, or if recovery is impossible.
    """
    if not (store.path / ABORT_FILE).exists() or is_owned(RealFileSystem(), store.path):
        return None
    try:
        with progress("planning a recovery") as advance:
            core = attrs.evolve(store.settings.core, on_damage="skip")
            report = examine(directory_of(store), core, advance).report
    except (BadSegment, OSError):  # the check reports the cause itself
        return None
    return Crash(report.end_offset, report.missing)


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
        self._add({"kind": "missing", **missing._asdict()}, f"missing: records from {missing}")

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


def recovery_lines(store: Path, report: RecoveryReport, *, dry_run: bool) -> Iterator[str]:
    """Yield a line for each finding and each action."""
    cut, mended = ("to cut", "to mend") if dry_run else ("cut", "mended")
    stop = "a clean stop" if report.clean else "an unclean stop"
    yield f"{shown(str(store))}: {stop}"
    yield f"  read      from {report.start_offset}: {report.start_reason}"
    yield f"  records   {report.records} whole ones"
    yield f"  log       {report.minimum} to {report.end_offset}"
    for aside in report.cut:
        size = aside.end_offset - aside.offset
        yield f"  {cut:<9} {size} bytes, {shown(str(aside))}"
    if report.cut_at is not None:
        yield f"  {cut} at{'':<{7 - len(cut)}}{shown(str(report.cut_at))}"
    for damage in report.damage:
        yield f"  damage    {damage.end_offset - damage.offset} bytes stay: {shown(str(damage))}"
    for missing in report.missing:
        yield f"  missing   {missing.end_offset - missing.offset} bytes, {shown(str(missing))}"
    for words in report.mended:
        yield f"  {mended:<9} {shown(words)}"
    if not dry_run:
        yield f"  queues    and index completed from {report.dispatched_from} on"
    yield f"  took      {report.seconds:.2f} s"


def recovery_row(report: RecoveryReport) -> dict[str, Any]:
    """The complete report."""
    return {
        "clean": report.clean,
        "read_from": report.read_from,
        "start_offset": report.start_offset,
        "start_reason": report.start_reason,
        "min_offset": report.minimum,
        "end_offset": report.end_offset,
        "records": report.records,
        "damage": list(map(_damage_row, report.damage)),
        "missing": [each._asdict() for each in report.missing],
        "cut": list(map(aside_row, report.cut)),
        "cut_at": _damage_row(report.cut_at) if report.cut_at is not None else None,
        "mended": list(report.mended),
        "dispatched_from": report.dispatched_from,
        "seconds": report.seconds,
    }


def _damage_row(damage: Damage) -> dict[str, Any]:
    path = str(damage.path) if damage.path is not None else None
    place = {"offset": damage.offset, "end_offset": damage.end_offset}
    return {"path": path, **place, "what": str(damage.error)}


def aside_row(aside: Aside) -> dict[str, Any]:
    """A part in quarantine, with its path."""
    kept = str(aside.path) if aside.path is not None else None
    place = {"offset": aside.offset, "end_offset": aside.end_offset}
    return {**place, "what": aside.reason, "kept": kept}
