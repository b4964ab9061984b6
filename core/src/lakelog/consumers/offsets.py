"""The offsets that groups committed, as consumers see them; who keeps them depends on the role."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from lakelog.consumers.names import offsets_name
from lakelog.consumers.offsettable import OffsetTable


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


class HandedOffsets:
    """Those of an attached store: the owner keeps what is committed, and the file says it.

    :param table: reads the file
    :param commit: hands group, topic and offsets to the owner, and waits until it has kept them
    """

    read_only = False

    def __init__(
        self, table: OffsetTable, commit: Callable[[str, str, Mapping[int, int]], None]
    ) -> None:
        self.committed = table.committed
        self.groups = table.groups
        self._commit = commit

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Let the owner keep the next offset of some queues; raises what its own commit raises."""
        offsets_name(topic, group)
        if offsets:
            self._commit(group, topic, offsets)

    def close(self) -> None:
        """The way to the owner is closed elsewhere."""


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
