"""Compares the state of a group with its committed offsets, and commits.

Offsets that a member writes are noted as intended before, so that after a kill between the write
and the second note they do not look like those of another program.
"""

from __future__ import annotations

import attrs

from lakelog.format.queue_offsets import Queue
from lakelog_queues.consumers.offsettable import CurrentOffsets
from lakelog_queues.groups.members import MemberLocks
from lakelog_queues.groups.state import GroupState


@attrs.frozen
class GroupCommits:
    """The committed offsets of one group."""

    group: str
    state: GroupState
    offsets: CurrentOffsets
    locks: MemberLocks

    def read(self) -> dict[Queue, int]:
        """The offsets in the file, of topics that are not subscribed any more as well."""
        tables = self.offsets.groups().get(self.group, {})
        return {(topic, queue): at for topic in tables for queue, at in tables[topic].items()}

    def adopt(self) -> dict[Queue, int | None]:
        """Continue at offsets that another program committed; returns them."""
        if not self.state.foreign(self.read()):
            return {}
        with self.locks.process_lock:  # a commit of another member is whole now
            return self._adopt()

    def _adopt(self) -> dict[Queue, int | None]:
        found = self.state.foreign(self.read())
        if found:
            self.state.restart(found)
        return found

    def commit(self) -> None:
        """Commit the first offset of each queue that is not acknowledged."""
        with self.locks.process_lock:
            self._adopt()
            changed = self.state.intend()
            if not changed:
                return
            tables: dict[str, dict[int, int]] = {}
            for (topic, queue), at in changed.items():
                tables.setdefault(topic, {})[queue] = at
            self.offsets.commit_all((self.group, each, table) for each, table in tables.items())
            self.state.stored(changed)
