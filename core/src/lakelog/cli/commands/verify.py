"""``lakelog verify``: reads the whole log with every check, and says what it found."""

from __future__ import annotations

import attrs
import typer

from lakelog.cli.exitcodes import DAMAGED
from lakelog.cli.opening import open_for
from lakelog.cli.options import Assignments, BrokerConf, SettingsFile, StorePath
from lakelog.cli.walk import directory_of, walk
from lakelog.codec.recordbatch import RecordBatch
from lakelog.errors import BadSegment
from lakelog.layout import ABORT_FILE
from lakelog.pieces import Blank
from lakelog.store import Store


@attrs.define
class Findings:
    """What a whole log holds.

    :ivar record_bytes: length of all records together
    :ivar end_offset: behind the last record or blank
    """

    problems: list[BadSegment]
    end_offset: int = 0
    records: int = 0
    record_bytes: int = 0
    blanks: int = 0
    damaged_places: int = 0
    damaged_bytes: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems and not self.damaged_places


def verify(
    store: StorePath,
    broker_conf: BrokerConf = None,
    settings: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Check every record, and the names and lengths of the segments; exit 1 if any is damaged.

    Each place is told on stderr; the summary goes to stdout. Nothing is changed.
    """
    with open_for("read", store, broker_conf, settings, assignments) as opened:
        found = _findings(opened)
        typer.echo(_summary(found, opened))
    if not found.is_whole:
        raise typer.Exit(DAMAGED)


def _findings(store: Store) -> Findings:
    problems = directory_of(store).problems(store.settings.core.segment_size_bytes)
    for problem in problems:
        typer.echo(f"segment: {problem}", err=True)
    found = Findings(problems, store.min_offset)
    for piece in walk(store):
        if isinstance(piece, RecordBatch):
            found.records += len(piece)
            found.record_bytes += int(piece.sizes.sum())
            found.end_offset = piece.end_offset
        elif isinstance(piece, Blank):
            found.blanks += 1
            found.end_offset = piece.offset + piece.size
        else:
            found.damaged_places += 1
            found.damaged_bytes += piece.end_offset - piece.offset
    return found


def _summary(found: Findings, store: Store) -> str:
    lines = [
        f"{store.path}: {'whole' if found.is_whole else 'DAMAGED'}",
        f"  log      {store.min_offset} to {found.end_offset}",
        f"  records  {found.records} ({found.record_bytes} bytes)",
        f"  blanks   {found.blanks}",
        f"  damaged  {found.damaged_places} places ({found.damaged_bytes} bytes)",
        f"  segments {len(found.problems)} problems",
    ]
    if (store.path / ABORT_FILE).exists():
        lines.append("  abort    is there: in use, or not closed cleanly")
    return "\n".join(lines)
