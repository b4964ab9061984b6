"""The state of a running broker for both protocols: topics, groups, offsets and waits.

``topics.json`` and ``subscriptionGroup.json`` are those of the store. ``messageRequestMode.json``
says whether the members of a group pull or pop a topic: it has an entry for each topic and group.
Offsets of groups are changed in memory, and committed together every few seconds. Source: RocketMQ
5.3.3, ``TopicConfigManager`` and ``MessageRequestModeManager``.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog import Store, StoredMessage
from lakelog.errors import IllegalMessage
from lakelog.files.filesystem import FileSystem
from lakelog.format.encoder import encode_topic
from lakelog.format.layout import CONFIG_DIR
from lakelog.format.queue_offsets import Queue
from lakelog_broker.codes import (
    Forbidden,
    Invalid,
    NoTopic,
    Refused,
    ResponseCode,
    check_limit,
)
from lakelog_broker.security import ANONYMOUS, User
from lakelog_broker.settings import BrokerSettings
from lakelog_queues import configs
from lakelog_queues.groups.set_aside import DEAD_LETTER_PREFIX, RETRY_PREFIX
from lakelog_queues.readers import ArrivalSignal
from lakelog_rocketmq.config import Loaded, TopicConfig, load_config, object_table, save_config

AUTO_CREATE_TOPIC: Final = "TBW102"
"""Clients ask for the route of this topic before they send to an unknown topic."""
READABLE: Final = 4
WRITABLE: Final = 2
INHERITED: Final = 1
_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")
_MAX_GROUP: Final = 255
_LEGAL_GROUP: Final = re.compile(rf"[%|a-zA-Z0-9_-]{{1,{_MAX_GROUP}}}")
MAX_NAMES: Final = 50_000
"""Most topics, and most groups: each new one writes their whole file, with about 300 bytes each."""
_MAX_CLIENT_ID: Final = 1_024
_MAX_OFFSETS: Final = 200_000


def check_topic(name: object) -> str:
    """Return a topic's name; raises :class:`Refused` for one that RocketMQ refuses."""
    if not isinstance(name, str) or not _LEGAL.fullmatch(name):
        raise Invalid(
            f"the topic {name!r:.100} must have 1 to 127 characters of a-z A-Z 0-9 % | _ -"
        )
    return name


def check_group(name: object) -> str:
    """As :func:`check_topic`, for a group of consumers or producers."""
    if not isinstance(name, str) or not _LEGAL_GROUP.fullmatch(name):
        raise Invalid(
            f"the group {name!r:.100} must have 1 to 255 characters of a-z A-Z 0-9 % | _ -"
        )
    return name


def check_length(group: object) -> None:
    """Raise :class:`Refused` for a group with more characters than RocketMQ's, or with none."""
    if not isinstance(group, str) or not 0 < len(group) <= _MAX_GROUP:
        raise Invalid(f"the group {group!r:.100} must have 1 to {_MAX_GROUP} characters")


def check_client_id(name: object) -> str:
    """As :func:`check_topic`, for the id of a client."""
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_CLIENT_ID:
        raise Invalid(f"the client id {name!r:.100} must have 1 to {_MAX_CLIENT_ID} characters")
    return name


class TopicTable:
    """All topics by name, and settings of groups; a change is written before it takes effect."""

    def __init__(self, files: FileSystem, path: Path, settings: BrokerSettings) -> None:
        self._files, self._path, self._settings = files, path, settings
        self._topics = dict(configs.topics_of(files, path))
        self._retry_limits = configs.retry_limits(files, path)
        self._group_attributes = configs.group_attributes(files, path)
        every = READABLE | WRITABLE | INHERITED
        queues = settings.default_queues
        # Tools find a broker by the routes of topics with the names of the cluster and the broker.
        self._builtin = {
            AUTO_CREATE_TOPIC: TopicConfig(AUTO_CREATE_TOPIC, queues, queues, every),
            **{name: TopicConfig(name, 1, 1, every) for name in (settings.cluster, settings.name)},
            settings.reply_topic: TopicConfig(settings.reply_topic, 1, 1),
        }

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(list(({**self._builtin, **self._topics}).values()))

    def find(self, topic: str) -> TopicConfig | None:
        """The configuration of ``topic``, or ``None``."""
        return self._topics.get(topic) or self._builtin.get(topic)

    def require(self, topic: str) -> TopicConfig:
        """As :meth:`find`; raises :class:`Refused` for an unknown topic."""
        found = self.find(topic)
        if found is None:
            raise NoTopic(f"topic[{topic}] not exist, apply first please!")
        return found

    def set(self, config: TopicConfig) -> TopicConfig:
        """Create or change a topic; raises :class:`Refused` for a name that RocketMQ refuses."""
        if self.find(config.topic) is None:
            check_topic(config.topic)
        return self._write(config)

    def _write(self, config: TopicConfig) -> TopicConfig:
        check_limit(len({*self._topics, config.topic}), MAX_NAMES, "a store with {} topics")
        configs.write_topic(self._files, self._path, config)
        self._topics[config.topic] = config
        return config

    def create(self, topic: str, queues: int) -> TopicConfig:
        """Return a topic; create it with ``queues`` if it is missing. Raises as :meth:`set`."""
        return self.find(topic) or self.set(TopicConfig(topic, queues, queues))

    def made(self, topic: str, queues: int) -> TopicConfig:
        """As :meth:`create`, for a topic that the broker itself puts messages into.

        RocketMQ's names of them are longer than a client may give, and have the characters of any
        group. Raises :class:`Refused` for a name that no record can hold.
        """
        found = self.find(topic)
        if found is None:
            try:
                encode_topic(topic)
            except IllegalMessage as error:
                raise Invalid(str(error)) from None
            found = self._write(TopicConfig(topic, queues, queues))
        return found

    def of_group(self, prefix: str, group: str) -> TopicConfig:
        """Return the retry topic (``%RETRY%``) or dead letter topic (``%DLQ%``) of a group.

        It is created first if it is missing. Raises as :meth:`made`.
        """
        found = self.find(prefix + group)
        if found is None:
            is_retries = prefix == RETRY_PREFIX
            queues = self.group_settings(group)["retryQueueNums"] if is_retries else 1
            found = self.made(prefix + group, queues)
        return found

    def created_by_sending(
        self, topic: str, default_topic: str = AUTO_CREATE_TOPIC, queues: int | None = None
    ) -> TopicConfig:
        """Return the topic of a client's message; create it under the same conditions as RocketMQ.

        :param default_topic: the client's template for a new topic
        :param queues: the client's number of queues for a new topic; at most ``default_queues``

        Raises :class:`Refused` for an unknown topic that is not created, or an illegal name.
        """
        found = self.find(topic)
        if found is not None:
            return found
        if self._settings.auto_create_topics and default_topic == AUTO_CREATE_TOPIC:
            most = self._settings.default_queues
            return self.create(topic, most if queues is None else max(1, min(queues, most)))
        if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
            return self.create(topic, 1)
        return self.require(topic)

    def retry_limit(self, group: str) -> int:
        """The number of retries of a message in a group before it becomes a dead letter."""
        return self._retry_limits.get(group, configs.DEFAULT_RETRIES)

    def add_group(self, group: str) -> None:
        """Add a group to ``config/subscriptionGroup.json``, unless it exists.

        Raises :class:`Refused` for a name that RocketMQ refuses.
        """
        if group not in self._retry_limits:
            self._check_new_group(group)
            configs.set_retry_limit(self._files, self._path, group, configs.DEFAULT_RETRIES)
            self._retry_limits[group] = configs.DEFAULT_RETRIES

    def _check_new_group(self, group: object) -> None:
        check_group(group)
        check_limit(len(self._retry_limits) + 1, MAX_NAMES, "a store with {} groups")

    def groups(self) -> list[str]:
        """The names of all groups in the file."""
        return list(self._retry_limits)

    def group_settings(self, group: str) -> dict[str, Any]:
        """The settings of a group in RocketMQ's names; the defaults if it is not in the file."""
        return configs.group_settings(self._files, self._path, group)

    def set_group(self, group: str, settings: Mapping[str, Any]) -> None:
        """Create a group, or change its settings.

        Raises ``ValueError`` for a setting of another type, and :class:`Refused` for a name that
        RocketMQ refuses.
        """
        if group not in self._retry_limits:
            self._check_new_group(group)
        changed = configs.set_group_settings(self._files, self._path, group, settings)
        self._retry_limits[group] = changed.max_retries
        self._group_attributes[group] = changed.attributes

    def group_attribute(self, group: str, name: str) -> str | None:
        """The value of an attribute of a group, such as ``lite.bind.topic``."""
        return self._group_attributes.get(group, {}).get(name)

    def is_by_priority(self, group: str, topic: str) -> bool:
        """Whether a request of a group gets the messages of the highest queues first.

        The group's attribute ``priority.factor`` is the share of such requests in percent.
        """
        found = self.find(topic)
        if found is None or found.attributes.get("message.type") != "PRIORITY":
            return False
        return random.randrange(100) < int(self.group_attribute(group, "priority.factor") or 100)

    def is_ordered(self, group: str) -> bool:
        """Whether members of a group that pop get the messages of a queue in order."""
        return group in configs.ordered_groups(self._files, self._path)

    def remove_group(self, group: str) -> None:
        """Remove a group from the file, if it exists."""
        configs.remove_group(self._files, self._path, group)
        self._retry_limits.pop(group, None)
        self._group_attributes.pop(group, None)

    def remove(self, topic: str) -> None:
        """Remove a topic from the table and the file, if it exists."""
        if topic in self._topics:
            configs.remove_topic(self._files, self._path, topic)
            del self._topics[topic]


MODES_FILE: Final = "messageRequestMode.json"

PULL: Final = "PULL"
POP: Final = "POP"
_TABLE: Final = "messageRequestModeMap"
_Table = dict[str, dict[str, Any]]


class RequestModes:
    """The modes by topic and group; a change is written to the file before it takes effect."""

    def __init__(self, files: FileSystem, path: Path) -> None:
        """Read the file, if there is one; raises :class:`~lakelog.errors.CorruptConfig`."""
        self._files, self._path = files, path
        self._table = self._load().value

    def of(self, topic: str, group: str) -> str:
        """The mode of a group: ``POP`` or ``PULL``."""
        return str(self._table.get(topic, {}).get(group, {}).get("mode", PULL))

    def set(self, topic: str, group: str, mode: str, shared_queues: int) -> None:
        """Change the mode of a group; durable on return.

        :param mode: ``POP`` or ``PULL``
        :param shared_queues: RocketMQ's ``popShareQueueNum``, which has no effect here

        Raises :class:`~lakelog.errors.CorruptConfig` and ``OSError``.
        """
        entry = {"consumerGroup": group, "mode": mode, "popShareQueueNum": shared_queues}
        entry["topic"] = topic
        with configs.config_lock(self._files, self._path):
            loaded = self._load()
            raw = object_table(loaded.content, _TABLE)
            groups = raw.get(topic)
            others = groups if isinstance(groups, Mapping) else {}
            content = {**loaded.content, _TABLE: {**raw, topic: {**others, group: entry}}}
            save_config(self._files, self._path / CONFIG_DIR / MODES_FILE, content)
        self._table = _read_modes(content)

    def _load(self) -> Loaded[_Table]:
        return load_config(self._files, self._path / CONFIG_DIR / MODES_FILE, _read_modes)


def _read_modes(content: Mapping[str, Any]) -> _Table:
    """The modes that can be read; other entries have no effect, and are kept as they are."""
    return {
        topic: {group: mode for group, mode in groups.items() if isinstance(mode, Mapping)}
        for topic, groups in object_table(content, _TABLE).items()
        if isinstance(groups, Mapping)
    }


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
    :ivar user: whose client it is
    """

    client_id: str
    peer: Peer
    seen_s: float
    language: str = "JAVA"
    version: int = 0
    user: User = ANONYMOUS


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


@attrs.define
class _Claim:
    """The user of a connected client, and the number of its memberships and streams."""

    user: User
    count: int = 0


class MemberTable:
    """All members of all groups; used from one event loop.

    A client id belongs to a user while the user has a client of that id here.

    :ivar groups: all consumer groups that have or had a member, by name
    :ivar producers: all producers, by group and client id
    :ivar on_change: called with the name of a consumer group whose members changed
    """

    def __init__(self) -> None:
        self.on_change: Callable[[str], None] = lambda _group: None
        self.groups: dict[str, MemberGroup] = {}
        self.producers: dict[str, dict[str, Member]] = {}
        self._locks: dict[tuple[str, str, int], tuple[str, float]] = {}
        self._claims: dict[str, _Claim] = {}

    def check_client(self, client_id: str, user: User) -> None:
        """Raise :class:`Refused` for the id of a connected client of another user."""
        claim = self._claims.get(client_id)
        if claim is not None and claim.user.access_key != user.access_key:
            text = f"{user.access_key} has no permission for the client {client_id:.300}"
            raise Forbidden(f"{text}, which is another user's")

    def claim(self, client_id: str, user: User) -> None:
        """Note that a client is connected, once more; raises :class:`Refused` for an illegal id."""
        claim = self._claims.setdefault(check_client_id(client_id), _Claim(user))
        claim.user, claim.count = user, claim.count + 1

    def release(self, client_id: str) -> None:
        """Undo one :meth:`claim`."""
        claim = self._claims[client_id]
        claim.count -= 1
        if not claim.count:
            del self._claims[client_id]

    def group(self, name: str) -> MemberGroup:
        """A consumer group; an empty one if it never had a member."""
        return self.groups.get(name) or MemberGroup()

    def join(self, name: str, member: Member) -> MemberGroup:
        """Add a consumer to a group, or renew its membership; raises as :meth:`claim`."""
        known = self.group(name).members.get(member.client_id)
        if known is None:
            self.claim(member.client_id, member.user)
        group = self.groups.setdefault(name, MemberGroup())
        group.members[member.client_id] = member
        if known is None or known.peer is not member.peer:
            self.on_change(name)
        return group

    def join_producers(self, name: str, member: Member) -> None:
        """Add a producer to a group, or renew its membership.

        Raises :class:`Refused` for a name that RocketMQ refuses, and as :meth:`claim`.
        """
        if member.client_id not in self.producers.get(name, ()):
            check_length(name)
            self.claim(member.client_id, member.user)
        self.producers.setdefault(name, {})[member.client_id] = member

    def leave(self, client_id: str, consumer_group: str | None, producer_group: str | None) -> None:
        """Remove a client from the given groups."""
        if consumer_group:
            self._remove(consumer_group, lambda each: each.client_id == client_id)
        if producer_group:
            self._remove_producers(producer_group, lambda each: each.client_id == client_id)

    def disconnected(self, peer: Peer) -> None:
        """Remove all members of a closed connection."""
        self._remove_all(lambda each: each.peer is peer)

    def remove_silent(self) -> None:
        """Remove members without a heartbeat for ``SILENCE_MS``."""
        earliest = time.monotonic() - SILENCE_MS / 1000
        self._remove_all(lambda each: each.seen_s < earliest)

    def _remove_all(self, is_gone: Callable[[Member], bool]) -> None:
        for name in list(self.groups):
            self._remove(name, is_gone)
        for name in list(self.producers):
            self._remove_producers(name, is_gone)

    def _remove(self, name: str, is_gone: Callable[[Member], bool]) -> None:
        if self._remove_from(self.group(name).members, is_gone):
            self.on_change(name)

    def _remove_producers(self, name: str, is_gone: Callable[[Member], bool]) -> None:
        members = self.producers.get(name, {})
        if self._remove_from(members, is_gone) and not members:
            del self.producers[name]

    def _remove_from(self, members: dict[str, Member], is_gone: Callable[[Member], bool]) -> bool:
        gone = [each.client_id for each in members.values() if is_gone(each)]
        for each in gone:
            del members[each]
            self.release(each)
        return bool(gone)

    def lock(
        self, group: str, client_id: str, queues: Iterable[tuple[str, int]]
    ) -> list[tuple[str, int]]:
        """Lock queues for a client, or renew its locks.

        :param queues: topic and queue id of each queue
        :returns: the queues that the client holds now
        """
        now, locked = time.monotonic(), []
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


class GroupOffsetTable:
    """Next queue offsets by group, topic and queue id.

    A crash loses the changes of the last seconds, as with RocketMQ; messages are then handed out
    again.
    """

    def __init__(self, store: Store) -> None:
        """Read the committed offsets of ``config/consumerOffset.json``."""
        self._store = store
        self._offsets = {
            (group, topic): dict(queues)
            for group, topics in store.groups().items()
            for topic, queues in topics.items()
        }
        self._changed: set[tuple[str, str]] = set()
        self._unsaved: set[tuple[str, str]] = set()

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """The next offset of a group in a queue; ``None`` without one, or for a negative one."""
        found = self._offsets.get((group, topic), {}).get(queue_id, -1)
        return None if found < 0 else found

    def of_group(self, group: str) -> dict[str, dict[int, int]]:
        """All offsets of a group, by topic and queue id; without negative ones."""
        return {
            topic: {queue_id: offset for queue_id, offset in all_.items() if offset >= 0}
            for (name, topic), all_ in self._offsets.items()
            if name == group
        }

    def groups(self, topic: str | None = None) -> set[str]:
        """The names of all groups with an offset, or with one in ``topic``."""
        return {group for group, name in self._offsets if topic in {None, name}}

    def set(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Change an offset in memory; the next save writes it to the file.

        Raises :class:`Refused` for a new group without a name or with a longer one than RocketMQ's;
        other characters than RocketMQ's are kept.
        """
        if (group, topic) not in self._offsets:
            check_length(group)
            check_limit(len(self._offsets) + 1, _MAX_OFFSETS, "offsets of {} groups in topics")
        self._offsets.setdefault((group, topic), {})[queue_id] = offset
        self._changed.add((group, topic))

    def forget(self, group: str) -> None:
        """Remove the offsets of a group, also in the file."""
        for key in [key for key in self._offsets if key[0] == group]:
            del self._offsets[key]
            self._changed.discard(key)
            self._unsaved.discard(key)
        self._store.forget_offsets(group)

    def progress(self) -> Callable[[], None] | None:
        """Return a function that commits the present offsets; ``None`` if they are committed.

        The function makes the log durable first, and may be called in any thread. It raises as
        ``Store.commit_offsets``; offsets that it did not commit are part of the next progress.
        """
        self._unsaved |= self._changed
        self._changed = set()
        commits = [(*key, dict(self._offsets[key])) for key in self._unsaved & self._offsets.keys()]
        if not commits:
            return None

        def save() -> None:
            present = [each for each in commits if each[:2] in self._offsets]
            self._store.commit_offsets(present, as_broker=True)
            self._unsaved = set()

        return save


_URGENT_S: Final = 1.0
"""Arrivals stay urgent for this long after a request has waited, as clients repeat it."""
_EARLY_S: Final = 0.001
"""A timer may be early by the resolution of the clock."""
_FEW: Final = 32
"""Waiting requests that look for messages in one turn of the event loop."""


class ArrivalWaits:
    """Waiting requests by queue; used from one event loop.

    After an arrival, only the ends of queues with a waiting request are compared. If very many
    requests wait, few of them look in each turn of the event loop, which serves others, too.

    :param end_of: returns the end offset of a queue, by topic and queue id
    """

    def __init__(self, arrivals: ArrivalSignal, end_of: Callable[[str, int], int]) -> None:
        self._arrivals, self._end_of = arrivals, end_of
        self._waiting: dict[Queue, set[asyncio.Event]] = {}
        self._ends: dict[Queue, int] = {}
        self._due = deque[asyncio.Event]()
        self._has_turns = self._is_closed = False
        self._requests = 0
        self._urgent_until_s = 0.0

    async def run(self) -> None:
        """Wake waiting requests until the store is closed."""
        while not self._arrivals.closed:
            seen = self._arrivals.version
            self._wake()
            await self._arrivals.wait_async(seen, self._is_urgent)

    def _is_urgent(self) -> bool:
        return bool(self._requests) or time.monotonic() < self._urgent_until_s

    def _wake(self) -> None:
        for queue, events in list(self._waiting.items()):
            end = self._end_of(*queue)
            if end != self._ends.get(queue):
                self._ends[queue] = end
                for event in events:
                    self._give_turn(event)

    def wake(self, topic: str, queue_id: int) -> None:
        """Notify the requests that wait for a queue, though it has not grown."""
        for event in self._waiting.get((topic, queue_id), ()):
            self._give_turn(event)

    def close(self) -> None:
        """End all waits at once, without a look: the broker stops."""
        self._is_closed = True
        for events in self._waiting.values():
            for event in events:
                event.set()

    def _check_open(self) -> None:
        if self._is_closed:
            raise Refused("the broker stops", ResponseCode.SERVICE_NOT_AVAILABLE)

    def _give_turn(self, event: asyncio.Event) -> None:
        self._due.append(event)
        if not self._has_turns:
            self._give_turns()

    def _give_turns(self) -> None:
        self._has_turns = bool(self._due)
        for _ in range(min(len(self._due), _FEW)):
            self._due.popleft().set()
        if self._has_turns:
            asyncio.get_running_loop().call_soon(self._give_turns)

    async def until(
        self,
        queues: Iterable[Queue],
        timeout_s: float,
        is_found: Callable[[], bool],
        *,
        is_urgent: bool = True,
    ) -> bool:
        """Call ``is_found`` now and whenever one of ``queues`` grows, until it returns true.

        :param is_urgent: false for work that may start some tens of ms after an arrival. Without an
            urgent wait, many messages are dispatched at once, which is much cheaper than a dispatch
            after each put
        :returns: the last result of ``is_found``, after ``timeout_s`` seconds at the latest

        Raises :class:`Refused` after :meth:`close`.
        """
        self._check_open()
        event, loop = asyncio.Event(), asyncio.get_running_loop()
        end = loop.time() + timeout_s
        watched = list(queues)
        self._requests += is_urgent
        for queue in watched:
            self._waiting.setdefault(queue, set()).add(event)
            self._ends.setdefault(queue, self._end_of(*queue))
        timer = loop.call_at(end, self._give_turn, event)
        try:
            while not (found := is_found()) and loop.time() + _EARLY_S < end:
                await event.wait()
                event.clear()
                self._check_open()
            return found
        finally:
            timer.cancel()
            self._requests -= is_urgent
            if is_urgent:
                self._urgent_until_s = time.monotonic() + _URGENT_S
            for queue in watched:
                events = self._waiting[queue]
                events.discard(event)
                if not events:
                    del self._waiting[queue], self._ends[queue]
