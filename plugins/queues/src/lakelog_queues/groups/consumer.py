"""A member of a consumer group that shares the queues with the other members, and its options."""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Final, TypeAlias

import attrs

from lakelog.arguments import WrongValue, span_ms, topic_name, whole, wrong_type
from lakelog.errors import LakelogError, NotDurable, SettingsError, StoreClosed, StoreReadOnly
from lakelog.files.filesystem import FileSystem
from lakelog.format.queue_offsets import Queue
from lakelog.message import Message, StoredMessage
from lakelog.runtime.forks import OfThisProcess, register_forked
from lakelog_queues.configs import DEFAULT_RETRIES, retry_limits
from lakelog_queues.consumers import consumer
from lakelog_queues.consumers.offsettable import check_group, offsets_name
from lakelog_queues.finding.results import GetStatus, PlacedResult
from lakelog_queues.groups import state
from lakelog_queues.groups.members import MemberLocks, share_of
from lakelog_queues.groups.property_filter import PropertyFilter
from lakelog_queues.groups.set_aside import RETRY_PREFIX, dead_letter_of, retry_delay_ms, retry_of
from lakelog_queues.groups.state import Delivery
from lakelog_queues.units.tags import tag_filter

_TURN_S: Final = 1.0
"""Longest interval between two checks of members, queues and committed offsets, in seconds."""
_NAP_S: Final = 0.5
"""Longest interval between two searches for messages whose invisible time is over, in seconds."""
_MOVES_ON: Final = frozenset(GetStatus) - {
    GetStatus.NO_MATCHED_LOGIC_QUEUE,
    GetStatus.NO_MESSAGE_IN_QUEUE,
    GetStatus.OFFSET_OVERFLOW_ONE,
}
_log = logging.getLogger("lakelog")

GetPlaced: TypeAlias = Callable[..., PlacedResult]
"""Reads one queue, as ``QueueGetter.get_placed``."""


@attrs.frozen
class GroupAccess:
    """The store, as a member of a group uses it.

    :ivar get: reads one queue
    :ivar queues: queue ids, bounds, committed offsets, and waiting for messages
    :ivar put: appends a message
    """

    files: FileSystem
    path: Path
    get: GetPlaced
    queues: consumer.QueueAccess
    put: Callable[[Message], object]
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000


class GroupConsumer(OfThisProcess):
    """A member of a group; created by ``Store.subscribe``, ended by :meth:`close` or ``with``.

    Thread-safe: a thread may acknowledge messages that another thread polled. Delivery is at least
    once.

    :ivar group: the consumer group
    :ivar member: the number of this member in the store
    """

    def __init__(self, options: GroupOptions, access: GroupAccess) -> None:
        """Join the group.

        Raises :class:`~lakelog.errors.StoreReadOnly` in a store that is open for reading,
        :class:`~lakelog.errors.SettingsError` if a living member has another subscription,
        :class:`~lakelog.errors.StoreError` if the state of groups cannot be used, and
        :class:`~lakelog.errors.CorruptConfig` if their configuration cannot.
        """
        if access.queues.offsets.read_only:
            raise StoreReadOnly(
                "a member of a group cannot share queues in a store that is open for reading; open "
                "it with mode='write', or use consumer()",
                path=access.path,
            )
        options = options.configured(access.files, access.path)
        self.group = options.group
        self._options = options
        self._access = access
        self._closed = False
        self._fetching = Lock()
        self._turn_at = self._commit_at = 0.0
        self._listed_at = access.queues.arrivals.version
        self._members: list[int] = []
        self._queues: list[Queue] = []
        self._first = 0
        self._has_moved = False
        with ExitStack() as opened:
            self._locks = MemberLocks(access.files, access.path)
            opened.callback(self._locks.close)
            self._database = state.GroupDatabase(access.files, access.path, self._locks)
            opened.callback(self._database.close)
            self._state = state.GroupState(self._database, options.scope)
            self.member = self._state.join(
                *(self._locks, options.subscription, access.now_ms()),
                is_alone=options.broadcast is not None,
            )
            offsets = access.queues.offsets
            self._commits = state.GroupCommits(self.group, self._state, offsets, self._locks)
            self._turn()
            self._ends = opened.pop_all()
        self._commit_at = time.monotonic() + options.commit_interval_ms / 1000
        register_forked(self)

    # --- reading ---

    def poll(
        self, max_messages: int = consumer.BATCH_MESSAGES, wait_ms: float = 0
    ) -> list[Delivery]:
        """The next messages of this member's queues.

        :param wait_ms: longest wait at the end of the queues for the first message
        :returns: at most ``max_messages``; empty on timeout

        Raises :class:`~lakelog.errors.StoreClosed` if the consumer or its store is closed.
        """
        most, wait = whole("max_messages", max_messages, 1), span_ms("wait_ms", wait_ms)
        deadline = time.monotonic() + wait / 1000
        arrivals = self._access.queues.arrivals
        while True:
            seen = arrivals.version
            found = self.fetch(most)
            left = deadline - time.monotonic()
            if found or left <= 0 or arrivals.closed:
                return found
            arrivals.wait(seen, min(left, self.nap_s()))
            if self._closed:
                return []

    def fetch(self, max_messages: int) -> list[Delivery]:
        """As :meth:`poll`, without waiting; raises the same errors.

        Continues past messages that tags or the filter exclude.
        """
        most = whole("max_messages", max_messages, 1)
        while True:
            with self._fetching:
                if self._closed:
                    raise StoreClosed(f"the consumer of group {self.group!r} is closed")
                if time.monotonic() >= self._commit_at:
                    self.commit()
                found = self._fetch(most)
                if found or not self._has_moved:
                    return found

    def _fetch(self, max_messages: int) -> list[Delivery]:
        version = self._access.queues.arrivals.version
        if time.monotonic() >= self._turn_at:
            self._turn()
        elif version != self._listed_at:
            self._list_queues()
        self._listed_at = version
        now_ms = self._access.now_ms()
        until_ms = now_ms + self._options.invisible_ms
        lease = state.Lease(secrets.randbits(62) | 1, self.member, now_ms, until_ms)
        self._has_moved = False
        found = self._again(max_messages, lease)
        if len(found) < max_messages:
            found += self._new(max_messages - len(found), lease)
        return found

    def nap_s(self) -> float:
        """Seconds to wait for arrivals before the next check."""
        now_ms = self._access.now_ms()
        due_ms = self._state.next_due_ms(now_ms)
        return _NAP_S if due_ms is None else min((due_ms - now_ms) / 1000, _NAP_S)

    def __iter__(self) -> Iterator[Delivery]:
        """Yield messages as they arrive, one after the other, until the consumer is closed.

        They are fetched one by one, so that no message waits while its invisible time runs.
        """
        while not (self._closed or self._access.queues.arrivals.closed):
            with suppress(StoreClosed):
                yield from self.poll(1, _NAP_S * 1000)

    # --- outcomes ---

    def ack(self, *deliveries: Delivery) -> bool:
        """Acknowledge messages: they are not handed out again.

        :returns: whether this member still had all of them; ``False`` if the invisible time of any
            was over and it was handed out again, or if the group's offset was set anew
        """
        return all(self._state.remove([_handle(each) for each in deliveries]))

    def nack(self, delivery: Delivery, delay_ms: float | None = None) -> bool:
        """Return a message that could not be handled; it is handed out again after ``delay_ms``.

        :param delay_ms: ``None`` is RocketMQ's delay after so many attempts, from 10 s to 2 h; 0 in
            an orderly consumer
        :returns: as :meth:`ack`
        """
        handle = _handle(delivery)
        if delay_ms is None:
            delay_ms = 0 if self._options.orderly else retry_delay_ms(delivery.attempt)
        visible_ms = self._access.now_ms() + int(span_ms("delay_ms", delay_ms))
        orderly = self._options.orderly
        return self._state.give_back(handle, visible_ms, orderly=orderly)

    def renew(self, delivery: Delivery, invisible_ms: float | None = None) -> bool:
        """Let the invisible time of a message end ``invisible_ms`` from now.

        :param invisible_ms: ``None`` is the time given to ``subscribe``
        :returns: as :meth:`ack`
        """
        handle = _handle(delivery)
        span = self._options.invisible_ms if invisible_ms is None else invisible_ms
        visible_ms = self._access.now_ms() + int(span_ms("invisible_ms", span))
        return all(self._state.renew([handle], visible_ms))

    def commit(self) -> None:
        """Commit the group's offsets: the first one in each queue that is not acknowledged.

        Durable on return. Members do this by themselves every ``commit_interval_ms``. Does nothing
        for a broadcasting consumer.
        """
        self._commit_at = time.monotonic() + self._options.commit_interval_ms / 1000
        if self._options.broadcast is None:
            self._commits.commit()

    def assigned(self) -> list[Queue]:
        """Topic and queue id of each queue in which this member looks for messages."""
        if self._options.broadcast is not None:
            return list(self._queues)
        return share_of(self.member, self._members, self._queues)

    # --- once a second ---

    def _turn(self) -> None:
        """Check members, committed offsets and queues."""
        now_s, options = time.monotonic(), self._options
        self._turn_at = now_s + _TURN_S
        now_ms = self._access.now_ms()
        self._members = self._state.members(self.member, self._locks, now_ms, options.idle_ms)
        if options.broadcast is None:
            for (topic, queue), at in self._commits.adopt().items():
                _log.warning(
                    "group %s: another program set queue %d of topic %s to offset %s; it continues "
                    "there",
                    *(self.group, queue, topic, "none" if at is None else at),
                )
        self._list_queues()

    def _list_queues(self) -> None:
        """List the queues, and find the first offset of each that the group does not know yet."""
        listed = {
            (topic, queue)
            for topic in self._options.all_topics
            for queue in self._access.queues.queues(topic)
        }
        known = self._state.progress()
        new = sorted(listed - known.keys())
        if new:
            committed = {} if self._options.broadcast else self._commits.read()
            topics = {topic for topic, _ in (*known, *committed)}
            self._state.add_queues(
                (queue, *self._first_place(queue, committed.get(queue), queue[0] in topics))
                for queue in new
            )
        self._queues = sorted(listed)

    def _first_place(
        self, queue: Queue, committed: int | None, is_known: bool
    ) -> tuple[int, int | None]:
        """The next offset in a new queue, and the committed one.

        A queue that was created after the group began is read from its first message.
        """
        if committed is not None:
            return committed, committed
        later = is_known or queue[0] == self._options.retry_topic
        start = self._options.start
        place = consumer.EARLIEST if later and start == consumer.LATEST else start
        return consumer.find(self._access.queues, *queue, place), None

    # --- taking ---

    def _new(self, most: int, lease: state.Lease) -> list[Delivery]:
        """Hand out messages for the first time, from each queue in turn."""
        progress, orderly = self._state.progress(), self._options.orderly
        queues = [each for each in self.assigned() if each in progress]
        if orderly:
            queues = [each for each in queues if not progress[each].is_out]
        self._first += 1
        first = self._first % len(queues) if queues else 0
        read: list[tuple[state.FreshMessages, list[StoredMessage]]] = []
        for place, queue in enumerate(queues[first:] + queues[:first]):
            share = -(-most // (len(queues) - place))
            if share:
                found = self._read(queue, progress[queue].next_offset, share)
                read += [] if found is None else [found]
                most -= 0 if found is None else len(found[1])
        if not read:
            return []
        taken = self._state.take([each for each, _ in read], lease, orderly=orderly)
        self._has_moved = any(taken)
        return [
            self._delivery(fresh.queue, at, message, 1, lease)
            for (fresh, messages), done in zip(read, taken, strict=True)
            if done
            for at, message in zip(fresh.offsets, messages, strict=True)
        ]

    def _read(
        self, queue: Queue, offset: int, most: int
    ) -> tuple[state.FreshMessages, list[StoredMessage]] | None:
        """Messages of a queue from ``offset`` on; ``None`` at its end."""
        result = self._get(queue, offset, most)
        consumer.warn_if_corrected(result, queue, offset, f"group {self.group}")
        next_offset = min(result.next_offset, result.max_offset)  # after OFFSET_FOUND_NULL
        if result.status not in _MOVES_ON or next_offset == offset:
            return None
        fresh = state.FreshMessages(queue, offset, next_offset, result.queue_offsets)
        return fresh, result.messages

    def _get(self, queue: Queue, offset: int, most: int) -> PlacedResult:
        get = partial(self._access.get, *queue, offset, tags=self._options.all_topics[queue[0]])
        chosen = self._options.filter
        if chosen is None or queue[0] not in self._options.topics:  # retries were chosen before
            return get(most)
        return chosen.read(get, most)

    def _again(self, most: int, lease: state.Lease) -> list[Delivery]:
        """Hand out messages whose invisible time is over, or set them aside."""
        orderly = self._options.orderly
        claims = self._state.claim(set(self.assigned()), most, lease, orderly=orderly)
        found = []
        for claim in claims:
            result = self._access.get(*claim.queue, claim.offset, 1, tags=None)
            if result.queue_offsets != [claim.offset]:  # deleted meanwhile
                self._state.remove([(*claim.queue, claim.offset, lease.number)])
                continue
            (message,) = result.messages
            aside = self._aside(claim, message)
            if aside is None:
                found.append(
                    self._delivery(claim.queue, claim.offset, message, claim.attempt, lease)
                )
            elif self._put(aside, claim):
                self._state.remove([(*claim.queue, claim.offset, lease.number)])
            else:
                self._state.postpone(claim, lease)
        return found

    def _aside(self, claim: state.Claim, stored: StoredMessage) -> Message | None:
        """The message to put in place of one that failed; ``None`` if it is handed out again."""
        attempts, most = stored.reconsume_times + claim.attempt - 1, self._options.max_attempts
        if most is not None and attempts >= most:
            return dead_letter_of(stored, self.group, attempts)
        if claim.returned and self._options.retries_by_topic:
            return retry_of(stored, self.group, attempts)
        return None

    def _put(self, message: Message, claim: state.Claim) -> bool:
        try:
            self._access.put(message)
        except NotDurable as late:  # it is in the log, and a second one would be read twice
            _log.warning("a message put to %s may be lost: %s", message.topic, late)
        except LakelogError as error:
            _log.error(
                "message %d of queue %d of topic %s cannot be put to %s; tried again in %d ms: %s",
                *(claim.offset, claim.queue[1], claim.queue[0], message.topic),
                *(self._options.invisible_ms, error),
            )
            return False
        return True

    def _delivery(
        self, queue: Queue, offset: int, message: StoredMessage, attempt: int, lease: state.Lease
    ) -> Delivery:
        attempts = message.reconsume_times + attempt
        times = lease.taken_ms, lease.visible_ms
        return Delivery(message, *queue, offset, attempts, *times, lease.number)

    # --- end ---

    def close(self) -> None:
        """Leave the group, and commit; messages not acknowledged are visible at once.

        Raises :class:`~lakelog.errors.StoreError` if the offsets cannot be written.
        """
        was_closed, self._closed = self._closed, True  # ends the waits of other threads
        if not was_closed:
            with self._ends, self._fetching:
                self._state.leave(self.member, self._access.now_ms())
                with suppress(StoreClosed):  # the next member commits
                    self.commit()

    def forked(self) -> None:
        """Give up the membership in a forked child: the parent keeps it."""
        self._closed = True
        self._database.forked()
        self._locks.close()

    def __enter__(self) -> GroupConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _handle(delivery: Delivery) -> state.Handle:
    try:
        return delivery.handle
    except AttributeError:
        raise wrong_type("delivery", delivery, "a Delivery, as poll() returns it") from None


@attrs.frozen(kw_only=True)
class GroupOptions:
    """The options of a member of a group; see ``Store.subscribe``.

    :ivar topics: the tag expression of each topic; ``None`` selects all messages
    :ivar filter: selects messages of ``topics``
    :ivar start: the place in a queue for which the group has no offset
    :ivar broadcast: the name of a consumer that gets all messages, and shares no queue
    :ivar max_attempts: the number of hand-outs after which a message is a dead letter; ``None`` is
        without a limit, or with :attr:`retries_by_topic` that of the group's configuration
    """

    group: str
    topics: Mapping[str, str | None]
    filter: PropertyFilter | None
    start: consumer.StartPosition
    orderly: bool = attrs.field(converter=bool)
    broadcast: str | None
    invisible_ms: int
    max_attempts: int | None
    commit_interval_ms: int
    idle_ms: int

    @classmethod
    def of(
        cls,
        group: str,
        topics: str | Sequence[str] | Mapping[str, str | None],
        *,
        tags: str | None,
        filter: str | None,  # noqa: A002  # the word of RocketMQ and of users
        **more: object,
    ) -> GroupOptions:
        """Check the arguments; raises ``SettingsError``, ``TypeError`` and ``ValueError``.

        :param tags: the tag expression of all topics, unless ``topics`` is a mapping
        """
        check_group(group)
        chosen = _topics(topics, tags)
        for topic, expression in chosen.items():
            offsets_name(topic, group)
            tag_filter(topic, expression)
        parsed = None if filter is None else _filter(filter, chosen)
        made = cls(group=group, topics=chosen, filter=parsed, **more)  # type: ignore[arg-type]  # the values are checked below
        consumer.check_start_position(made.start)
        for name, least in (("invisible_ms", 1), ("commit_interval_ms", 0), ("idle_ms", 1)):
            if span_ms(name, getattr(made, name)) < least:
                raise WrongValue(f"{name} is {getattr(made, name)}; give {least} or more")
        if made.broadcast is not None:
            check_group(made.broadcast, "broadcast")
        if made.max_attempts is not None:
            whole("max_attempts", made.max_attempts, 1)
        return made

    def configured(self, files: FileSystem, path: Path) -> GroupOptions:
        """With the group's limit in the store directory ``path``; raises ``CorruptConfig``.

        A message that RocketMQ may retry once is handed out twice.
        """
        if self.max_attempts is not None or not self.retries_by_topic:
            return self
        retries = retry_limits(files, path).get(self.group, DEFAULT_RETRIES)
        return attrs.evolve(self, max_attempts=max(retries, 0) + 1)

    @property
    def retry_topic(self) -> str:
        """The topic of the group's retries."""
        return f"{RETRY_PREFIX}{self.group}"

    @property
    def retries_by_topic(self) -> bool:
        """Whether a message that failed goes through the retry topic."""
        return not (self.orderly or self.broadcast)

    @property
    def all_topics(self) -> dict[str, str | None]:
        """``topics``, and the retry topic, in which RocketMQ may have put messages."""
        return {**self.topics, **({} if self.broadcast else {self.retry_topic: None})}

    @property
    def scope(self) -> str:
        """The name of the state that the members share; a group's name holds no ``@``."""
        return f"{self.group}@{self.broadcast}" if self.broadcast else self.group

    @property
    def subscription(self) -> str:
        """A text that is equal for members that can share."""
        chosen = {"topics": self.topics, "orderly": self.orderly}
        if self.filter is not None:
            chosen["filter"] = self.filter.text
        return json.dumps(chosen, sort_keys=True)


def _filter(text: str, topics: Mapping[str, str | None]) -> PropertyFilter:
    if not isinstance(text, str):
        raise wrong_type("filter", text, "a str such as \"region = 'eu'\"")
    if any(tags is not None for tags in topics.values()):
        raise SettingsError("give 'tags' or 'filter'; TAGS is a property in it", key="filter")
    return PropertyFilter(text)


def _topics(
    topics: str | Sequence[str] | Mapping[str, str | None], tags: str | None
) -> dict[str, str | None]:
    if isinstance(topics, Mapping):
        if tags is not None:
            raise SettingsError("give the tags of each topic in 'topics', or 'tags'", key="tags")
        found = dict(topics)
    elif isinstance(topics, str):
        found = {topics: tags}
    elif isinstance(topics, Sequence) and not isinstance(topics, bytes):
        found = {topic_name(each): tags for each in topics}
    else:
        raise wrong_type("topics", topics, "a str, a list of them, or a dict with tags by topic")
    if not found:
        raise SettingsError("it is empty; give one topic or more", key="topics")
    return found
