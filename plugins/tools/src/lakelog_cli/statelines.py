"""What stands behind, and how full disks are: lags of copies, tables and consumer groups.

Copies are a replica behind its master, a master's slaves, and landed tables. A process that
replicates writes their positions to ``lakelog/replication.json``. A lag is ``bytes``, ``messages``
and ``seconds``, each ``None`` if it is not known.

``bytes``
    of the log
``messages``
    counted in the first 16 MiB of the lag; beyond that, and for messages that a replica does not
    have yet, estimated from the mean size of records
``seconds``
    since the store time of the first missing message. A replica does not have that message, so its
    lag is the age of its last message: at the last receipt from the master, or now without a
    connection
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NotRequired, TypedDict

import attrs

import lakelog
from lakelog import QueueInfo, Store
from lakelog.errors import LakelogError, StoreError
from lakelog.files.filesystem import RealFileSystem
from lakelog.maintenance.pins import read_pins
from lakelog_cli.output import Columns, bar, size
from lakelog_daemon.replication_status import SLAVE_PINS, MasterStatus, ReplicaStatus, read_status

if TYPE_CHECKING:
    from lakelog.format.record_batch import RecordBatch

_COUNTED_BYTES: Final = 16 << 20
_SAMPLE_BYTES: Final = 1 << 20
NO_LAG: Final[Mapping[str, float]] = {"bytes": 0, "messages": 0, "seconds": 0.0}


class DiskRow(TypedDict):
    """A file system with a part of the store.

    :ivar used_ratio: used part, 0 to 1, of the space for users other than root
    :ivar free_inodes: null if the file system does not count them
    """

    path: str
    used_bytes: int
    free_bytes: int
    used_ratio: float
    free_inodes: int | None


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


@attrs.frozen
class CopyLags:
    """Computes the lags of one store from a reader of it."""

    store: Store

    def view(self) -> dict[str, Any] | None:
        """The role, the state and the lags; ``None`` if nothing replicates this store."""
        status = _status(self.store.path)
        if status is None:
            return None
        now_ms = time.time_ns() // 1_000_000
        lives = Path("/proc", str(status.pid)).exists()
        if isinstance(status, MasterStatus):
            role, about = "master", self._master(status, now_ms, lives=lives)
        else:
            role, about = "slave", self._replica(status, now_ms, lives=lives)
        shown = {"role": role, "pid": status.pid, "is_running": lives}
        return {**shown, **about, "landed": self._landed(now_ms)}

    def _master(self, status: MasterStatus, now_ms: int, *, lives: bool) -> dict[str, Any]:
        end = status.end if lives else self.store.max_offset  # both ends of the same second
        slaves = [
            {
                "address": each.address,
                "learner": each.learner,
                "connected_ms": each.since_ms,
                "unsent_bytes": max(0, end - each.sent) if each.sent >= 0 else None,
                "lag": self.between(each.acked, end, now_ms) if each.acked >= 0 else None,
            }
            for each in status.slaves
        ]
        return {
            "listening": status.listening,
            "in_sync_replicas": status.in_sync_replicas,
            "refused": status.refused,
            "slaves": slaves,
        }

    def _replica(self, status: ReplicaStatus, now_ms: int, *, lives: bool) -> dict[str, Any]:
        end, master_end = self.store.max_offset, status.master_end
        heard_ms, is_connected = status.heard_ms, lives and status.is_connected
        mean, last_ms = self._newest()
        behind = max(0, master_end - end) if master_end >= 0 else None
        if not is_connected and master_end < end:
            behind = None  # the master was set back, or has grown since
        if behind == 0 and is_connected:
            lag: dict[str, Any] = dict(NO_LAG)
        else:
            messages = None if behind is None or mean is None else round(behind / mean)
            seen_ms = heard_ms if is_connected else now_ms
            age_s = None if last_ms is None else max(0, seen_ms - last_ms) / 1000
            lag = {"bytes": behind, "messages": messages, "seconds": age_s}
        return {
            "source": status.source,
            "is_connected": is_connected,
            "heard_ms": heard_ms or None,
            "says": status.says,
            "lag": lag,
            "not_durable": self.between(self.store.flushed_offset, end, now_ms),
        }

    def _landed(self, now_ms: int) -> dict[str, dict[str, Any]]:
        """The lag of each table behind the end of the log, by the name of its pin."""
        end = self.store.max_offset
        return {
            each.name: self.between(each.position, end, now_ms)
            for each in read_pins(RealFileSystem(), self.store.path)
            if not each.name.startswith(SLAVE_PINS)
        }

    def between(self, start: int, end: int, now_ms: int) -> dict[str, Any]:
        """The lag of a position ``start`` in the log behind ``end``."""
        start = max(start, self.store.min_offset)
        if start >= end:
            return dict(NO_LAG)
        count, counted_to, first_ms = 0, start, None
        for batch in self._batches(start, end):
            first_ms = int(batch.store_timestamps_ms[0]) if first_ms is None else first_ms
            count, counted_to = count + len(batch), batch.end_offset
            if counted_to - start >= _COUNTED_BYTES:
                break
        if count and counted_to - start >= _COUNTED_BYTES:
            count = round(count * (end - start) / (counted_to - start))
        seconds = 0.0 if first_ms is None else max(0, now_ms - first_ms) / 1000
        return {"bytes": end - start, "messages": count, "seconds": seconds}

    def _newest(self) -> tuple[float | None, int | None]:
        """The mean size of the last records, and the store time of the last one."""
        end, count, size, last_ms = self.store.max_offset, 0, 0, None
        start = max(self.store.min_offset, end - _SAMPLE_BYTES)
        for batch in self._batches(start, end):
            count, size = count + len(batch), size + int(batch.sizes.sum())
            last_ms = int(batch.store_timestamps_ms[-1])
        return (size / count if count else None), last_ms

    def _batches(self, start: int, end: int) -> Iterator[RecordBatch]:
        from lakelog.format.record_batch import RecordBatch  # listing commands does not need it

        for piece in self.store.scan_pieces(start, end, verify=False):
            if isinstance(piece, RecordBatch) and len(piece):
                yield piece


def copy_lags(path: Path, **settings: Any) -> dict[str, Any] | None:
    """The lags of the store in ``path``; ``None`` if nothing replicates it, or it has no log yet.

    :param settings: to open it with
    """
    if _status(path) is None:
        return None
    try:
        with lakelog.open(path, mode="read", **settings) as store:
            return CopyLags(store).view()
    except LakelogError:
        return None


def _status(path: Path) -> MasterStatus | ReplicaStatus | None:
    """The last status; ``None`` if there is none, or it cannot be read: it is only shown."""
    try:
        return read_status(RealFileSystem(), path)
    except StoreError:
        return None


Lag = Mapping[str, Any] | None


def lag_rows(view: Mapping[str, Any]) -> Iterator[tuple[str, Lag, str]]:
    """The name of each lag of a view of :mod:`lakelog_cli.statelines`, the lag, and a remark."""
    if view["role"] == "master":
        for each in view["slaves"]:
            unsent = f"not sent {size(each['unsent_bytes'])}"
            remark = f"learner, {unsent}" if each["learner"] else unsent
            yield f"slave {each['address']}", each["lag"], remark
    else:
        yield f"behind {view['source']}", view["lag"], view["says"]
        yield "not durable", view["not_durable"], ""
    for name, lag in view["landed"].items():
        yield f"not landed: {name}", lag, ""


def lag_table(view: Mapping[str, Any]) -> Columns:
    """The lags as a table."""
    table = Columns("copies", "bytes", "messages", "seconds", "says...")
    for name, lag, remark in lag_rows(view):
        table.add_row(name, *_cells(lag), remark)
    return table


def lag_text(lag: Lag) -> str:
    """One lag in words.

    >>> lag_text({"bytes": 2048, "messages": 3, "seconds": 1.25}), lag_text(None)
    ('2.0 KiB, 3 messages, 1.2 s', 'not known')
    """
    if lag is None:
        return "not known"
    length, messages, seconds = _cells(lag)
    return f"{length}, {messages} messages, {seconds} s"


def _cells(lag: Lag) -> tuple[str, str, str]:
    if lag is None:
        return "-", "-", "-"
    messages, seconds = lag["messages"], lag["seconds"]
    return (
        size(lag["bytes"]),
        "-" if messages is None else str(messages),
        "-" if seconds is None else f"{seconds:.1f}",
    )


@attrs.frozen
class GroupLag:
    """A consumer group in one topic; :ivar behind: messages that it has not acknowledged."""

    group: str
    topic: str
    behind: int


def group_lags(store: Store, queues: Sequence[QueueInfo] | None = None) -> list[GroupLag]:
    """All groups by topic, those that are furthest behind first.

    :param queues: all queues of the store, if they are known
    """
    found = store.queues() if queues is None else queues
    ends = {(each.topic, each.queue_id): each.max_offset for each in found}
    lags = []
    for group, topics in store.groups().items():
        for topic, offsets in topics.items():
            left = (ends.get((topic, queue), 0) - at for queue, at in offsets.items())
            lags.append(GroupLag(group, topic, sum(max(0, each) for each in left)))
    return sorted(lags, key=lambda each: (-each.behind, each.group, each.topic))


_BAR_WIDTH: Final = 30


def bars(found: Iterable[dict[str, Any]]) -> Iterator[str]:
    """One line for each disk.

    >>> usage = {"path": "/data", "used_ratio": 0.5, "free_bytes": 7}
    >>> list(bars([usage]))
    ['disk [###############...............]  50.0 %, 7 bytes free: /data']
    """
    for each in found:
        share = f"{each['used_ratio']:6.1%}".replace("%", " %")
        used = bar(each["used_ratio"], _BAR_WIDTH)
        yield f"disk [{used}] {share}, {each['free_bytes']} bytes free: {each['path']}"
