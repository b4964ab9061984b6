"""``lakelog rebuild``: builds queues and index again from the log."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import typer

from lakelog_cli import findings, options, output
from lakelog_doctor.rebuild import RebuildReport
from lakelog_doctor.rebuild import rebuild as rebuild_store


class RebuildRow(TypedDict):
    """A rebuild.

    :ivar size_bytes: length of the log
    :ivar folders: folders of the built files
    """

    records: int
    size_bytes: int
    damaged_places: int
    damaged_bytes: int
    folders: list[str]
    seconds: float


@output.prints(RebuildRow)
def rebuild(
    store: options.GivenStore,
    *,
    queues: Annotated[bool, typer.Option("--queues", help="Build the queues.")] = False,
    index: Annotated[bool, typer.Option("--index", help="Build the key index.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Build queues, index, or both again from the log; no process may own the store.

    Without --queues and --index both are built; the new files replace the old ones at the end.
    Removed topics are in the queues again as long as the log has their messages. Damage in the log
    is skipped and reported on stderr; the exit code is then 1, and the rest is built.
    """
    with output.progress("rebuilding") as advance:
        report = rebuild_store(
            store.path,
            queues=queues or not index,
            index=index or not queues,
            progress=advance,
            **store.arguments,
        )
    for damage in report.damage:
        findings.print_damage(damage)
    output.write_result(_row(report), _summary(report), as_json=as_json)
    output.exit_if_found(report.damage)


def _row(report: RebuildReport) -> dict[str, Any]:
    return {
        "records": report.records,
        "size_bytes": report.bytes,
        "damaged_places": len(report.damage),
        "damaged_bytes": sum(each.end_offset - each.offset for each in report.damage),
        "folders": list(report.folders),
        "seconds": report.seconds,
    }


def _summary(report: RebuildReport) -> str:
    made = ", ".join(report.folders) or "nothing"
    damaged = f", passed over {len(report.damage)} damaged places" if report.damage else ""
    return (
        f"built {made} from {report.records} records ({report.bytes} bytes) "
        f"in {report.seconds:.1f} s{damaged}"
    )
