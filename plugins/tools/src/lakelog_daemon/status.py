"""The status of ``serve`` in ``lakelog/serve.json``, written about every second; version 1.

::

    version        1
    lakelog        version of lakelog
    path           the store directory
    pid, start_ticks
                   the writer; start_ticks is field 22 of /proc/PID/stat, to detect reused ids
    started_ms     start of serving, in ms since 1970
    heartbeat_ms   time of writing; if it is older than a few seconds, serve hangs or has ended
    state          serving, stopping, stopped or failed
    health         ok, degraded (see problems) or failed (the store takes no puts until reopened)
    problems       a list of texts
    positions      appended, committed, flushed, readable, dispatched, minimum: bytes of the log;
                   syncs, sync_us, records: counts since the store was opened (see shared_page)
    rates          increase of appended, flushed, dispatched (bytes), records and syncs per second
    lags           flush_bytes, dispatch_bytes, dispatch_ms; followers: bytes by name of their pin
    flush          mean_ms: mean duration of a sync since the last status; null if there was none
    disks          a list of path, used_bytes, free_bytes, used_ratio, free_inodes (null if they are
                   not counted); one for each file system
    processes      a list, the owner first; each has name, kind (owner, service, follower, child),
                   pid (null if it does not run), state (running, waiting, stopping, stopped),
                   health (ok, restarting, hanging, stopped), cpu_percent (of one core, since the
                   last status) and rss_bytes (both with all descendants). Services and followers
                   also have restarts, hangs, started_ms, says (their last STATUS=), last_exit
    log_lines_dropped
                   number of lines of its log that could not be written

Times are of the wall clock. Names may be added; existing ones keep their meaning.

``lakelog/serve.pid`` holds the process id and a line feed. It exists from the start of ownership
until just before its end. One left by a crash has no meaning: the lock determines the owner of a
store, and the next ``serve`` overwrites it. Both files are replaced by a rename, and never synced:
they describe a process, and need not survive a power cut.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog import Store
from lakelog.files.filesystem import FileSystem, overwrite_file, read_file
from lakelog.format.layout import OWN_DIR
from lakelog.maintenance import pins, rounds
from lakelog.processes import shared_page
from lakelog.processes.shared_page import PageView, process_start
from lakelog_daemon.processes import Usage

_NAMED: Final = {
    "appended": shared_page.APPENDED,
    "committed": shared_page.COMMITTED,
    "flushed": shared_page.FLUSHED,
    "dispatched": shared_page.DISPATCHED,
    "minimum": shared_page.MINIMUM,
    "syncs": shared_page.SYNCS,
    "sync_us": shared_page.SYNC_US,
    "records": shared_page.RECORDS,
}
"""The words that are shown as numbers."""


def counts(page: PageView) -> dict[str, int]:
    """All positions and counters by name."""
    return {name: page.words[at] for name, at in _NAMED.items()} | {"readable": page.readable}


def heartbeat_ms(page: PageView) -> int:
    """Time of the owner's last heartbeat, in ms since 1970."""
    return page.words[shared_page.HEARTBEAT]


VERSION: Final = 1
SERVING: Final = "serving"
STOPPING: Final = "stopping"
STOPPED: Final = "stopped"
FAILED: Final = "failed"
PID_FILE: Final = "serve.pid"
STATUS_FILE: Final = "serve.json"
RATED: Final = ("appended", "flushed", "dispatched", "records", "syncs")
"""The counters with a meaningful rate."""


def writer() -> dict[str, Any]:
    """``pid`` and ``start_ticks`` of this process."""
    return {"pid": os.getpid(), "start_ticks": process_start(os.getpid())}


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@attrs.define
class StatusReporter:
    """Builds a status; rates cover the time since the last call.

    :ivar services: returns the rows of the supervised services
    :ivar dropped: returns the number of dropped log lines
    """

    files: FileSystem
    store: Store
    commitlog: Path
    page: PageView
    services: Callable[[], Sequence[Mapping[str, Any]]]
    dropped: Callable[[], int]
    _started_ms: int = attrs.field(factory=now_ms, init=False)
    _former: CounterSample | None = attrs.field(default=None, init=False)
    _usage: Usage = attrs.field(factory=Usage, init=False)

    @property
    def has_failed(self) -> bool:
        """Whether the store refuses puts until it is reopened."""
        return self.page.state is shared_page.OwnerState.FAILED and not self.store.is_writable

    def status(self, state: str) -> dict[str, Any]:
        """The status, as described in this module."""
        sample = CounterSample(time.monotonic(), counts(self.page))
        former, self._former = self._former, sample
        services = self.services()
        problems = [*self._problems(), *_unhealthy(services)]
        failed = self.has_failed
        return {
            "version": VERSION,
            "lakelog": version("lakelog-core"),
            "path": str(self.store.path),
            **writer(),
            "started_ms": self._started_ms,
            "heartbeat_ms": now_ms(),
            "state": FAILED if failed else state,
            "health": FAILED if failed else "degraded" if problems else "ok",
            "problems": problems,
            "positions": sample.counts,
            "rates": rates(former, sample),
            "lags": {
                **lags(sample.counts),
                "dispatch_ms": self.store.dispatch_lag.ms,
                "followers": follower_lags(self.files, self.store.path, sample.counts["flushed"]),
            },
            "flush": {"mean_ms": sync_ms(former, sample)},
            "disks": disks(self.store.path, self.commitlog),
            "processes": self._usage.rows(os.getpid(), services),
            "log_lines_dropped": self.dropped(),
        }

    def _problems(self) -> list[str]:
        failure = self.store.dispatch_failure
        found = [] if failure is None else [str(failure)]
        if not self.store.is_writable and self.store.role != "replica":  # which takes none
            found.append("the store takes no puts")
        return found


def follower_lags(files: FileSystem, path: Path, flushed: int) -> dict[str, int]:
    """The lag of each follower's pin behind the durable end, in bytes."""
    return {each.name: max(0, flushed - each.position) for each in pins.read_pins(files, path)}


def disks(path: Path, commitlog: Path) -> list[dict[str, Any]]:
    """The file systems of the store's parts, without duplicates; the log's first.

    Ratios refer to the space usable by users other than root, as in ``df``.
    """
    found: dict[int, dict[str, Any]] = {}
    for each in rounds.watched(path, commitlog):
        with suppress(OSError):
            found.setdefault(each.stat().st_dev, _usage(each))
    return list(found.values())


def _usage(path: Path) -> dict[str, Any]:
    seen = os.statvfs(path)
    used, free = (seen.f_blocks - seen.f_bfree) * seen.f_frsize, seen.f_bavail * seen.f_frsize
    return {
        "path": str(path),
        "used_bytes": used,
        "free_bytes": free,
        "used_ratio": round(used / (used + free), 4) if used + free else 0.0,
        "free_inodes": seen.f_favail if seen.f_files else None,
    }


def _unhealthy(services: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"service {row['name']} is {row['health']} ({row['last_exit']})"
        for row in services
        if row["health"] in ("restarting", "hanging")
    ]


# --- rates and lags ---


@attrs.frozen
class CounterSample:
    """The counters of a shared page at a time in seconds."""

    time: float
    counts: Mapping[str, int]


def rates(former: CounterSample | None, now: CounterSample) -> dict[str, float]:
    """Increase per second, to a tenth; a counter that decreased was reset by a new owner.

    >>> rates(CounterSample(1.0, {"syncs": 5}), CounterSample(3.0, {"syncs": 9}))["syncs"]
    2.0
    """
    if former is None or now.time <= former.time:
        return dict.fromkeys(RATED, 0.0)
    passed = now.time - former.time
    return {name: round(_grown(former, now, name) / passed, 1) for name in RATED}


def sync_ms(former: CounterSample | None, now: CounterSample) -> float | None:
    """The mean duration of a sync between two samples, in ms; ``None`` if there was none."""
    if former is None:
        return None
    syncs = _grown(former, now, "syncs")
    return _grown(former, now, "sync_us") / syncs / 1000 if syncs else None


def lags(counts: Mapping[str, int]) -> dict[str, int]:
    """The bytes that are not durable yet, and those not dispatched yet."""
    return {
        "flush_bytes": max(0, counts["appended"] - counts["flushed"]),
        "dispatch_bytes": max(0, counts["readable"] - counts["dispatched"]),
    }


def _grown(former: CounterSample, now: CounterSample, name: str) -> int:
    return max(0, now.counts.get(name, 0) - former.counts.get(name, 0))


# --- files ---


def pid_file(path: Path) -> Path:
    """The file with the process id, for the store directory ``path``."""
    return path / OWN_DIR / PID_FILE


def status_file(path: Path) -> Path:
    """The status file, for the store directory ``path``."""
    return path / OWN_DIR / STATUS_FILE


def write_pid(files: FileSystem, path: Path) -> None:
    """Write the id of this process; raises ``OSError``."""
    _replace(files, pid_file(path), b"%d\n" % os.getpid())


def remove_pid(files: FileSystem, path: Path) -> None:
    """Remove the file; must be called while the store is owned, so that it is not another's."""
    with suppress(OSError):
        files.unlink(pid_file(path))


def write_status(files: FileSystem, path: Path, status: Mapping[str, Any]) -> None:
    """Replace the status; after an ``OSError`` the former one remains."""
    _replace(files, status_file(path), json.dumps(status, separators=(",", ":")).encode())


def read_status(files: FileSystem, path: Path) -> dict[str, Any] | None:
    """The last status; ``None`` if there is none, or it cannot be read."""
    try:
        read = json.loads(read_file(files, status_file(path)) or b"")
    except (OSError, ValueError):
        return None
    return read if isinstance(read, dict) else None


def _replace(files: FileSystem, target: Path, content: bytes) -> None:
    temporary = target.with_name(f"{target.name}.tmp")
    overwrite_file(files, temporary, content, durable=False)
    files.rename(temporary, target)
