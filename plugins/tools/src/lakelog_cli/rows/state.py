"""Objects of the commands that show the state of a store, or the installed plugins.

Number and disk space of the files in each part of a store directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, NotRequired, TypedDict

import attrs

from lakelog.files.checkpoint import StoreCheckpoint
from lakelog_cli.rows.repairs import RecoveryDocument
from lakelog_cli.statelines import GroupLag

BLOCK_BYTES: Final = 512
"""The unit of ``st_blocks``, independent of the file system's block size."""
REST: Final = "other"


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
        self.disk_bytes += found.st_blocks * BLOCK_BYTES


def sizes(parts: Mapping[str, Path], root: Path) -> dict[str, FolderSize]:
    """The size of each part by its name; all other files below ``root`` count as ``other``.

    A file that is deleted meanwhile is skipped.
    """
    found = {name: FolderSize() for name in (*parts, REST)}
    folders = {path: name for name, path in parts.items()}
    outside = [path for path in parts.values() if not path.is_relative_to(root)]
    for path in _files([root, *outside]):
        part = next((folders[each] for each in path.parents if each in folders), REST)
        with suppress(FileNotFoundError):
            found[part].add(path.stat())
    return found


def _files(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        for base, _, names in os.walk(folder):
            yield from (Path(base, name) for name in names)


class DiskRow(TypedDict):
    """A file system with a part of the store.

    :ivar used_ratio: used part, 0 to 1, of the space for users other than root
    :ivar free_inodes: null if the file system does not count them
    """

    path: str
    used_bytes: int
    free_bytes: int
    used_ratio: float
    free_inodes: NotRequired[int | None]


class TrafficRow(TypedDict):
    """Messages and bytes over time, in bins of equal width."""

    first_ms: int
    last_ms: int
    messages: list[int]
    record_bytes: list[int]


class QuarantineRow(TypedDict):
    """The contents of lakelog/quarantine."""

    entries: int
    length_bytes: int


class CopyLag(TypedDict):
    """The lag of a copy; null where unknown."""

    bytes: int | None
    messages: int | None
    seconds: float | None


class SlaveRow(TypedDict):
    """A slave of this store.

    :ivar connected_ms: time of the connect
    """

    address: str
    learner: bool
    connected_ms: int
    unsent_bytes: int | None
    lag: CopyLag | None


class Replication(TypedDict):
    """The copies of this store, or its master.

    :ivar landed: the lag of each table, by the name of its pin
    :ivar heard_ms: time of the last bytes from the master
    """

    role: str
    pid: int
    is_running: bool
    landed: dict[str, CopyLag]
    listening: NotRequired[str | None]
    in_sync_replicas: NotRequired[int | None]
    refused: NotRequired[dict[str, str] | None]
    slaves: NotRequired[list[SlaveRow]]
    source: NotRequired[str]
    is_connected: NotRequired[bool]
    heard_ms: NotRequired[int | None]
    says: NotRequired[str]
    lag: NotRequired[CopyLag]
    not_durable: NotRequired[CopyLag]


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
    replication: Replication | None
    disk_state: str | None
    disks: list[DiskRow]
    files: dict[str, FolderSize]
    quarantine: QuarantineRow
    traffic: NotRequired[TrafficRow]


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


class SettingRow(TypedDict):
    """A setting in force.

    :ivar value: the value as in TOML
    :ivar origin: source of the value
    """

    key: str
    value: Any
    origin: str


class SettingsDocument(TypedDict):
    """The settings of a store.

    :ivar unused: keys that have no effect, each with the reason
    """

    settings: list[SettingRow]
    unused: dict[str, str]


class PluginSetting(TypedDict):
    """A setting of a strategy.

    :ivar default: null for a required setting
    """

    name: str
    type: str
    default: str | None


class StrategyRow(TypedDict):
    """A strategy.

    :ivar plugin: name of its plugin
    :ivar active: with ``--store``, whether that store uses it
    """

    kind: str
    name: str
    plugin: str
    distribution: str | None
    version: str | None
    summary: str
    settings: list[PluginSetting]
    active: NotRequired[bool]


class PluginRow(TypedDict):
    """A plugin.

    :ivar hooks: names of the implemented hooks
    :ivar enabled: false if it is switched off
    """

    name: str
    distribution: str | None
    version: str | None
    hooks: list[str]
    enabled: bool


class WrittenFileRow(TypedDict):
    """A file of a new plugin's package."""

    path: str


class PluginsDocument(TypedDict):
    """The installed strategies and plugins."""

    strategies: list[StrategyRow]
    plugins: list[PluginRow]


class ManualRow(TypedDict):
    """A folder of manual pages."""

    folder: str
    pages: int


class CompletionRow(TypedDict):
    """A script for a shell."""

    shell: str
    script: str


class ProcessRow(TypedDict):
    """A process of a store in use: its owner, a service, a follower or a child of these.

    :ivar pid: null if it does not run
    :ivar cpu_percent: CPU usage in percent of one core, with its children
    :ivar restarts: number of restarts
    :ivar hangs: number of times that it was killed because it hung
    :ivar says: its last ``STATUS=`` text
    """

    name: str
    kind: Literal["owner", "service", "follower", "child"]
    pid: int | None
    state: str
    health: str
    cpu_percent: NotRequired[float | None]
    rss_bytes: NotRequired[int | None]
    restarts: NotRequired[int]
    hangs: NotRequired[int]
    started_ms: NotRequired[int | None]
    says: NotRequired[str | None]
    last_exit: NotRequired[str | None]


class MemberRow(TypedDict):
    """A process that has the store open for writing.

    :ivar opens: number of opens
    :ivar does: its exclusive roles, such as services
    """

    pid: int
    name: str
    opens: int
    does: list[str]


class RetainedRow(TypedDict):
    """Deleted files that a process keeps on the disk."""

    pid: int
    name: str
    files: int
    bytes: int


class AppendingRow(TypedDict):
    """A process in a slow append, and the start of that append."""

    pid: int
    since_ms: int


class PositionLags(TypedDict):
    """Lags of positions, in bytes.

    :ivar followers: lag of each follower, by the name of its pin
    :ivar dispatch_ms: lag in ms, only with ``lakelog serve``
    """

    flush_bytes: int
    dispatch_bytes: int
    dispatch_ms: NotRequired[float | None]
    followers: dict[str, int]


class FlushRow(TypedDict):
    """The mean duration of a sync; null if there was none."""

    mean_ms: float | None


class TopView(TypedDict):
    """The present state of a store in use.

    :ivar served_by: serve, or null if the owner is another program
    :ivar positions: positions in bytes, and counts since the store was opened
    :ivar rates: their increase in a second
    :ivar members_not_seen: number of processes of other users; null if unknown
    :ivar services: id of the process that dispatches and deletes
    :ivar processes_not_readable: number of processes whose files are not readable
    :ivar masters: state of each master, for a folder of copies
    """

    served_by: Literal["serve"] | None
    path: str
    pid: int | None
    heartbeat_ms: int | None
    state: str
    health: Literal["ok", "degraded", "failed"]
    problems: list[str]
    disks: list[DiskRow]
    processes: list[ProcessRow]
    replication: Replication | None
    groups: list[GroupLag]
    positions: NotRequired[dict[str, int]]
    rates: NotRequired[dict[str, float]]
    flush: NotRequired[FlushRow]
    lags: NotRequired[PositionLags]
    members: NotRequired[list[MemberRow]]
    members_not_seen: NotRequired[int | None]
    services: NotRequired[int | None]
    appending: NotRequired[AppendingRow | None]
    deleted: NotRequired[list[RetainedRow]]
    processes_not_readable: NotRequired[int]
    version: NotRequired[int]
    lakelog: NotRequired[str]
    start_ticks: NotRequired[int]
    started_ms: NotRequired[int]
    log_lines_dropped: NotRequired[int]
    masters: NotRequired[Any]
