"""The next offsets of consumer groups: changed in memory, committed together every few seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

Commit: TypeAlias = tuple[str, str, Mapping[int, int]]
"""Group, topic, and the next queue offset by queue id."""


class GroupOffsetTable:
    """Next queue offsets by group, topic and queue id.

    A crash loses the changes of the last seconds, as with RocketMQ; messages are then handed out
    again.

    :param committed: the content of ``config/consumerOffset.json``, by group, topic and queue id
    :param commit: replaces offsets in the file
    :param forget: removes offsets from the file, of one topic or of all
    """

    def __init__(
        self,
        committed: Mapping[str, Mapping[str, Mapping[int, int]]],
        commit: Callable[[Iterable[Commit]], None],
        forget: Callable[[str, str | None], None],
    ) -> None:
        self._offsets = {
            (group, topic): dict(queues)
            for group, topics in committed.items()
            for topic, queues in topics.items()
        }
        self._commit, self._forget = commit, forget
        self._changed: set[tuple[str, str]] = set()
        self._unsaved: set[tuple[str, str]] = set()

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """The next offset of a group in a queue; ``None`` without one."""
        return self._offsets.get((group, topic), {}).get(queue_id)

    def of_group(self, group: str) -> dict[str, dict[int, int]]:
        """All offsets of a group, by topic and queue id."""
        return {topic: dict(all_) for (name, topic), all_ in self._offsets.items() if name == group}

    def groups(self) -> set[str]:
        """The names of all groups with an offset."""
        return {group for group, _ in self._offsets}

    def set(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Change an offset in memory; the next save writes it to the file."""
        self._offsets.setdefault((group, topic), {})[queue_id] = offset
        self._changed.add((group, topic))

    def forget(self, group: str, topic: str | None = None) -> None:
        """Remove the offsets of a group, of one topic or of all, also in the file."""
        for key in [key for key in self._offsets if key[0] == group and topic in (None, key[1])]:
            del self._offsets[key]
            self._changed.discard(key)
            self._unsaved.discard(key)
        self._forget(group, topic)

    def progress(self) -> Callable[[], None] | None:
        """Return a function that commits the present offsets; ``None`` if they are committed.

        The log must be durable before its call, which may be in any thread: an offset may be behind
        a message whose copy in a retry topic is not durable yet. The function raises as
        ``Store.commit_offsets``; offsets that it did not commit are part of the next progress.
        """
        self._unsaved |= self._changed
        self._changed = set()
        commits = [(*key, dict(self._offsets[key])) for key in self._unsaved & self._offsets.keys()]
        if not commits:
            return None

        def save() -> None:
            self._commit([each for each in commits if each[:2] in self._offsets])
            self._unsaved = set()

        return save
