"""``lakelog stats``: the positions of a store, its contents in numbers, and its disk space."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import attrs
import typer

from lakelog import Store
from lakelog.files.checkpoint import read_checkpoint
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.segment_files import segment_files
from lakelog.format.layout import (
    ABORT_FILE,
    CONFIG_DIR,
    CONSUMEQUEUE_DIR,
    INDEX_DIR,
    OWN_DIR,
    QUARANTINE_DIR,
)
from lakelog.format.record_batch import RecordBatch
from lakelog.processes.ownership import is_owned
from lakelog.recovery.quarantine import COPYING, LIST_FILE
from lakelog.times import iso
from lakelog_cli.options import AsJson, OpenOptions, StorePath
from lakelog_cli.output import blocks, print_lines, write_document
from lakelog_cli.report.content import TrafficOverTime, read_traffic
from lakelog_cli.rows.state import StatsDocument, sizes
from lakelog_cli.schema import prints
from lakelog_cli.statelines import CopyLags, bars, disks, lag_rows, lag_text
from lakelog_cli.walk import directory_of

BATCHCONSUMEQUEUE_DIR = "batchconsumequeue"


@prints(StatsDocument, is_document=True)
def stats(
    opening: OpenOptions,
    store: StorePath,
    plot: Annotated[
        bool, typer.Option("--plot", help="Read the log, and plot its traffic over time.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print positions, times of the first and last message, queues, files and their sizes.

    The checkpoint has the store times up to which log, queues and index are durable. Bytes that
    recoveries moved to lakelog/quarantine/ stay until a user deletes them. A replica, and the
    slaves of a master, have their lags in bytes, messages and seconds. Each disk of the store has
    a bar.
    """
    with opening.open("read", store) as opened:
        document = {
            "path": str(opened.path),
            **_state(opened),
            **_log(opened),
            **_queues(opened),
            "checkpoint": attrs.asdict(read_checkpoint(RealFileSystem(), opened.path)),
            "replication": CopyLags(opened).view(),
            "disk_state": _disk_state(opened),
            "disks": disks(opened.path, directory_of(opened).commitlog),
            "files": _files(opened),
            "quarantine": _quarantine(opened),
        }
        if plot:
            document["traffic"] = attrs.asdict(read_traffic(opened))
    if as_json:
        write_document(document)
    else:
        print_lines(_lines(document))


def _state(store: Store) -> dict[str, Any]:
    return {
        "is_owned": is_owned(RealFileSystem(), store.path),
        "abort_file_present": (store.path / ABORT_FILE).exists(),
    }


def _disk_state(store: Store) -> str | None:
    """The state that the disk-space watcher reports; ``None`` without one."""
    report = store.disk()
    if report is None:
        return None
    return f"{report.state.value} ({report.reason})" if report.reason else report.state.value


def _log(store: Store) -> dict[str, Any]:
    directory = directory_of(store)
    segments = segment_files(directory.commitlog, directory.files.list(directory.commitlog))
    starts = [each.start_offset for each in segments]
    return {
        "min_offset": store.min_offset,
        "max_offset": store.max_offset,
        "segments": len(segments),
        "segment_size_bytes": store.settings.core.segment_size_bytes,
        "first_store_timestamp_ms": next(_times(store, store.min_offset, 0), None),
        "last_store_timestamp_ms": _last_time(store, starts),
    }


def _last_time(store: Store, starts: list[int]) -> int | None:
    """Store time of the last message, in the last segment with a message, in ms since 1970."""
    for start in reversed(starts):
        if times := deque(_times(store, start, -1), maxlen=1):
            return times[0]
    return None


def _times(store: Store, start: int, at: int) -> Iterator[int]:
    """Store time of one record of each run from ``start`` on."""
    for piece in store.scan_pieces(start, verify=False):
        if isinstance(piece, RecordBatch):
            yield int(piece.store_timestamps_ms[at])


def _queues(store: Store) -> dict[str, Any]:
    queues = store.queues()
    return {
        "topics": len(store.topics()),
        "queues": len(queues),
        "queued_messages": sum(each.max_offset - each.min_offset for each in queues),
        "groups": len(store.groups()),
    }


def _files(store: Store) -> dict[str, dict[str, int]]:
    parts = {
        name: store.path / name
        for name in (CONSUMEQUEUE_DIR, BATCHCONSUMEQUEUE_DIR, INDEX_DIR, CONFIG_DIR)
    }
    parts = {"commitlog": directory_of(store).commitlog, **parts}
    parts["quarantine"] = store.path / OWN_DIR / QUARANTINE_DIR
    found = sizes(parts, store.path)
    return {name: attrs.asdict(size) for name, size in found.items() if size.files}


def _lines(document: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """One line per value, with its name; a time is also printed as a date."""
    for name, value in document.items():
        if name == "disks":
            yield from bars(value)
        elif name == "traffic":
            yield from _plot(TrafficOverTime(**value))
        elif name == "replication" and value is not None:
            yield f"replication = {value['role']}"
            for each, lag, remark in lag_rows(value):
                line = f"{each}: {lag_text(lag)}"
                yield f"replication: {line}; {remark}" if remark else f"replication: {line}"
        elif isinstance(value, Mapping):
            yield from _lines(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name} = {_value_text(name, value)}"


def _plot(traffic: TrafficOverTime) -> Iterator[str]:
    """A line of bars for messages and one for bytes, from the first message to the last."""
    width = len(traffic.messages) // 2
    first, last = (iso(each, None, "auto") for each in (traffic.first_ms, traffic.last_ms))
    yield f"from {first} to {last}:"
    for unit, values in (("messages", traffic.messages), ("bytes", traffic.record_bytes)):
        pairs = [values[2 * at] + values[2 * at + 1] for at in range(width)]
        most = max(pairs) / (2 * traffic.bin_ms / 1000)
        yield f"{unit:<8} [{blocks(pairs)}] at most {most:,.0f}/s"


def _value_text(name: str, value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, int) and name.endswith("timestamp_ms") and value > 0:
        return f"{value} ({iso(value, None, 'auto')})"
    return str(value)


def _quarantine(store: Store) -> dict[str, int]:
    """Number and length of the copies of log bytes and the moved files in quarantine."""
    found = RealFileSystem().list(store.path / OWN_DIR / QUARANTINE_DIR)
    lengths = [length for name, length in found if name not in (LIST_FILE, COPYING)]
    return {"entries": len(lengths), "length_bytes": sum(lengths)}
