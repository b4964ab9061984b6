"""The committed offsets of consumer groups, independent of the store's role."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeAlias

Commit: TypeAlias = tuple[str, str, Mapping[int, int]]
"""Group, topic, and the next offset of some queues."""


class Offsets(Protocol):
    """The committed offsets; thread-safe."""

    @property
    def read_only(self) -> bool:
        """Whether commits are refused."""

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """The committed next offset of each queue for ``group``."""

    def groups(self) -> dict[str, dict[str, dict[int, int]]]:
        """By group, topic and queue id: the next offset to read."""

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commit the next offsets of some queues; durable on return."""

    def commit_all(self, commits: Iterable[Commit]) -> None:
        """Make several commits in one write."""

    def forget(self, group: str, topic: str | None = None) -> None:
        """Remove the offsets of a group, for one topic or for all."""

    def close(self) -> None:
        """Write pending changes; no commit is possible afterwards."""


class CurrentOffsets:
    """The offsets of a store whose role may change under its consumers.

    :param now: returns the current role's offsets; raises if the store is closed
    :param last: the same, without raising
    """

    def __init__(self, now: Callable[[], Offsets], last: Callable[[], Offsets]) -> None:
        self._now = now
        self._last = last

    @property
    def read_only(self) -> bool:
        """Whether commits are refused."""
        return self._last().read_only

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """The committed next offset of each queue for ``group``."""
        return self._now().committed(group, topic)

    def groups(self) -> dict[str, dict[str, dict[int, int]]]:
        """By group, topic and queue id: the next offset to read."""
        return self._now().groups()

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commit the next offsets of some queues."""
        self._now().commit(group, topic, offsets)

    def commit_all(self, commits: Iterable[Commit]) -> None:
        """Make several commits in one write."""
        self._now().commit_all(commits)

    def forget(self, group: str, topic: str | None = None) -> None:
        """Remove the offsets of a group, for one topic or for all."""
        self._now().forget(group, topic)

    def close(self) -> None:
        """Do nothing: each role closes its own offsets."""
