"""Reads of whole logs with a progress bar, and reports of what they, checks and recoveries found.

Findings are text, or rows of JSON. Of a check, some findings of each kind are printed, and the rest
is counted. Findings that a crash explains are told apart: a recovery repairs them without loss.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypedDict, TypeVar

import attrs

from lakelog import Store
from lakelog.errors import BadSegment
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.layout import ABORT_FILE
from lakelog.format.record_batch import Damage, Piece
from lakelog.hooks.dispatching import Problem
from lakelog.processes.ownership import is_owned
from lakelog.recovery.examine import examine
from lakelog.recovery.report import Aside, MissingEnd, RecoveryReport
from lakelog_cli.output import labelled, print_line, progress, write_lines
from lakelog_doctor.parallel_scan import Part, directory_of

PartT = TypeVar("PartT", bound="Part")


@attrs.define
class DamageCounter:
    """Counts damage, and prints each instance to stderr.

    :ivar count: number of damaged ranges
    """

    count: int = 0

    def __call__(self, damage: Damage) -> None:
        """Count and print one instance."""
        print_damage(damage)
        self.count += 1


def walk(
    store: Store, on_damage: DamageCounter, start: int | None = None, end: int | None = None
) -> Iterator[Piece]:
    """Yield the log from ``start`` to ``end``; damage is counted, and printed on stderr."""
    # Lines on a terminal show progress themselves, and a bar between them would flicker.
    hidden = sys.stdout.isatty()
    return walked(store, store.scan_pieces(start, end), on_damage, start, end, hidden=hidden)


def walked(
    store: Store,
    parts: Iterator[PartT],
    on_damage: Callable[[Damage], None],
    start: int | None = None,
    end: int | None = None,
    *,
    hidden: bool = False,
) -> Iterator[PartT]:
    """Yield ``parts`` of the log from ``start`` to ``end``, with a progress bar unless ``hidden``.

    :param on_damage: called with each damage before it is yielded
    """
    first = max(store.min_offset, start or 0)
    if end is None:
        segments = directory_of(store).segments()
        end = max((each.start_offset + each.length for each in segments), default=0)
    with progress("reading", max(0, end - first), hidden=hidden) as advance:
        for part in parts:
            if isinstance(part, Damage):
                on_damage(part)
            yield part
            advance(part.end_offset - first)


def print_damage(damage: Damage) -> None:
    """Print one line to stderr."""
    print_line(f"damaged: {damage}", err=True)


class PlaceRow(TypedDict):
    """A range of the log without whole records."""

    path: str | None
    offset: int
    end_offset: int
    what: str


class MissingRow(TypedDict):
    """Lost records: a range behind the end of the log, and the evidence of it."""

    offset: int
    end_offset: int
    how: str


class AsideRow(TypedDict):
    """A range that was kept in lakelog/quarantine.

    :ivar kept: file with the bytes; null before they are copied
    """

    offset: int
    end_offset: int
    what: str
    kept: str | None


class RecoveryDocument(TypedDict):
    """Findings and actions of a recovery.

    :ivar clean: whether the store had been closed cleanly
    :ivar read_from: offset from which the log was read
    :ivar start_reason: reason for reading from ``start_offset`` on
    :ivar records: number of whole records that were read
    :ivar mended: other repairs, as texts
    :ivar dispatched_from: offset from which queues and index were completed; null if not done
    """

    clean: bool
    read_from: int
    start_offset: int
    start_reason: str
    min_offset: int
    end_offset: int
    records: int
    damage: list[PlaceRow]
    missing: list[MissingRow]
    cut: list[AsideRow]
    cut_at: PlaceRow | None
    mended: list[str]
    dispatched_from: int | None
    seconds: float


class ProblemRow(TypedDict):
    """A fault in a derived file; of kind ``behind`` if a recovery repairs it without loss.

    :ivar position: position in the file, in bytes
    """

    kind: Literal["problem", "behind"]
    path: str
    position: int
    what: str
    expected: str
    found: str


class DamageRow(PlaceRow):
    """Damage in the log; of kind ``torn`` for an incomplete put at its end after a crash."""

    kind: Literal["damage", "torn"]


class BadSegmentRow(TypedDict):
    """A wrong name or length of a segment."""

    kind: Literal["segment"]
    what: str


class LostRow(MissingRow):
    """Durable records that are missing at the end of the log."""

    kind: Literal["missing"]


ROWS: Final = (ProblemRow, DamageRow, BadSegmentRow, LostRow)
"""The objects of a check, but for its summary."""


def crash_of(store: Store) -> RecoveryReport | None:
    """Plan the recovery of a store without an owner that was not closed; changes nothing.

    ``None`` after a clean stop, beside an owner, or if recovery is impossible.
    """
    if not (store.path / ABORT_FILE).exists() or is_owned(RealFileSystem(), store.path):
        return None
    try:
        with progress("planning a recovery") as advance:
            core = attrs.evolve(store.settings.core, on_damage="cut-end")
            return examine(directory_of(store), core, advance).report
    except (BadSegment, OSError):  # the check reports the cause itself
        return None


MOST_SHOWN: Final = 20
MOST_KEPT: Final = 1000


class ProblemReporter:
    """Writes problems to stderr as text, or to stdout as JSON, as they are found.

    :param crash: the planned recovery; problems that it mends without loss are counted, and
        written only as JSON
    :ivar behind: number of places where queues and index lag behind the log, or are ahead of it
    :ivar torn_bytes: bytes after the last record of a log whose owner crashed
    :ivar rows: the first thousand findings, as in JSON
    :ivar not_kept: number of the others
    """

    def __init__(self, crash: RecoveryReport | None, *, as_json: bool) -> None:
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
            # queues or index that only lag behind the log, or are ahead of it
            if self._crash is not None and problem.recoverable:
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
                print_line(f"problem: {what}: {count - MOST_SHOWN} more", err=True)

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
        self._add({"kind": "torn" if torn else "damage", **_damage_row(damage)})

    def is_torn(self, damage: Damage) -> bool:
        """Whether it is the torn end of the log, which has no acknowledged message: no damage."""
        crash = self._crash
        return crash is not None and damage.offset >= crash.end_offset and not crash.missing

    def _add(self, row: Mapping[str, Any], text: str | None = None) -> None:
        """Keep a finding, and write it; ``None`` if there is nothing to write as text."""
        if len(self.rows) < MOST_KEPT:
            self.rows.append(row)
        else:
            self.not_kept += 1
        if self._as_json:
            write_lines([row])
        elif text is not None:
            print_line(text, err=True)


def _row(kind: str, problem: Problem) -> dict[str, Any]:
    row = {"kind": kind, **problem._asdict(), "path": str(problem.path)}
    del row["recoverable"]
    return row


def recovery_lines(store: Path, report: RecoveryReport, *, dry_run: bool) -> Iterator[str]:
    """Yield a line for each finding and each action."""
    cut, mended = ("to cut", "to mend") if dry_run else ("cut", "mended")
    stop = "a clean stop" if report.clean else "an unclean stop"
    yield f"{store}: {stop}"
    yield labelled("read", f"from {report.start_offset}: {report.start_reason}")
    yield labelled("records", f"{report.records} whole ones")
    yield labelled("log", f"{report.minimum} to {report.end_offset}")
    for aside in report.cut:
        yield labelled(cut, f"{aside.end_offset - aside.offset} bytes, {aside}")
    if report.cut_at is not None:
        yield labelled(f"{cut} at", str(report.cut_at))
    for damage in report.damage:
        yield labelled("damage", f"{damage.end_offset - damage.offset} bytes stay: {damage}")
    for missing in report.missing:
        yield labelled("missing", f"{missing.end_offset - missing.offset} bytes, {missing}")
    for words in report.mended:
        yield labelled(mended, words)
    if not dry_run:
        yield labelled("queues", f"and index completed from {report.dispatched_from} on")
    yield labelled("took", f"{report.seconds:.2f} s")


def recovery_row(report: RecoveryReport) -> dict[str, Any]:
    """The complete report."""
    told = {
        "min_offset": report.minimum,
        "damage": list(map(_damage_row, report.damage)),
        "missing": [each._asdict() for each in report.missing],
        "cut": list(map(aside_row, report.cut)),
        "cut_at": _damage_row(report.cut_at) if report.cut_at is not None else None,
        "mended": list(report.mended),
    }
    names = RecoveryDocument.__annotations__
    return {each: told[each] if each in told else getattr(report, each) for each in names}


def _damage_row(damage: Damage) -> dict[str, Any]:
    return {
        "path": None if damage.path is None else str(damage.path),
        "offset": damage.offset,
        "end_offset": damage.end_offset,
        "what": str(damage.error),
    }


def aside_row(aside: Aside) -> dict[str, Any]:
    """A part in quarantine, with its path."""
    return {
        "offset": aside.offset,
        "end_offset": aside.end_offset,
        "what": aside.reason,
        "kept": None if aside.path is None else str(aside.path),
    }
