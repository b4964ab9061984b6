"""``lakelog stats``: the positions of a store, its contents in numbers, and its disk space."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final, NotRequired, TypedDict

import attrs
import typer

from lakelog import Store
from lakelog.files.checkpoint import StoreCheckpoint, read_checkpoint
from lakelog.files.filesystem import RealFileSystem
from lakelog.format import layout
from lakelog.processes.ownership import is_owned
from lakelog.recovery.filler import COPYING, LIST_FILE
from lakelog.times import iso
from lakelog_cli import options, output, pages, statelines
from lakelog_daemon.status import disks
from lakelog_doctor.parallel_scan import directory_of

BATCHCONSUMEQUEUE_DIR: Final = "batchconsumequeue"
_BLOCK_BYTES: Final = 512
"""The unit of ``st_blocks``, independent of the file system's block size."""
_REST: Final = "other"


@attrs.define
class FolderSize:
    """The size of a part of a store directory.

    :ivar length_bytes: total length of its files
    :ivar disk_bytes: their allocated space, less than the length if they have holes
    """

    files: int = 0
    length_bytes: int = 0
    disk_bytes: int = 0

    def add(self, found: os.stat_result) -> None:
        """Add one file."""
        self.files += 1
        self.length_bytes += found.st_size
        self.disk_bytes += found.st_blocks * _BLOCK_BYTES


class QuarantineRow(TypedDict):
    """The contents of lakelog/quarantine."""

    entries: int
    length_bytes: int


class StatsDocument(TypedDict):
    """A store in numbers.

    :ivar is_owned: whether a process has it open for writing
    :ivar disk_state: state by the disk watcher; null without a watcher
    :ivar files: number and size of files by part of the store
    :ivar traffic: messages and bytes over time, with ``--plot``
    """

    path: str
    is_owned: bool
    abort_file_present: bool
    min_offset: int
    max_offset: int
    segments: int
    segment_size_bytes: int
    first_store_timestamp_ms: int | None
    last_store_timestamp_ms: int | None
    topics: int
    queues: int
    queued_messages: int
    groups: int
    checkpoint: StoreCheckpoint
    replication: statelines.Replication | None
    disk_state: str | None
    disks: list[statelines.DiskRow]
    files: dict[str, FolderSize]
    quarantine: QuarantineRow
    traffic: NotRequired[pages.TrafficOverTime]


@output.prints(StatsDocument, is_document=True)
def stats(
    store: options.GivenStore,
    plot: Annotated[
        bool, typer.Option("--plot", help="Read the log, and plot its traffic over time.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Print positions, times of the first and last message, queues, files and their sizes.

    The checkpoint has the store times up to which log, queues and index are durable. Bytes that
    recoveries moved to lakelog/quarantine/ stay until a user deletes them. A replica, and the
    slaves of a master, have their lags in bytes, messages and seconds. Each disk of the store has
    a bar.
    """
    with store.read() as opened:
        (first_ms, last_ms), queues = pages.first_and_last_time(opened), opened.queues()
        document = {
            "path": str(opened.path),
            "is_owned": is_owned(RealFileSystem(), opened.path),
            "abort_file_present": (opened.path / layout.ABORT_FILE).exists(),
            "min_offset": opened.min_offset,
            "max_offset": opened.max_offset,
            "segments": len(directory_of(opened).segments()),
            "segment_size_bytes": opened.settings.core.segment_size_bytes,
            "first_store_timestamp_ms": first_ms,
            "last_store_timestamp_ms": last_ms,
            "topics": len(opened.topics()),
            "queues": len(queues),
            "queued_messages": sum(each.max_offset - each.min_offset for each in queues),
            "groups": len(opened.groups()),
            "checkpoint": read_checkpoint(RealFileSystem(), opened.path)._asdict(),
            "replication": statelines.CopyLags(opened).view(),
            "disk_state": _disk_state(opened),
            "disks": disks(opened.path, directory_of(opened).commitlog),
            "files": _files(opened),
            "quarantine": _quarantine(opened),
        }
        if plot:
            document["traffic"] = attrs.asdict(pages.read_traffic(opened))
    output.write_result(document, _lines(document), as_json=as_json, is_document=True)


def _disk_state(store: Store) -> str | None:
    """The state that the disk-space watcher reports; ``None`` without one."""
    report = store.disk()
    if report is None:
        return None
    return f"{report.state.value} ({report.reason})" if report.reason else report.state.value


def _files(store: Store) -> dict[str, dict[str, int]]:
    """The size of each part that has files; all files in no other part count as ``other``."""
    names = (layout.CONSUMEQUEUE_DIR, BATCHCONSUMEQUEUE_DIR, layout.INDEX_DIR, layout.CONFIG_DIR)
    parts = {
        "commitlog": directory_of(store).commitlog,
        **{name: store.path / name for name in names},
        "quarantine": store.path / layout.OWN_DIR / layout.QUARANTINE_DIR,
    }
    folders = {path: name for name, path in parts.items()}
    found = {name: FolderSize() for name in (*parts, _REST)}
    outside = [path for path in folders if not path.is_relative_to(store.path)]
    for base in (store.path, *outside):
        for folder, _, files in os.walk(base):
            here = Path(folder)
            part = next((folders[each] for each in (here, *here.parents) if each in folders), _REST)
            for name in files:
                with suppress(FileNotFoundError):  # it was deleted meanwhile
                    found[part].add((here / name).stat())
    return {name: attrs.asdict(size) for name, size in found.items() if size.files}


def _lines(document: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """One line per value, with its name; a time is also printed as a date."""
    for name, value in document.items():
        if name == "disks":
            yield from statelines.bars(value)
        elif name == "traffic":
            yield from _plot(pages.TrafficOverTime(**value))
        elif name == "replication" and value is not None:
            yield f"replication = {value['role']}"
            for each, lag, remark in statelines.lag_rows(value):
                line = f"{each}: {statelines.lag_text(lag)}"
                yield f"replication: {line}; {remark}" if remark else f"replication: {line}"
        elif isinstance(value, Mapping):
            yield from _lines(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name} = {_value_text(name, value)}"


def _plot(traffic: pages.TrafficOverTime) -> Iterator[str]:
    """A line of bars for messages and one for bytes, from the first message to the last."""
    width = len(traffic.messages) // 2
    first, last = (iso(each, None, "auto") for each in (traffic.first_ms, traffic.last_ms))
    yield f"from {first} to {last}:"
    for unit, values in (("messages", traffic.messages), ("bytes", traffic.record_bytes)):
        pairs = [values[2 * at] + values[2 * at + 1] for at in range(width)]
        most = max(pairs) / (2 * traffic.bin_ms / 1000)
        yield f"{unit:<8} [{output.blocks(pairs)}] at most {most:,.0f}/s"


def _value_text(name: str, value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, int) and name.endswith("timestamp_ms") and value > 0:
        return f"{value} ({iso(value, None, 'auto')})"
    return str(value)


def _quarantine(store: Store) -> dict[str, int]:
    """Number and length of the copies of log bytes and the moved files in quarantine."""
    found = RealFileSystem().list(store.path / layout.OWN_DIR / layout.QUARANTINE_DIR)
    lengths = [length for name, length in found if name not in (LIST_FILE, COPYING)]
    return {"entries": len(lengths), "length_bytes": sum(lengths)}
