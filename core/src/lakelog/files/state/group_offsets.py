"""The offsets that groups committed, as consumers see them; who keeps them depends on the role."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol


class Offsets(Protocol):
    """Methods may be called from any thread."""

    @property
    def read_only(self) -> bool:
        """Whether nothing can be committed."""

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """The next offset of each queue that ``group`` committed."""

    def groups(self) -> dict[str, dict[str, dict[int, int]]]:
        """By group, topic and queue id: the next offset to read."""

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Keep the next offset of some queues; durable when it returns."""

    def close(self) -> None:
        """Write what is not written yet; nothing can be committed any more."""


class CurrentOffsets:
    """Those of a store whose role may change under its consumers.

    :param now: the offsets as the role has them; raises what a closed store raises
    :param last: the same, of a closed store too
    """

    def __init__(self, now: Callable[[], Offsets], last: Callable[[], Offsets]) -> None:
        self._now = now
        self._last = last

    @property
    def read_only(self) -> bool:
        """Whether nothing can be committed."""
        return self._last().read_only

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """The next offset of each queue that ``group`` committed."""
        return self._now().committed(group, topic)

    def groups(self) -> dict[str, dict[str, dict[int, int]]]:
        """By group, topic and queue id: the next offset to read."""
        return self._now().groups()

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Keep the next offset of some queues."""
        self._now().commit(group, topic, offsets)

    def close(self) -> None:
        """Each role's are closed with it."""
