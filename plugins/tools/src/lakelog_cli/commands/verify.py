"""``lakelog verify``: reads the whole log with every check, and reports problems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypedDict

import attrs
import typer

from lakelog import Store
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.layout import ABORT_FILE, CHECKPOINT_BYTES, CHECKPOINT_FILE
from lakelog.format.record_batch import Blank, Damage, Piece, RecordBatch
from lakelog.hooks.dispatching import Problem
from lakelog.processes.ownership import is_owned
from lakelog.recovery.report import RecoveryReport
from lakelog_cli import findings, pages
from lakelog_cli.options import AsJson, GivenStore, ReadingProcesses
from lakelog_cli.output import exit_if_found, labelled, prints, size, write_file, write_result
from lakelog_cli.pages import SegmentCounts, document, facts, paragraphs, section
from lakelog_doctor.check import Checking, check_checkpoint, problems
from lakelog_doctor.parallel_scan import Part, WholeSegment, parallel_scan


@attrs.define
class Findings:
    """The content of a whole log, in numbers.

    :ivar record_bytes: length of all records together
    :ivar end_offset: behind the last record or blank
    :ivar segment_problems: number of wrong names and lengths of segments
    """

    segment_problems: int
    end_offset: int = 0
    records: int = 0
    record_bytes: int = 0
    blanks: int = 0
    damaged_places: int = 0
    damaged_bytes: int = 0
    last_timestamp_ms: int = 0

    def count(self, piece: Part) -> None:
        """Add a part."""
        if isinstance(piece, Damage):
            self.damaged_places += 1
            self.damaged_bytes += piece.end_offset - piece.offset
            return
        self.end_offset = piece.end_offset
        self.blanks += isinstance(piece, Blank | WholeSegment)
        if isinstance(piece, WholeSegment):
            self.records += piece.records
            self.record_bytes += piece.record_bytes
            self.last_timestamp_ms = max(self.last_timestamp_ms, piece.last_timestamp_ms)
        elif isinstance(piece, RecordBatch):
            self.records += len(piece)
            self.record_bytes += int(piece.sizes.sum())
            self.last_timestamp_ms = int(piece.store_timestamps_ms[-1])


class CheckSummary(TypedDict):
    """The last line of a check.

    :ivar whole: whether all problems are normal after a crash, or there are none
    :ivar record_bytes: length of all records
    :ivar last_timestamp_ms: store time of the last message
    :ivar torn_bytes: length of an incomplete put at the end after a crash
    :ivar compared: derived files that were compared with the log
    :ivar problems: number of faults in the derived files
    :ivar behind: number of places where a derived file lags behind the log
    :ivar abort: whether the file ``abort`` exists
    """

    kind: Literal["summary"]
    whole: bool
    state: Literal["whole", "crashed", "damaged"]
    start_offset: int
    segment_problems: int
    end_offset: int
    records: int
    record_bytes: int
    blanks: int
    damaged_places: int
    damaged_bytes: int
    last_timestamp_ms: int
    torn_bytes: int
    compared: list[str]
    problems: int
    behind: int
    abort: bool


@prints(*findings.ROWS, CheckSummary)
def verify(  # each argument is an option of the command
    store: GivenStore,
    *,
    queues: Annotated[bool, typer.Option("--queues", help="Compare queues, too.")] = False,
    index: Annotated[bool, typer.Option("--index", help="Compare the key index, too.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Compare queues, index, checkpoint.")
    ] = False,
    processes: ReadingProcesses = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write the result as a page.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check every record, and the names and lengths of segments; exit 1 if any is damaged.

    With --queues and --index, these files are compared with the log, one by one; with --all, the
    checkpoint too. Each problem is printed on stderr, at most 20 of a kind; the summary is printed
    on stdout, with the command that repairs the problems. With --json everything is printed on
    stdout, a line each, the summary last. --html writes a page in one file. Nothing is changed, and
    the store may be in use.

    A store whose owner crashed is whole, and the exit code is 0, if a recovery loses nothing: then
    queues and index that lag behind the log, and a torn put at its end, are no problems.
    """
    with store.read() as opened:
        segments = SegmentCounts.of(opened) if html is not None else None
        verdict = checked(
            opened,
            queues=queues or everything,
            index=index or everything,
            as_json=as_json,
            processes=processes,
            segments=segments,
        )
        reporter = verdict.reporter
        for missing in verdict.crash.missing if verdict.crash is not None else ():
            reporter.missing(missing)
        if everything:
            reporter.report(_checkpoint(opened.path, verdict.found))
        reporter.finish()
        write_result(_row(verdict, opened), _summary(verdict, opened), as_json=as_json)
        if html is not None and segments is not None:
            write_file(html, _page(verdict, opened, segments))
    exit_if_found(verdict.is_damaged)


def checked(
    store: Store,
    *,
    queues: bool,
    index: bool,
    as_json: bool = False,
    processes: int | None = None,
    segments: SegmentCounts | None = None,
) -> Verdict:
    """Read the whole log, report problems, and sum up.

    :param queues: whether to compare queues with the log; ``index`` likewise
    :param segments: counts the records of each segment
    """
    with closing(Checking.of(store, queues=queues, index=index)) as checking:
        crash = findings.crash_of(store)
        reporter, wrong = findings.ProblemReporter(crash, as_json=as_json), problems(store)
        for problem in wrong:
            reporter.segment(problem)
        found = Findings(len(wrong), store.min_offset)
        for part in findings.walked(store, parallel_scan(store, processes), reporter.damage):
            if not (isinstance(part, Damage) and reporter.is_torn(part)):
                found.count(part)
                if segments is not None:
                    segments.add(part)
            for piece in _pieces(store, part) if checking.names else ():
                reporter.report(checking.take(piece))
        reporter.report(checking.finish())
    return Verdict(found, reporter, crash, checking.names)


def _pieces(store: Store, part: Part) -> Iterator[Piece]:
    """The pieces of a part; checksums of whole segments were computed already."""
    if isinstance(part, WholeSegment):
        yield from store.scan_pieces(part.start_offset, part.end_offset, verify=False)
    else:
        yield part


def _checkpoint(path: Path, found: Findings) -> Iterator[Problem]:
    try:
        yield from check_checkpoint(path, found.end_offset, found.last_timestamp_ms)
    except OSError as error:
        file = Path(error.filename or path / CHECKPOINT_FILE)
        words = "the checkpoint cannot be read"
        yield Problem(file, 0, words, f"a file of {CHECKPOINT_BYTES} bytes", error.strerror or "")


@attrs.frozen
class Verdict:
    """The result of a whole check."""

    found: Findings
    reporter: findings.ProblemReporter
    crash: RecoveryReport | None
    names: tuple[str, ...]

    @property
    def is_damaged(self) -> bool:
        """Whether something is wrong that a crash does not explain."""
        found = self.found
        return bool(self.reporter.problems or found.segment_problems or found.damaged_places)

    @property
    def state(self) -> str:
        """One word for programs."""
        if self.is_damaged:
            return "damaged"
        return "whole" if self.crash is None else "crashed"


def _row(verdict: Verdict, store: Store) -> dict[str, Any]:
    return {
        "kind": "summary",
        "whole": not verdict.is_damaged,
        "state": verdict.state,
        "start_offset": store.min_offset,
        **attrs.asdict(verdict.found),
        "torn_bytes": verdict.reporter.torn_bytes,
        "compared": list(verdict.names),
        "problems": verdict.reporter.problems,
        "behind": verdict.reporter.behind,
        "abort": (store.path / ABORT_FILE).exists(),
    }


_STATES: Final = {
    "whole": "whole",
    "crashed": "crashed, whole; `lakelog recover` mends it",
    "damaged": "DAMAGED",
}


def _summary(verdict: Verdict, store: Store) -> Iterator[str]:
    found, reporter = verdict.found, verdict.reporter
    yield f"{store.path}: {_STATES[verdict.state]}"
    yield labelled("log", f"{store.min_offset} to {found.end_offset}")
    yield labelled("records", f"{found.records} ({found.record_bytes} bytes)")
    yield labelled("blanks", str(found.blanks))
    yield labelled("damaged", f"{found.damaged_places} places ({found.damaged_bytes} bytes)")
    yield labelled("segments", f"{found.segment_problems} problems")
    if reporter.torn_bytes:
        put = "behind the last record, as a put that was cut off leaves them"
        kept = "a recovery keeps them in lakelog/quarantine"
        yield labelled("torn", f"{reporter.torn_bytes} bytes {put}; {kept}")
    if verdict.names:
        yield labelled("derived", f"{reporter.problems} problems in {', '.join(verdict.names)}")
    if reporter.behind:
        lag = f"queues and index lag behind the log in {reporter.behind} places"
        yield labelled("behind", f"{lag}; a recovery completes them from it")
    if (store.path / ABORT_FILE).exists():
        in_use = is_owned(RealFileSystem(), store.path)
        stopped = "in use" if in_use else "the last owner did not close the store"
        yield labelled("abort", f"is there: {stopped}")
    if advice := _advice(verdict):
        yield labelled("next", advice)


def _advice(verdict: Verdict) -> str:
    """The command that mends the problems; empty if there are none."""
    if verdict.state == "crashed":
        return "`lakelog recover`, or just open the store: every open recovers it first"
    steps = []
    if verdict.crash is not None or verdict.found.segment_problems:
        steps.append("`lakelog recover` mends what a crash leaves, and lengths of files")
    if verdict.found.damaged_places:
        steps.append("`lakelog repair` puts records in the place of damaged and missing ones")
    if verdict.reporter.problems:
        steps.append("`lakelog rebuild` builds queues and index anew from the log")
    return "; then ".join(steps)


def _page(verdict: Verdict, store: Store, segments: SegmentCounts) -> str:
    """The whole result as an HTML document."""
    found, reporter, advice = verdict.found, verdict.reporter, _advice(verdict)
    values = {
        "state": verdict.state,
        "records": f"{found.records:,}",
        "bytes of records": size(found.record_bytes),
        "log": f"{store.min_offset} to {found.end_offset}",
        "damaged": f"{found.damaged_places} places, {size(found.damaged_bytes)}",
        "wrong segments": f"{found.segment_problems}",
        "compared": ", ".join(verdict.names) or "the log alone",
        "other problems": f"{reporter.problems}",
        "behind": f"{reporter.behind} places",
        "torn": size(reporter.torn_bytes),
    }
    parts = [
        facts(values, bad=["state"] if verdict.is_damaged else []),
        section("What to do", paragraphs([advice])) if advice else "",
        section("Segments", pages.segment_map(segments)),
        section("Findings", _findings(reporter)),
    ]
    return document(f"Check of {store.path}", parts)


def _findings(reporter: findings.ProblemReporter) -> str:
    heads = ["kind", "file", "at", "what", "expected", "found"]
    table = pages.table(heads, map(_finding, reporter.rows))
    left = reporter.not_kept
    return table + (paragraphs([f"and {left} more: lakelog verify --json"]) if left else "")


def _finding(row: Mapping[str, Any]) -> list[object]:
    """One row; fields that only some kinds of findings have are joined in the column ``what``."""
    named = {"kind", "path", "position", "offset", "what", "expected", "found"}
    more = [f"{name} {value}" for name, value in row.items() if name not in named]
    at = row.get("position", row.get("offset", ""))
    words = ", ".join(filter(None, [row.get("what", ""), *more]))
    compared = (row.get(name, "") for name in ("expected", "found"))
    return [row["kind"], row.get("path") or "", at, words, *compared]
