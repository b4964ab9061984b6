"""A member of a consumer group that shares the queues with the other members, and its options."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, suppress
from itertools import groupby
from threading import get_ident
from typing import Final, NamedTuple

from lakelog.arguments import span_ms, whole, wrong_type
from lakelog.errors import LakelogError, NotDurable, StoreClosed, StoreReadOnly
from lakelog.format.queue_offsets import Queue
from lakelog.message import Message, StoredMessage
from lakelog.results import PutStatus
from lakelog.runtime.forks import OfThisProcess, register_forked
from lakelog.runtime.locks import Mutex
from lakelog_queues.consumers import consumer
from lakelog_queues.groups.leases import Delivery
from lakelog_queues.groups.options import GroupAccess, GroupOptions
from lakelog_queues.groups.read_ahead import MOST_RESERVED, NOTHING_RESERVED, MergedQueues
from lakelog_queues.groups.set_aside import (
    dead_letter_of,
    retry_delay_ms,
    retry_of,
)
from lakelog_queues.groups.state import GroupCommits, GroupState
from lakelog_queues.groups.state_words import Claim, Handle, hand_out

_TURN_S: Final = 1.0
"""Longest interval between two checks of members, queues and committed offsets, in seconds."""
_NAP_S: Final = 0.5
"""Longest interval between two searches for messages whose invisible time is over, in seconds."""
_RESERVE_S: Final = 0.1
"""The time for which messages are taken in advance, by the pace until then."""
_NOTHING: Final[tuple[int, list[Delivery]]] = 0, []
_FOR_GOOD: Final = (
    PutStatus.MESSAGE_ILLEGAL,
    PutStatus.MESSAGE_SIZE_EXCEEDED,
    PutStatus.PROPERTIES_SIZE_EXCEEDED,
)
_log = logging.getLogger("lakelog")


class _Lease(NamedTuple):
    """A hand-out.

    :ivar number: identifies it
    :ivar now_ms: its begin, and ``until_ms`` its end, in ms since boot
    :ivar times: both in ms since 1970
    """

    number: int
    now_ms: int
    until_ms: int
    times: tuple[int, int]


class GroupConsumer(OfThisProcess):
    """A member of a group; created by ``Store.subscribe``, ended by :meth:`close` or ``with``.

    Thread-safe: a thread may acknowledge messages that another thread polled. Delivery is at least
    once.

    :ivar group: the consumer group
    :ivar member: the number of this member in the group
    """

    def __init__(self, options: GroupOptions, access: GroupAccess) -> None:
        """Join the group.

        Raises :class:`~lakelog.errors.StoreReadOnly` in a store that is open for reading,
        :class:`~lakelog.errors.SettingsError` if a living member has another subscription,
        :class:`~lakelog.errors.StoreError` if the state of the group cannot be used, and
        :class:`~lakelog.errors.CorruptConfig` if its configuration cannot.
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
        self._fetching = Mutex()
        self._turn_at = self._commit_at = 0.0
        self._members: list[int] = []
        self._queues: dict[Queue, int] = {}
        self._due: list[int] = []
        self._count = int.from_bytes(os.urandom(3)) >> 2
        self._taken: dict[int, tuple[int, list[Delivery]]] = {}
        self._reserve = NOTHING_RESERVED
        self._reach, self._reserved_s = 1, 0.0
        self._is_halfway = False
        self._generation = 0
        with ExitStack() as opened:
            self._state = GroupState.opened(access.files, access.path, options.scope, access.now_ms)
            opened.callback(self._state.file.close)
            self.member = self._state.join(
                *(options.scope, options.subscription, access.now_ms()),
                is_alone=options.broadcast is not None,
            )
            self._commits = GroupCommits(self.group, self._state, access.queues.offsets)
            self._ahead = MergedQueues(options, access, self._state)
            self._turn()
            opened.pop_all()
        self._commit_at = time.monotonic() + options.commit_interval_ms / 1000
        register_forked(self)

    # --- reading ---

    def poll(
        self, max_messages: int = consumer.BATCH_MESSAGES, wait_ms: float = 0
    ) -> list[Delivery]:
        """The next messages of this member's queues, in the order of the log.

        :param wait_ms: longest wait at the end of the queues for the first message
        :returns: at most ``max_messages``; empty on timeout

        Raises :class:`~lakelog.errors.StoreClosed` if the consumer or its store is closed.
        """
        wait_s = span_ms("wait_ms", wait_ms) / 1000
        found = self._fetched(max_messages)
        if wait_s and not found:
            found = self._waited(max_messages, time.monotonic() + wait_s)
        self._taken[get_ident()] = _NOTHING
        return found

    def _waited(self, max_messages: int, deadline_s: float) -> list[Delivery]:
        """Messages as soon as there are any."""
        arrivals = self._access.queues.arrivals
        while not self._closed:
            seen = arrivals.version
            found = self._fetched(max_messages)
            left = deadline_s - time.monotonic()
            if found or left <= 0 or arrivals.closed:
                return found
            arrivals.wait(seen, min(left, self.nap_s()))
        return []

    def fetch(self, max_messages: int = consumer.BATCH_MESSAGES) -> list[Delivery]:
        """As :meth:`poll`, without waiting; raises the same errors.

        Continues past messages that tags or the filter exclude.
        """
        found = self._fetched(max_messages)
        self._taken[get_ident()] = _NOTHING
        return found

    def _fetched(self, max_messages: int) -> list[Delivery]:
        """The next messages; until a caller of lakelog has them, their hand-out is in ``_taken``.

        After an exception the next call gives them back, as if they were never handed out.
        """
        most = whole("max_messages", max_messages, 1)
        thread = get_ident()
        with self._fetching:
            if self._closed:
                raise StoreClosed(f"the consumer of group {self.group!r} is closed")
            now_s = time.monotonic()
            if now_s >= self._commit_at:
                self.commit()
            if now_s >= self._turn_at or self._state.generation != self._generation:
                self._turn()
            if self._is_halfway:
                self._ahead.forget()
                self._withdraw()
            self._is_halfway = True
            number, lost = self._taken.get(thread, _NOTHING)
            if number:
                self._state.undo(number, map(_handle, lost))
            before_ms = time.time_ns() // 1_000_000
            now_ms, span = self._access.now_ms(), self._options.invisible_ms
            number = self._hand_out(now_ms)
            self._taken[thread] = number, []
            # The thread may stand still between two clocks: the lease does not end earlier.
            times = time.time_ns() // 1_000_000, before_ms + span
            lease = _Lease(number, now_ms, now_ms + span, times)
            found = self._again(most, lease)
            if len(found) < most:
                found += self._new(most - len(found), lease)
            self._is_halfway = False
            return found

    def _hand_out(self, now_ms: int) -> int:
        self._count += 1
        return hand_out(now_ms, self._count)

    def nap_s(self) -> float:
        """Seconds to wait for arrivals before the next check."""
        due_ms = self._state.next_due_ms(self._ahead.places)
        return min(max(due_ms - self._access.now_ms(), 1) / 1000, _NAP_S)

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
        try:
            handles = [each.handle for each in deliveries]
        except AttributeError:
            handles = list(map(_handle, deliveries))
        return self._state.remove(handles)

    def nack(self, delivery: Delivery, delay_ms: float | None = None) -> bool:
        """Return a message that could not be handled; it is handed out again after ``delay_ms``.

        After the last attempt it becomes a dead letter at once.

        :param delay_ms: ``None`` is RocketMQ's delay after so many attempts, from 10 s to 2 h; 0 in
            an orderly consumer
        :returns: as :meth:`ack`
        """
        handle = _handle(delivery)
        if delay_ms is None:
            delay_ms = 0 if self._options.orderly else retry_delay_ms(delivery.attempt)
        visible_ms = self._access.now_ms() + int(span_ms("delay_ms", delay_ms))
        orderly = self._options.orderly
        if self._is_last(delivery.attempt):
            if not self._state.renew(handle, self._access.now_ms() + self._options.invisible_ms):
                return False
            dead = dead_letter_of(delivery.message, self.group, delivery.attempt)
            queue = delivery.topic, delivery.queue_id
            if self._put(dead, queue, delivery.queue_offset) is None:
                return self._state.remove([handle])
        return self._state.give_back(handle, visible_ms, orderly=orderly)

    def renew(self, delivery: Delivery, invisible_ms: float | None = None) -> bool:
        """Let the invisible time of a message end ``invisible_ms`` from now.

        Messages of the same queue and poll that are not acknowledged yet are renewed as well.

        :param invisible_ms: ``None`` is the time given to ``subscribe``
        :returns: as :meth:`ack`
        """
        handle = _handle(delivery)
        span = self._options.invisible_ms if invisible_ms is None else invisible_ms
        return self._state.renew(handle, self._access.now_ms() + int(span_ms("invisible_ms", span)))

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
            return sorted(self._queues)
        return share_of(self.member, self._members, self._queues)

    # --- once a second ---

    def _turn(self) -> None:
        """Check members, committed offsets and queues."""
        options = self._options
        self._turn_at, self._generation = time.monotonic() + _TURN_S, self._state.generation
        self._members = self._state.members(self._access.now_ms(), options.idle_ms)
        if options.broadcast is None:
            for (topic, queue), at in self._commits.adopt().items():
                _log.warning(
                    "group %s: another program set queue %d of topic %s to offset %s; it continues "
                    "there",
                    *(self.group, queue, topic, "none" if at is None else at),
                )
        self._list_queues()

    def _list_queues(self) -> bool:
        """List the queues, and find the first offset of each that the group does not know yet.

        Returns whether the share of this member has changed.
        """
        listed = {
            (topic, queue)
            for topic in self._options.all_topics
            for queue in self._access.queues.queues(topic)
        }
        known = self._state.queues()
        new = sorted(listed - known.keys())
        if new:
            committed = {} if self._options.broadcast else self._commits.read()
            topics = {topic for topic, _ in (*known, *committed)}
            self._state.add_queues(
                (queue, *self._first_place(queue, committed.get(queue), queue[0] in topics))
                for queue in new
            )
            known = self._state.queues()
        self._queues = {queue: known[queue] for queue in listed if queue in known}
        assigned = self.assigned()
        if assigned == self._ahead.queues:
            return False
        self._ahead.assign({queue: self._queues[queue] for queue in assigned})
        self._due = []
        self._withdraw()
        return True

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

    # --- handing out for the first time ---

    def _new(self, most: int, lease: _Lease) -> list[Delivery]:
        """Hand out messages for the first time, in the order of the log."""
        found: list[Delivery] = []
        ahead, orderly = self._ahead, self._options.orderly
        if orderly:  # a queue may be blocked meanwhile
            ahead.forget()
        while len(found) < most:
            left = most - len(found)
            if self._reserve:
                found += self._begun(left, lease)
                continue
            if ahead.ready < left and not (orderly and found):
                ahead.fill(left, self._list_queues)
            if not ahead.ready:
                break
            if orderly:
                number, lost = self._numbered(lease)
                new = ahead.take(left, number, lease.until_ms).deliveries(left, *lease.times)
                lost += new
                found += new
            else:
                number = self._hand_out(lease.now_ms)
                self._reserve = ahead.take(self._pace(left), number, lease.until_ms)
        return found

    def _pace(self, least: int) -> int:
        """How many messages to take at once: as many as are polled in :data:`_RESERVE_S`."""
        before, self._reserved_s = self._reserved_s, time.monotonic()
        span_s = max(self._reserved_s - before, _RESERVE_S / 4)
        self._reach = min(max(int(self._reach * _RESERVE_S / span_s), least), MOST_RESERVED)
        return max(self._reach, least)

    def _begun(self, most: int, lease: _Lease) -> list[Delivery]:
        """Hand out messages that are taken already."""
        taken = self._taken[get_ident()][1]
        found = self._reserve.deliveries(most, *lease.times)
        taken += found
        handles = [each.handle for each in found]
        if self._state.begin(handles, lease.now_ms, lease.until_ms):
            return found
        self._state.undo(0, handles)
        self._withdraw()
        return self._again(most, lease)

    def _withdraw(self) -> None:
        """Give back what is taken and not handed out."""
        self._reserve, self._reach = NOTHING_RESERVED, 1
        self._state.withdraw()

    # --- handing out again ---

    def _again(self, most: int, lease: _Lease) -> list[Delivery]:
        """Hand out messages whose invisible time is over, or set them aside."""
        places, found = self._ahead.places, list[Delivery]()
        if not self._options.orderly:
            self._due = self._due or self._state.due(places, lease.now_ms)
            if not self._due:
                return found
        number, lost = self._numbered(lease)
        lease = lease._replace(number=number)
        until = number, lease.now_ms, lease.until_ms
        if self._options.orderly:
            claims = self._state.claim_in_order(places, most, *until)
        else:
            claims = self._state.claim(self._due, most, *until)
        for claim, message in self._claimed(claims):
            queue = self._state.name(claim.queue)
            handle = claim.lease, lease.number, claim.offset
            aside = None if message is None else self._aside(claim, message)
            error = None if aside is None else self._put(aside, queue, claim.offset)
            if message is None:  # deleted meanwhile
                self._state.remove([handle])
            elif aside is None or _is_refused(error):
                found.append(
                    self._delivery(queue, claim.offset, message, claim.attempt, claim.lease, lease)
                )
            elif error is None:
                self._state.remove([handle])
            else:
                self._state.postpone(handle, lease.until_ms)
        lost += found
        return found

    def _numbered(self, lease: _Lease) -> tuple[int, list[Delivery]]:
        """A number for the next turn, and what was handed out before in this poll.

        Between two turns a lease may be dropped, and its place used again: with one number for
        both, an acknowledgement could hit the other lease.
        """
        thread = get_ident()
        self._taken[thread] = taken = self._hand_out(lease.now_ms), self._taken[thread][1]
        return taken

    def _claimed(self, claims: list[Claim]) -> Iterator[tuple[Claim, StoredMessage | None]]:
        """The message of each claim; ``None`` if it is not there any more."""
        for (queue, _), several in groupby(claims, lambda each: (each.queue, each.lease)):
            run = list(several)
            first, count = run[0].offset, run[-1].offset - run[0].offset + 1
            result = self._access.get(*self._state.name(queue), first, count, tags=None)
            messages = dict(zip(result.queue_offsets, result.messages, strict=True))
            yield from ((each, messages.get(each.offset)) for each in run)

    def _is_last(self, attempts: int) -> bool:
        most = self._options.max_attempts
        return most is not None and attempts >= most

    def _aside(self, claim: Claim, stored: StoredMessage) -> Message | None:
        """The message to put in place of one that failed; ``None`` if it is handed out again."""
        attempts = stored.reconsume_times + claim.attempt - 1
        if self._is_last(attempts):
            return dead_letter_of(stored, self.group, attempts)
        if claim.returned and self._options.retries_by_topic:
            return retry_of(stored, self.group, attempts)
        return None

    def _put(self, message: Message, queue: Queue, offset: int) -> LakelogError | None:
        """Put a copy; returns why that failed."""
        try:
            self._access.put(message)
        except NotDurable as late:  # it is in the log, and a second one would be read twice
            _log.warning("a message put to %s may be lost: %s", message.topic, late)
        except LakelogError as error:
            _log.error(
                "message %d of queue %d of topic %s cannot be put to %s, and stays with its group: "
                "%s",
                *(offset, queue[1], queue[0], message.topic, error),
            )
            return error
        return None

    def _delivery(
        self,
        queue: Queue,
        offset: int,
        message: StoredMessage,
        attempt: int,
        place: int,
        lease: _Lease,
    ) -> Delivery:
        attempts, handle = message.reconsume_times + attempt, (place, lease.number, offset)
        return Delivery._make((message, *queue, offset, attempts, *lease.times, handle))

    # --- end ---

    def close(self) -> None:
        """Leave the group, and commit; messages not acknowledged are visible at once.

        Raises :class:`~lakelog.errors.StoreError` if the offsets cannot be written.
        """
        was_closed, self._closed = self._closed, True  # ends the waits of other threads
        try:
            if not was_closed:
                with self._fetching:
                    with suppress(StoreClosed):  # the next member commits
                        self.commit()
                    self._state.leave(self._access.now_ms())
        finally:
            self._state.file.close()

    def forked(self) -> None:
        """Give up the membership in a forked child: the parent keeps it."""
        self._closed = True
        self._state.file.forked()

    def __enter__(self) -> GroupConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_refused(error: LakelogError | None) -> bool:
    """Whether a copy can never be put; then its message is handed out again in its place."""
    return getattr(error, "status", None) in _FOR_GOOD


def share_of(member: int, members: Collection[int], queues: Collection[Queue]) -> list[Queue]:
    """The queues of one member, sorted; empty if ``members`` does not contain it.

    As RocketMQ's ``AllocateMessageQueueAveragelyByCircle``, over the queues of all topics together.
    Every queue belongs to one member, and the shares differ by one queue at most. The result
    depends on the arguments only, not on their order.

    >>> share_of(7, {3, 7}, [("t", 0), ("t", 1), ("t", 2)])
    [('t', 1)]
    """
    in_turn = sorted(members)
    if member not in members:
        return []
    return sorted(queues)[in_turn.index(member) :: len(in_turn)]


def _handle(delivery: Delivery) -> Handle:
    try:
        return delivery.handle
    except AttributeError:
        raise wrong_type("delivery", delivery, "a Delivery, as poll() returns it") from None
