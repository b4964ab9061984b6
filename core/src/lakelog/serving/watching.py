"""A store at work, seen from another process: what ``lakelog top`` shows.

What ``serve`` says in its status file is taken if the process that wrote it lives, owns the store
and wrote it a moment ago; positions and rates are looked at anew. Beside any other owner there is
its shared page alone, and what Linux says of its processes.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog.errors import NoOwner, NotAStore
from lakelog.files import FileSystem
from lakelog.ownership import is_owned, owner_pid
from lakelog.pages.belief import Belief
from lakelog.pages.pageview import PageView
from lakelog.serving.held import as_seen
from lakelog.serving.procstat import look_at
from lakelog.serving.rates import Look, lags, rates, sync_ms
from lakelog.serving.runfiles import read_status
from lakelog.serving.status import VERSION, disks, follower_lags
from lakelog.serving.usage import Usage

FRESH_MS: Final = 10_000
"""How old the word of a ``serve`` may be; it writes every second, if it is well."""


@attrs.define
class Watcher:
    """Looks again and again; each view tells of the time since the one before."""

    files: FileSystem
    path: Path
    commitlog: Path
    _belief: Belief = attrs.field(init=False)
    _former: Look | None = attrs.field(default=None, init=False)
    _usage: Usage = attrs.field(factory=Usage, init=False)

    def __attrs_post_init__(self) -> None:
        self._belief = Belief(self.files, self.path)

    @property
    def needs_two(self) -> bool:
        """Whether a first view has no rates."""
        return self._former is None and self._served() is None

    def view(self) -> dict[str, Any]:
        """As :mod:`lakelog.serving.status` describes it; ``served_by`` says who tells.

        Without ``serve`` there are no services, and no problems but a missing
        heartbeat; beside a RocketMQ that owns the store no positions either. Raises
        :class:`~lakelog.errors.NoOwner` and :class:`~lakelog.errors.NotAStore`.
        """
        if not self.path.is_dir():
            raise NotAStore("no store is here; is the path right?", path=self.path)
        if not is_owned(self.files, self.path):
            raise NoOwner("nobody has this store open; nothing is at work", path=self.path)
        page, served = self._belief.page(), self._served()
        if served is not None:
            told = {"served_by": "serve", **served}
        else:
            told = {"served_by": None, **self._plain(page)}
        return {**as_seen(told, page), **self._positions(page)}

    def _served(self) -> dict[str, Any] | None:
        """What a living ``serve`` says."""
        said = read_status(self.files, self.path)
        if said is None or said.get("version") != VERSION or not _is_fresh(said):
            return None
        found = look_at(said["pid"])
        is_there = found is not None and found.start_ticks == said.get("start_ticks")
        return said if is_there and said["pid"] == owner_pid(self.files, self.path) else None

    def _plain(self, page: PageView | None) -> dict[str, Any]:
        pid = page.owner[0] if page is not None else owner_pid(self.files, self.path)
        state = page.state.name.lower() if page is not None and page.state is not None else "open"
        return {
            "path": str(self.path),
            "pid": pid,
            "heartbeat_ms": None if page is None else page.heartbeat_ms,
            "state": state,
            "health": "failed" if state == "failed" else "ok",
            "problems": [],
            "disks": disks(self.path, self.commitlog),
            "processes": [] if pid is None else self._usage.rows(pid, ()),
        }

    def _positions(self, page: PageView | None) -> dict[str, Any]:
        """What the page says now; nothing new before the second look."""
        if page is None:
            return {}
        look = Look(time.monotonic(), page.counts())
        former, self._former = self._former, look
        told: dict[str, Any] = {"positions": look.counts}
        if former is not None:
            told["rates"] = {name: round(rate, 1) for name, rate in rates(former, look).items()}
            told["flush"] = {"mean_ms": sync_ms(former, look)}
        followers = follower_lags(self.files, self.path, look.counts["flushed"])
        return {**told, "lags": {**lags(look.counts), "followers": followers}}


def _is_fresh(said: dict[str, Any]) -> bool:
    beat, pid = said.get("heartbeat_ms"), said.get("pid")
    if type(beat) is not int or type(pid) is not int:
        return False
    return abs(time.time_ns() // 1_000_000 - beat) < FRESH_MS
