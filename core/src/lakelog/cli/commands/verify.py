"""``lakelog verify``: reads the whole log with every check, and says what it found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import attrs
import typer

from lakelog.check import Checking, check_checkpoint
from lakelog.cli.exitcodes import DAMAGED
from lakelog.cli.findings import Reporter
from lakelog.cli.opening import open_for
from lakelog.cli.options import AsJson, Assignments, BrokerConf, SettingsFile, StorePath
from lakelog.cli.walk import directory_of, walk_parts
from lakelog.codec.recordbatch import RecordBatch
from lakelog.layout import ABORT_FILE, CHECKPOINT_BYTES, CHECKPOINT_FILE
from lakelog.parallelscan import Part, WholeSegment
from lakelog.pieces import Blank, Damage, Piece
from lakelog.store import Store
from lakelog.verifying import Problem


@attrs.define
class Findings:
    """What a whole log holds.

    :ivar record_bytes: length of all records together
    :ivar end_offset: behind the last record or blank
    :ivar segment_problems: how many names and lengths of segments are wrong
    """

    segment_problems: int
    end_offset: int = 0
    records: int = 0
    record_bytes: int = 0
    blanks: int = 0
    damaged_places: int = 0
    damaged_bytes: int = 0
    last_timestamp_ms: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.segment_problems and not self.damaged_places

    def count(self, piece: Part) -> None:
        """Add a part."""
        if isinstance(piece, WholeSegment):
            self.records += piece.records
            self.record_bytes += piece.record_bytes
            self.blanks += 1
            self.end_offset = piece.end_offset
            self.last_timestamp_ms = max(self.last_timestamp_ms, piece.last_timestamp_ms)
        elif isinstance(piece, RecordBatch):
            self.records += len(piece)
            self.record_bytes += int(piece.sizes.sum())
            self.end_offset = piece.end_offset
            self.last_timestamp_ms = int(piece.store_timestamps_ms[-1])
        elif isinstance(piece, Blank):
            self.blanks += 1
            self.end_offset = piece.offset + piece.size
        else:
            self.damaged_places += 1
            self.damaged_bytes += piece.end_offset - piece.offset


def verify(  # noqa: PLR0913  # each argument is an option of the command
    store: StorePath,
    *,
    queues: Annotated[bool, typer.Option("--queues", help="Compare queues, too.")] = False,
    index: Annotated[bool, typer.Option("--index", help="Compare the key index, too.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Compare queues, index, checkpoint.")
    ] = False,
    processes: Annotated[
        int | None,
        typer.Option("--processes", min=1, help="How many read; as many as there are cores."),
    ] = None,
    as_json: AsJson = False,
    broker_conf: BrokerConf = None,
    settings: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Check every record, and the names and lengths of the segments; exit 1 if any is damaged.

    With --queues and --index, what was built from the log is compared with it, file by file, and
    with --all the checkpoint, too; what is wrong there is mended by `lakelog rebuild`. Each place
    is told on stderr, 20 of a kind at most; the summary goes to stdout. With --json all of them go
    to stdout, a line each, the summary last. Nothing is changed, and the store may be in use.
    """
    with ExitStack() as held:
        opened = held.enter_context(open_for("read", store, broker_conf, settings, assignments))
        checking = _begin(opened, queues=queues or everything, index=index or everything)
        if checking is not None:
            held.callback(checking.close)
        reporter = Reporter(as_json=as_json)
        found = _findings(opened, checking, reporter, processes)
        if everything:
            reporter.tell(_checkpoint(opened.path, found))
        reporter.finish()
        names = checking.names if checking is not None else ()
        if as_json:
            reporter.line(_row(found, opened, names, reporter.problems))
        else:
            typer.echo(_summary(found, opened, names, reporter.problems))
    if reporter.problems or not found.is_whole:
        raise typer.Exit(DAMAGED)


def _checkpoint(path: Path, found: Findings) -> Iterator[Problem]:
    try:
        yield from check_checkpoint(path, found.end_offset, found.last_timestamp_ms)
    except OSError as error:
        file = Path(error.filename or path / CHECKPOINT_FILE)
        words = "the checkpoint cannot be read"
        yield Problem(file, 0, words, f"a file of {CHECKPOINT_BYTES} bytes", error.strerror or "")


def _begin(store: Store, *, queues: bool, index: bool) -> Checking | None:
    return Checking.of(store, queues=queues, index=index) if queues or index else None


def _findings(
    store: Store, checking: Checking | None, reporter: Reporter, processes: int | None
) -> Findings:
    problems = directory_of(store).problems(store.settings.core.segment_size_bytes)
    for problem in problems:
        reporter.segment(problem)
    found = Findings(len(problems), store.min_offset)
    for part in walk_parts(store, processes):
        found.count(part)
        if isinstance(part, Damage):
            reporter.damage(part)
        if checking is not None:
            for piece in _pieces(store, part):
                reporter.tell(checking.take(piece))
    if checking is not None:
        reporter.tell(checking.finish())
    return found


def _pieces(store: Store, part: Part) -> Iterator[Piece]:
    """What a part is made of; checksums of whole segments were computed already."""
    if isinstance(part, WholeSegment):
        yield from store.scan_pieces(part.start_offset, part.end_offset, verify=False)
    else:
        yield part


def _row(found: Findings, store: Store, names: tuple[str, ...], problems: int) -> dict[str, Any]:
    return {
        "kind": "summary",
        "whole": found.is_whole and not problems,
        "start_offset": store.min_offset,
        **attrs.asdict(found),
        "compared": list(names),
        "problems": problems,
        "abort": (store.path / ABORT_FILE).exists(),
    }


def _summary(found: Findings, store: Store, names: tuple[str, ...], problems: int) -> str:
    lines = [
        f"{store.path}: {'whole' if found.is_whole and not problems else 'DAMAGED'}",
        f"  log      {store.min_offset} to {found.end_offset}",
        f"  records  {found.records} ({found.record_bytes} bytes)",
        f"  blanks   {found.blanks}",
        f"  damaged  {found.damaged_places} places ({found.damaged_bytes} bytes)",
        f"  segments {found.segment_problems} problems",
    ]
    if names:
        mends = "; `lakelog rebuild` mends them" if problems else ""
        lines.append(f"  derived  {problems} problems in {', '.join(names)}{mends}")
    if (store.path / ABORT_FILE).exists():
        lines.append("  abort    is there: in use, or not closed cleanly")
    return "\n".join(lines)
