"""The offsets of all groups of one store: held in memory, kept in ``config/consumerOffset.json``.

One process keeps them, the owner; others read the file, or hand it what they commit.

A commit returns when its offsets are durable. Commits that come while the file is being written
share the next write. With ``commit_interval_ms`` a commit returns at once, and the file is written
at most that often and at close: a crash then takes back at most that much (RocketMQ: 5 s).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import Lock, Timer
from typing import Any, TypeAlias

import attrs

from lakelog.config.consumeroffsets import Offsets, load_offsets, save_offsets, split_name
from lakelog.consumers.names import offsets_name
from lakelog.errors import StoreClosed, StoreError, StoreReadOnly, ThreadNotStarted
from lakelog.files import FileSystem
from lakelog.threads import started

Commit: TypeAlias = tuple[str, str, Mapping[int, int]]
"""Group, topic, and the next offset of some queues."""

_log = logging.getLogger("lakelog")


@attrs.define
class _State:
    """What the file holds, and what was committed since."""

    offsets: Offsets
    content: Mapping[str, Any]


class OffsetTable:
    """All committed offsets of a store; methods may be called from any thread.

    The file is read at the first use; a table of a store that is open for reading reads it each
    time, since its owner goes on.
    """

    def __init__(
        self,
        files: FileSystem,
        path: Path,
        *,
        read_only: bool = False,
        commit_interval_ms: int = 0,
    ) -> None:
        """Touch no file yet.

        :param path: the store directory
        :param commit_interval_ms: 0 makes every commit durable before it returns
        """
        self.read_only = read_only
        self._files = files
        self._path = path
        self._interval_ms = commit_interval_ms
        self._loaded: _State | None = None
        self._changes = 0
        self._written = 0
        self._closed = False
        self._timer: Timer | None = None
        self._lock = Lock()
        self._writing = Lock()

    # --- reading ---

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """The next offset of each queue that ``group`` committed; raises ``CorruptConfig``."""
        name = offsets_name(topic, group)
        with self._lock:
            return dict(self._state().offsets.get(name, {}))

    def groups(self) -> dict[str, dict[str, dict[int, int]]]:
        """By group, topic and queue id: the next offset to read."""
        found: dict[str, dict[str, dict[int, int]]] = {}
        with self._lock:
            for name, table in self._state().offsets.items():
                split = split_name(name)
                if split is not None:
                    found.setdefault(split[1], {})[split[0]] = dict(table)
        return found

    # --- committing ---

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Keep the next offset of some queues.

        Raises ``StoreReadOnly``, ``StoreClosed``, ``CorruptConfig``, and ``StoreError`` if the
        file cannot be written: the offsets then stay in memory for the next try.
        """
        self.commit_all([(group, topic, offsets)])

    def commit_all(self, commits: Iterable[Commit]) -> None:
        """Keep several commits by one write; raises as :meth:`commit`, and then keeps none."""
        named = [(offsets_name(topic, group), offsets) for group, topic, offsets in commits]
        with self._lock:
            self._check_open()
            known = self._state().offsets
            for name, offsets in named:
                known.setdefault(name, {}).update(offsets)
            change = self._changed()
        self._keep(change)

    def places(self) -> int:
        """How many offsets are kept, of all groups."""
        with self._lock:
            return sum(map(len, self._state().offsets.values()))

    def forget(self, group: str, topic: str | None = None) -> None:
        """Remove what ``group`` committed, for one topic or for all."""
        with self._lock:
            self._check_open()
            offsets = self._state().offsets
            for name in list(offsets):
                split = split_name(name)
                if split is not None and split[1] == group and topic in (None, split[0]):
                    del offsets[name]
            change = self._changed()
        self._keep(change)

    def flush(self) -> None:
        """Write what is not written yet."""
        with self._lock:
            change = self._changes
        self._write(change)

    def close(self) -> None:
        """Write what is not written yet; nothing can be committed any more."""
        with self._lock:
            self._closed = True
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        self.flush()

    def _check_open(self) -> None:
        if self.read_only:
            raise StoreReadOnly(
                "offsets cannot be committed in a store that is open for reading; open it with "
                "mode='auto', and its owner keeps them",
                path=self._path,
            )
        if self._closed:
            raise StoreClosed("the store is closed", path=self._path)

    def _state(self) -> _State:
        if self._loaded is None or self.read_only:
            loaded = load_offsets(self._files, self._path)
            self._loaded = _State(loaded.value, loaded.content)
        return self._loaded

    def _changed(self) -> int:
        self._changes += 1
        return self._changes

    def _keep(self, change: int) -> None:
        if self._interval_ms == 0:
            self._write(change)
        else:
            try:
                self._write_later()
            except ThreadNotStarted:
                self._write(change)

    # --- writing ---

    def _write(self, change: int) -> None:
        """Return once a write that began after ``change`` is durable."""
        with self._writing:
            if self._written >= change:
                return
            with self._lock:
                state, reached = self._state(), self._changes
                offsets = {name: dict(table) for name, table in state.offsets.items()}
            try:
                state.content = save_offsets(
                    self._files, self._path, state.content, offsets, time.time_ns() // 1_000_000
                )
            except OSError as error:
                raise StoreError(
                    f"consumer offsets could not be written ({error}); see to permissions and "
                    "space, then commit again",
                    path=error.filename or self._path,
                ) from error
            self._written = reached

    def _write_later(self) -> None:
        with self._lock:
            if self._timer is None and not self._closed:
                timer = Timer(self._interval_ms / 1000, self._write_now)
                timer.name, timer.daemon = "lakelog-offsets", True
                self._timer = started(timer)

    def _write_now(self) -> None:
        """The timer's work; what fails is tried again at the next commit and at close."""
        with self._lock:
            self._timer = None
        try:
            self.flush()
        except StoreError as error:
            _log.error("%s", error)  # the message says it all
