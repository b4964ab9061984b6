"""``lakelog doctor``: the state of a directory, the effects of an open, and commands to run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypedDict

from lakelog import Store
from lakelog.errors import LakelogError, PluginError, UnreadableEnd
from lakelog.files.checkpoint import read_checkpoint
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.identity import read_replica
from lakelog.files.segment_files import SegmentFile
from lakelog.format.layout import ABORT_FILE, OWN_DIR
from lakelog.format.record_batch import RecordBatch
from lakelog.processes.ownership import is_owned, owner_pid
from lakelog.recovery.examine import MARGIN_MS
from lakelog.recovery.report import RecoveryReport
from lakelog_cli import output
from lakelog_cli.commands.verify import Verdict, checked
from lakelog_cli.findings import RecoveryDocument, recovery_row
from lakelog_cli.options import AsJson, GivenStore
from lakelog_cli.statelines import DiskRow, bars
from lakelog_daemon.status import disks
from lakelog_doctor.parallel_scan import directory_of
from lakelog_doctor.recover import recover
from lakelog_queues.configs import odd_entries

_FULL: Final = 0.9
"""Share of a disk from which its space is a finding: RocketMQ's limit for refusing puts."""
_RECOVERED_SEGMENTS: Final = 3
"""Number of segments that RocketMQ's recovery reads after a clean stop."""


class DoctorDocument(TypedDict):
    """The state of a directory.

    :ivar replica_of: its master; null if it is no replica
    :ivar problems: number of faults of queues and index
    :ivar behind: number of places where queues and index lag behind the log
    :ivar recovery: the plan of a recovery; null if none is needed
    :ivar recovery_refused: reason for refusing a recovery
    :ivar rocketmq: effect of an open by RocketMQ, as a text
    :ivar next: commands to run, in this order
    """

    path: str
    written_by: Literal["lakelog", "rocketmq"]
    replica_of: str | None
    is_in_use: bool
    owner_pid: int | None
    is_clean_stop: bool
    min_offset: int
    end_offset: int
    segments: int
    segment_size_bytes: int
    records: int
    damaged_places: int
    damaged_bytes: int
    problems: int
    behind: int
    recovery: RecoveryDocument | None
    recovery_refused: str | None
    disks: list[DiskRow]
    rocketmq: str
    findings: list[str]
    next: list[str]


@output.prints(DoctorDocument, is_document=True)
def doctor(store: GivenStore, as_json: AsJson = False) -> None:
    """Report the state of a directory, and the effects of an open, here and by RocketMQ.

    The last lines are the commands that repair it. The whole log, queues and index are read, and
    nothing is changed; the store may be in use. Problems are on stderr, as with 'lakelog verify
    --all'. The exit code is 1 if a command has to be run.
    """
    with store.read() as opened:
        verdict = checked(opened, queues=True, index=True)
        verdict.reporter.finish()
        report, refusal = _planned(store, opened)
        document = _document(opened, verdict, report, refusal)
    output.write_result(document, _lines(document), as_json=as_json, is_document=True)
    output.exit_if_found(document["findings"])


def _planned(given: GivenStore, store: Store) -> tuple[RecoveryReport | None, LakelogError | None]:
    """The plan of a recovery, or the reason why it would not begin; neither while it is owned."""
    if is_owned(RealFileSystem(), store.path):
        return None, None
    try:
        with output.progress("planning a recovery") as advance:
            options = {"dry_run": True, "full": True, "progress": advance, **given.arguments}
            return recover(given.path, **options), None
    except LakelogError as error:
        return None, error


def _document(
    store: Store, verdict: Verdict, report: RecoveryReport | None, refusal: LakelogError | None
) -> dict[str, Any]:
    files = RealFileSystem()
    directory, replica = directory_of(store), read_replica(files, store.path)
    segments = directory.segments()
    is_in_use = is_owned(files, store.path)
    is_clean = not (store.path / ABORT_FILE).exists()
    document: dict[str, Any] = {
        "path": str(store.path),
        "written_by": "lakelog" if (store.path / OWN_DIR).is_dir() else "rocketmq",
        "replica_of": replica.source if replica is not None else None,
        "is_in_use": is_in_use,
        "owner_pid": owner_pid(files, store.path) if is_in_use else None,
        "is_clean_stop": is_clean and not is_in_use,
        "min_offset": store.min_offset,
        "end_offset": verdict.found.end_offset,
        "segments": len(segments),
        "segment_size_bytes": store.settings.core.segment_size_bytes,
        "records": verdict.found.records,
        "damaged_places": verdict.found.damaged_places,
        "damaged_bytes": verdict.found.damaged_bytes,
        "problems": verdict.reporter.problems,
        "behind": verdict.reporter.behind,
        "recovery": recovery_row(report) if report is not None else None,
        "recovery_refused": str(refusal) if refusal is not None else None,
        "disks": disks(store.path, directory.commitlog),
    }
    document["rocketmq"] = _rocketmq(document, report, store, segments)
    advice = list(_advice(document, verdict, report, refusal))
    document |= {"findings": [what for what, _ in advice], "next": [act for _, act in advice]}
    return document


def _rocketmq(
    document: dict[str, Any],
    report: RecoveryReport | None,
    store: Store,
    segments: Sequence[SegmentFile],
) -> str:
    """The effects of an open of the directory by RocketMQ 5.3.3, in words.

    It loads no directory with a segment of another length. Its recovery cuts the log at the first
    damaged record that it reads (``CommitLog.recoverNormally`` and ``recoverAbnormally``).
    """
    if document["is_in_use"]:
        return "is refused by the lock while a process has the store open"
    odd = [each for each in segments if each.length != document["segment_size_bytes"]]
    if odd:
        return f"would not start: {output.shown(odd[0].path.name)} is {odd[0].length} bytes long"
    if report is None:
        return "is not foreseen, as the recovery could not be planned"
    damaged = [(each.offset, each.end_offset) for each in report.damage]
    damaged += [(each.offset, each.end_offset) for each in report.cut]
    inside = sorted(each for each in damaged if each[0] < report.end_offset)
    read_from = _read_from(store, [each.start_offset for each in segments], report)
    cut = next((start for start, end in inside if end > read_from), None)
    if cut is not None:
        lost = report.end_offset - cut
        return f"would cut the log at {cut}, and lose {lost} bytes with the whole records in them"
    if inside:
        return f"would open it, and fail where a consumer comes to {inside[0][0]}"
    return "would open it as it is" if report.clean else "would recover it, and keep every record"


def _read_from(store: Store, starts: Sequence[int], report: RecoveryReport) -> int:
    """The segment from which RocketMQ's recovery reads."""
    if report.clean:
        return starts[-_RECOVERED_SEGMENTS] if len(starts) > _RECOVERED_SEGMENTS else 0
    checkpoint = read_checkpoint(RealFileSystem(), store.path)
    durable_ms = min(checkpoint.physic_timestamp_ms, checkpoint.logics_timestamp_ms) - MARGIN_MS
    for start in reversed(starts):
        piece = next(store.scan_pieces(start), None)
        if isinstance(piece, RecordBatch) and 0 < piece.store_timestamps_ms[0] <= durable_ms:
            return start
    return 0


def _advice(
    document: dict[str, Any],
    verdict: Verdict,
    report: RecoveryReport | None,
    refusal: LakelogError | None,
) -> Iterator[tuple[str, str]]:
    """Yield each finding with the command to run, in this order."""
    store = output.shown(document["path"])
    if refusal is not None:
        is_foreign = isinstance(refusal, UnreadableEnd | PluginError)
        yield (
            f"a recovery would not begin: {refusal}",
            _foreign(store, refusal) if is_foreign else f"lakelog repair {store} --dry-run",
        )
        if is_foreign:
            return  # a repair would begin with the same recovery
    if report is not None and report.missing:
        what = "records that were durable are missing at the end of the log"
        yield what, "bring the missing segments back from a copy, if there is one"
    if report is not None and report.changed:
        what = "a recovery has to mend what the stop left, without a loss of whole records"
        yield what, f"lakelog recover {store}"
    if verdict.found.damaged_places or verdict.found.segment_problems:
        yield "records are damaged; readers pass them over", f"lakelog repair {store}"
    if verdict.reporter.problems:
        yield "queues or index differ from the log", f"lakelog rebuild {store}"
    for each in document["disks"]:
        if each["used_ratio"] >= _FULL:
            full = f"the disk of {each['path']} is full to {each['used_ratio']:.0%}"
            yield full, f"lakelog clean {store} --dry-run"
    for entry in odd_entries(RealFileSystem(), Path(document["path"])):
        yield (
            f"it is kept, but cannot be read: {entry}",
            "correct it while the store is closed",
        )


def _foreign(store: str, refusal: LakelogError) -> str:
    """The way on for bytes that only a missing plugin may be able to read."""
    if isinstance(refusal, PluginError):
        return "install and choose that plugin"
    return (
        "install and choose the plugin that wrote these bytes, or restore them from a copy; to end "
        f"the log before them: lakelog recover {store} --on-damage cut-end"
    )


def _lines(document: dict[str, Any]) -> Iterator[str]:
    names = {"lakelog": "lakelog", "rocketmq": "RocketMQ; lakelog has not written to it"}
    yield f"{document['path']}: a store of {names[document['written_by']]}"
    if document["replica_of"]:
        yield output.labelled(
            "copy of", f"{document['replica_of']}; it takes no puts before a promote"
        )
    yield output.labelled("state", _state(document))
    yield output.labelled(
        "log",
        f"{document['min_offset']} to {document['end_offset']}, {document['records']} records in "
        f"{document['segments']} segments of {document['segment_size_bytes']} bytes",
    )
    damaged = f"{document['damaged_places']} places ({document['damaged_bytes']} bytes)"
    yield output.labelled("damaged", damaged)
    lagging = f"they lag in {document['behind']} places"
    yield output.labelled("queues", f"and index: {document['problems']} problems; {lagging}")
    yield output.labelled("open", _opening(document))
    yield output.labelled("RocketMQ", document["rocketmq"])
    yield from (f"  {line}" for line in bars(document["disks"]))
    for finding in document["findings"]:
        yield output.labelled("finding", finding)
    for command in document["next"] or ["nothing has to be done"]:
        yield output.labelled("next", command)


def _state(document: dict[str, Any]) -> str:
    if document["is_in_use"]:
        pid = document["owner_pid"]
        return f"in use by process {pid}" if pid else "in use"
    return "cleanly stopped" if document["is_clean_stop"] else "its last writer was killed"


def _opening(document: dict[str, Any]) -> str:
    """The effects of ``lakelog.open``, in words."""
    if document["is_in_use"]:
        return "would join the processes that have it open"
    if document["replica_of"]:
        return "would be refused for writing, and allowed for reading"
    recovery = document["recovery"]
    if recovery is None:
        return "would be refused: see below"
    cut = sum(each["end_offset"] - each["offset"] for each in recovery["cut"])
    parts = [f"set {cut} bytes aside"] if cut else []
    parts += [f"mend {len(recovery['mended'])} other things"] if recovery["mended"] else []
    if not parts:
        return "would change nothing"
    return f"would {' and '.join(parts)}, and lose nothing whole"
