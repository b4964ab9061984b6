"""Group commit for stores without one: the thread that opens a group commits it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event, Lock


class Gathering:
    """Overlapping calls share a commit; a call returns after the commit of its body."""

    def __init__(self, commit: Callable[[Sequence[bytes]], None]) -> None:
        self._commit = commit
        self._group: _Group | None = None
        self._guard = Lock()
        self._turn = Lock()

    def put(self, body: bytes) -> None:
        """Join the open group and wait for its commit, or open one and commit it."""
        with self._guard:
            group, leads = self._group, self._group is None
            if group is None:
                self._group = group = _Group()
            group.bodies.append(body)
        if leads:
            self._lead(group)
        else:
            group.committed.wait()

    def _lead(self, group: _Group) -> None:
        with self._turn:
            with self._guard:
                self._group = None
            self._commit(group.bodies)
        group.committed.set()


class _Group:
    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.committed = Event()
