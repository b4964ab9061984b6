"""``lakelog clean``: deletes the segments that the store's cleaner chooses, or reports them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypedDict

import typer

from lakelog.hooks import CleaningReport, Deleted
from lakelog.hooks.housekeeping import KeptSegment
from lakelog.times import iso
from lakelog_cli import options, output


class DeletedSegmentRow(TypedDict):
    """A deleted segment; with ``--dry-run``, a segment to delete.

    :ivar last_timestamp_ms: store time of its last message
    :ivar pinned_by: followers whose pins need it
    """

    kind: Literal["segment"]
    start_offset: int
    size_bytes: int
    last_timestamp_ms: int
    reason: str
    pinned_by: list[str]


class CleanSummary(TypedDict):
    """The last line of a cleaning.

    :ivar min_offset: start of the log after the cleaning
    :ivar kept: the first segment that stays
    :ivar other_files: number of deleted files of queues and index
    :ivar topics: topics without messages, whose queues were removed
    """

    kind: Literal["summary"]
    dry_run: bool
    segments: int
    freed_bytes: int
    min_offset: int
    kept: KeptSegment | None
    other_files: int
    topics: list[str]


@output.prints(DeletedSegmentRow, CleanSummary)
def clean(
    store: options.GivenStore,
    *,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Change nothing; list the segments, with reasons and sizes."
        ),
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Delete now the segments that the store's cleaner selects, outside of its hours too.

    Segments are deleted from the oldest on, up to the first that has to stay: because it is being
    read, because a follower's pin needs it, or because a plugin keeps it. Queues and index follow.
    The store must name a cleaner. If processes have the store open, the process with its services
    deletes, by its own settings. With --dry-run nothing is changed.
    With --json there is a line for each segment, and the summary last.
    """
    with store.read() as opened:
        report = opened.delete_expired(dry_run=True)  # or no store is here, or no cleaner is set
    if not dry_run:
        with store.open("write", store.path, notes=False) as opened:
            opened.wait_dispatched(timeout_ms=60_000)
            report = opened.delete_expired()
    if as_json:
        output.write_lines([*_rows(report), _summary(report)])
        return
    output.print_lines(_lines(report))


def _rows(report: CleaningReport) -> Iterator[dict[str, Any]]:
    for each in report.deleted:
        yield {"kind": "segment", **each._asdict(), "pinned_by": list(each.pinned_by)}


def _summary(report: CleaningReport) -> dict[str, Any]:
    return {
        "kind": "summary",
        "dry_run": report.dry_run,
        "segments": len(report.deleted),
        "freed_bytes": report.freed_bytes,
        "min_offset": report.min_offset,
        "kept": None if report.kept is None else report.kept._asdict(),
        "other_files": report.other_files,
        "topics": list(report.topics),
    }


def _lines(report: CleaningReport) -> Iterator[str]:
    yield from (_line(each) for each in report.deleted)
    if report.kept is not None:
        yield f"{report.kept.start_offset:020d} stays: {report.kept.reason}"
    if report.topics:
        yield f"topics without messages: {', '.join(report.topics)}"
    verb = "would be deleted" if report.dry_run else "deleted"
    count, others = len(report.deleted), report.other_files
    yield (
        f"{count} segments ({report.freed_bytes} bytes) {verb}"
        f"{f', and {others} files of queues and index' if others else ''}; "
        f"the log {'would begin' if report.dry_run else 'begins'} at {report.min_offset}"
    )


def _line(each: Deleted) -> str:
    needed = f"; STILL NEEDED by {', '.join(each.pinned_by)}" if each.pinned_by else ""
    return (
        f"{each.start_offset:020d}  {each.size_bytes} bytes  last message "
        f"{iso(each.last_timestamp_ms, None)}  {each.reason}{needed}"
    )
