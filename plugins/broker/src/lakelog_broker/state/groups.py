"""Groups: their members, the locks of their queues, and their next offsets.

Offsets are changed in memory, and committed together every few seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import attrs

from lakelog import StoredMessage

SILENCE_MS: Final = 120_000
"""A client without a heartbeat for this long is removed; RocketMQ's ``channelExpiredTimeout``."""
LOCK_MS: Final = 60_000
"""A lock of a queue expires after this long if it is not renewed."""


class Peer:
    """The connection of a client, of either protocol.

    :ivar address: ``address:port`` of a remoting client; empty for a gRPC client
    """

    address = ""

    def check_transaction(self, half: StoredMessage) -> None:
        """Ask the client for the outcome of a transaction.

        :param half: the half message at its present offsets, which the answer must name; its own
            topic and queue are properties, see :func:`lakelog_broker.appending.restored`
        """
        raise NotImplementedError


@attrs.define
class Member:
    """A client in a group.

    :ivar peer: its connection
    :ivar seen_s: time of its last heartbeat, in seconds of ``time.monotonic``
    :ivar language: the client's language, in RocketMQ's spelling
    :ivar version: the ordinal of its version in ``MQVersion``
    """

    client_id: str
    peer: Peer
    seen_s: float
    language: str = "JAVA"
    version: int = 0


@attrs.define(eq=False)
class MemberGroup:
    """The members of a consumer group and its subscriptions.

    :ivar members: members by client id
    :ivar subscriptions: the last ``SubscriptionData`` of a heartbeat, by topic
    :ivar consume_type: ``CONSUME_ACTIVELY`` or ``CONSUME_PASSIVELY``
    """

    members: dict[str, Member] = attrs.field(factory=dict)
    subscriptions: dict[str, Mapping[str, Any]] = attrs.field(factory=dict)
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"


class MemberTable:
    """All members of all groups; used from one event loop.

    :ivar groups: all consumer groups that have or had a member, by name
    :ivar producers: all producers, by group and client id
    :ivar on_change: called with the name of a consumer group whose members changed
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.on_change: Callable[[str], None] = lambda _group: None
        self._clock = clock
        self.groups: dict[str, MemberGroup] = {}
        self.producers: dict[str, dict[str, Member]] = {}
        self._locks: dict[tuple[str, str, int], tuple[str, float]] = {}

    def group(self, name: str) -> MemberGroup:
        """A consumer group; an empty one if it never had a member."""
        return self.groups.get(name) or MemberGroup()

    def join(self, name: str, member: Member) -> MemberGroup:
        """Add a consumer to a group, or renew its membership."""
        group = self.groups.setdefault(name, MemberGroup())
        known = group.members.get(member.client_id)
        group.members[member.client_id] = member
        if known is None or known.peer is not member.peer:
            self.on_change(name)
        return group

    def join_producers(self, name: str, member: Member) -> None:
        """Add a producer to a group, or renew its membership."""
        self.producers.setdefault(name, {})[member.client_id] = member

    def leave(self, client_id: str, consumer_group: str | None, producer_group: str | None) -> None:
        """Remove a client from the given groups."""
        if consumer_group:
            self._remove(consumer_group, lambda each: each.client_id == client_id)
        if producer_group:
            self.producers.get(producer_group, {}).pop(client_id, None)

    def disconnected(self, peer: Peer) -> None:
        """Remove all members of a closed connection."""
        self._remove_all(lambda each: each.peer is peer)

    def remove_silent(self) -> None:
        """Remove members without a heartbeat for ``SILENCE_MS``."""
        earliest = self._clock() - SILENCE_MS / 1000
        self._remove_all(lambda each: each.seen_s < earliest)

    def _remove_all(self, is_gone: Callable[[Member], bool]) -> None:
        for name in list(self.groups):
            self._remove(name, is_gone)
        for table in self.producers.values():
            for each in [each for each in table.values() if is_gone(each)]:
                del table[each.client_id]

    def _remove(self, name: str, is_gone: Callable[[Member], bool]) -> None:
        members = self.group(name).members
        gone = [each for each in members.values() if is_gone(each)]
        for each in gone:
            del members[each.client_id]
        if gone:
            self.on_change(name)

    def lock(
        self, group: str, client_id: str, queues: Iterable[tuple[str, int]]
    ) -> list[tuple[str, int]]:
        """Lock queues for a client, or renew its locks.

        :param queues: topic and queue id of each queue
        :returns: the queues that the client holds now
        """
        now, locked = self._clock(), []
        for topic, queue_id in queues:
            owner, until = self._locks.get((group, topic, queue_id), ("", 0.0))
            if owner == client_id or until < now:
                self._locks[group, topic, queue_id] = (client_id, now + LOCK_MS / 1000)
                locked.append((topic, queue_id))
        return locked

    def unlock(self, group: str, client_id: str, queues: Iterable[tuple[str, int]]) -> None:
        """Release the locks that a client holds on ``queues``."""
        for topic, queue_id in queues:
            if self._locks.get((group, topic, queue_id), ("", 0.0))[0] == client_id:
                del self._locks[group, topic, queue_id]


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
