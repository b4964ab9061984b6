"""Hands out messages to the members of groups, for both protocols.

A message that is not acknowledged in time is handed out again in place. If a later message of its
queue is acknowledged, it is put into a retry topic of the group (``%RETRY%GROUP_TOPIC``) with one
more reconsume time, so that the group's offset can move on. After the group's last attempt it goes
to ``%DLQ%GROUP``. RocketMQ puts each unacknowledged message into the retry topic, and stores
hand-outs in its topic ``rmq_sys_REVIVE_LOG``. Here hand-outs are in memory only: after a crash all
messages from the first unacknowledged one on are handed out again.

:class:`PopQueue` is the state of one group in one queue: the messages that are out, and the offset
to commit. Source: RocketMQ 5.3.3, ``PopMessageProcessor``, ``PopReviveService``.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from operator import itemgetter
from typing import Final, TypeAlias

import attrs

from lakelog import Message, PutRefused, PutResult, StoredMessage
from lakelog.format.encoder import system_ms
from lakelog.format.properties import encode_properties
from lakelog_broker.appending import settled
from lakelog_broker.broker import Broker
from lakelog_broker.codes import Refused
from lakelog_broker.filtering import EVERYTHING, MessageFilter, placed
from lakelog_broker.popping import handles
from lakelog_broker.properties import lite_parent
from lakelog_queues.delays.delivering import RETRY_MS, one_of_many, steady_ms
from lakelog_queues.groups.set_aside import dead_letter_of, retry_of

_LOG: Final = logging.getLogger("lakelog.broker")

MAX_OUT: Final = 10_000
"""Most unacknowledged messages of a group in a queue; RocketMQ's
``popInflightMessageThreshold``."""
_Place: TypeAlias = tuple[str, int, int]
"""Topic, flag and queue id."""
_queue_id: Final = itemgetter(2)
_READS: Final = 8
"""Most reads of one queue for one request, if the filter matches few messages."""
_LOOK_S: Final = 1.0
"""Interval at which a waiting request looks for messages whose invisible time is over."""


@attrs.frozen(kw_only=True)
class PopRequest:
    """A request for messages.

    :ivar queues: the queue ids to read
    :ivar invisible_ms: how long the messages stay invisible
    :ivar is_ordered: whether a queue hands out no message while one of its messages is out
    :ivar attempt_id: id of an ordered consumer's request; a repeated request has the same id
    :ivar from_first: whether a new group begins at the first message of a queue; otherwise at the
        last one
    :ivar light_queues: returns the present light queues to read instead of the topic's own queues
    """

    group: str
    topic: str
    queues: Sequence[int]
    max_messages: int
    invisible_ms: int
    selection: MessageFilter = EVERYTHING
    is_ordered: bool = False
    attempt_id: str = ""
    from_first: bool = False
    light_queues: Callable[[], Sequence[str]] | None = None


@attrs.frozen
class Popped:
    """A message that was handed out.

    :ivar record: the stored record
    :ivar attempt: number of the hand-out, from 1 on
    """

    message: StoredMessage
    record: bytes
    handle: handles.ReceiptHandle
    attempt: int


class Popping:
    """The hand-outs of all groups; used from one event loop.

    :param clock_ms: returns the time in ms of a clock that nobody sets
    """

    def __init__(self, broker: Broker, clock_ms: Callable[[], int] = steady_ms) -> None:
        self._broker, self._store = broker, broker.store
        self._clock_ms = clock_ms
        self._popped_ms = 0  # time of the present hand-out, in ms since 1970, as clients get it
        self._queues: dict[tuple[str, str, int], PopQueue] = {}
        self._turn = itertools.count()
        self._moves: set[asyncio.Task[None]] = set()

    async def receive(self, request: PopRequest, wait_s: float) -> list[Popped]:
        """Hand out messages; wait at most ``wait_s`` seconds for the first one.

        Raises :class:`Refused`.
        """
        loop, found = asyncio.get_running_loop(), list[Popped]()
        end = loop.time() + wait_s

        def is_found() -> bool:
            found.extend(self.pop(request))
            return bool(found)

        while True:
            due_ms = self._due_ms(request)
            left = min(end - loop.time(), _LOOK_S)
            if due_ms is not None:
                left = min(left, max(0.001, (due_ms - self._clock_ms()) / 1000))
            queues = [(topic, each) for topic, _, each in self._places(request)]
            await self._broker.waits.until(queues, max(0, left), is_found)
            if found or loop.time() >= end:
                return found

    def pop(self, request: PopRequest) -> list[Popped]:
        """Hand out the messages that are available now; raises :class:`Refused`."""
        found: list[Popped] = []
        self._popped_ms = system_ms()
        places = list(self._places(request))
        by_priority = self._broker.topics.is_by_priority(request.group, request.topic)
        first = next(self._turn) % len(places) if places and not by_priority else 0
        if by_priority and not request.is_ordered:  # retries come last
            own = len(request.queues)
            places[:own] = sorted(places[:own], key=_queue_id, reverse=True)
        for place in places[first:] + places[:first]:
            most = request.max_messages - len(found)
            if most <= 0:
                break
            got = self._pop_queue(request, place, most)
            if got:
                topic, _, queue_id = place
                end = got[-1].message.queue_offset + 1
                name = topic if request.light_queues is None else request.topic
                self._broker.traffic.note_read(request.group, name, queue_id, end, len(got))
            found += got
        return found

    def _places(self, request: PopRequest) -> Iterable[_Place]:
        """The queues that a request reads."""
        if request.light_queues is not None:
            for name in request.light_queues():
                yield name, handles.OWN_TOPIC, 0
            return
        for queue_id in request.queues:
            yield request.topic, handles.OWN_TOPIC, queue_id
        if request.is_ordered:
            return
        for flag in (handles.RETRY_TOPIC, handles.RETRY_TOPIC_V2):
            name = handles.retry_topic(request.group, request.topic, flag)
            retries = self._broker.topics.find(name)
            if retries and not self._broker.has_retry_topic(request.group, name):
                continue
            for queue_id in range(retries.read_queues if retries else 0):
                yield name, flag, queue_id

    def _pop_queue(self, request: PopRequest, place: _Place, most: int) -> list[Popped]:
        topic, flag, queue_id = place
        from_first = request.from_first or flag != handles.OWN_TOPIC
        queue = self._queue(request.group, topic, queue_id, from_first)
        now_ms, queue.is_ordered = self._clock_ms(), request.is_ordered
        if request.is_ordered:
            if self._is_blocked(request, queue, now_ms):  # a message of the queue is still out
                return []
            queue.attempt_id, ready = request.attempt_id, iter(list(queue.out))
        else:
            ready = iter(lambda: queue.take_due(now_ms), None)
        found: list[Popped] = []
        for offset in ready:
            again = None
            with one_of_many(f"the hand-out of message {offset} of queue {queue_id} of {topic}"):
                try:
                    again = self._again(request, place, queue, offset, now_ms)
                except BaseException:
                    queue.postpone(offset, now_ms + RETRY_MS)
                    raise
            if again is not None:
                found.append(again)
                if len(found) >= most:
                    return found
        if request.is_ordered and queue.out and not found:  # all are being put elsewhere
            return found
        selection = request.selection if flag == handles.OWN_TOPIC else EVERYTHING
        read = self._read(selection, topic, queue_id, queue, min(most - len(found), queue.room))
        for message, record in read:
            attempt = 1 + message.reconsume_times
            start = read[0][0].queue_offset
            visible_ms = now_ms + request.invisible_ms
            out = PopDelivery(attempt, self._popped_ms, visible_ms, request.invisible_ms, start)
            queue.add(message.queue_offset, out)
            found.append(self._popped(flag, message, record, out))
        if read and request.is_ordered:
            queue.attempt_id = request.attempt_id
        self._commit(request.group, topic, queue_id, queue)
        return found

    def _read(
        self, selection: MessageFilter, topic: str, queue_id: int, queue: PopQueue, most: int
    ) -> list[tuple[StoredMessage, bytes]]:
        if most <= 0:
            return []
        if lite_parent(topic) and queue.next_offset >= self._broker.bounds(topic, queue_id)[1]:
            queue.has_more = False  # a client has thousands of them, and few have news
            return []
        for _ in range(_READS):
            start = queue.next_offset
            read, queue.next_offset = selection.messages(self._store, topic, queue_id, start, most)
            if read or queue.next_offset == start:
                queue.has_more = False
                return read
        queue.has_more = True
        return []

    @staticmethod
    def _is_blocked(request: PopRequest, queue: PopQueue, now_ms: int) -> bool:
        """Whether a message of an ordered queue is out, and the request is not a repeated one."""
        if request.attempt_id and request.attempt_id == queue.attempt_id:
            return False
        return any(each.visible_ms > now_ms and not each.is_done for each in queue.out.values())

    def _again(
        self, request: PopRequest, place: _Place, queue: PopQueue, offset: int, now_ms: int
    ) -> Popped | None:
        (topic, flag, queue_id), former = place, queue.out[offset]
        got = self._store.get_records(topic, queue_id, offset, 1)
        if got.queue_offsets != [offset]:  # retention has removed it
            queue.remove(offset)
            self._commit(request.group, topic, queue_id, queue)
            return None
        stored = placed(got.records[0], topic, queue_id, offset)
        # The request is repeated, or an acknowledged message follows one that comes again.
        repeats = former.visible_ms > now_ms and not former.is_done
        stays = repeats or former.is_done
        moved = None if stays else self._moved_away(request, queue, former, stored, flag)
        if moved is not None and self._move(request.group, queue, stored, moved):
            return None
        attempt = former.attempt + (not repeats)
        pop_time_ms = max(self._popped_ms, former.pop_time_ms + 1)
        visible_ms = now_ms + request.invisible_ms
        out = PopDelivery(attempt, pop_time_ms, visible_ms, request.invisible_ms, offset)
        queue.add(offset, out)
        return self._popped(flag, stored, got.records[0], out)

    def _moved_away(
        self,
        request: PopRequest,
        queue: PopQueue,
        former: PopDelivery,
        stored: StoredMessage,
        flag: int,
    ) -> Message | None:
        """The copy for the retry topic or ``%DLQ%``; ``None`` to hand the message out in place."""
        if former.attempt > self._broker.topics.retry_limit(request.group):
            return _dead_letter(stored, request.group, former.attempt)
        if request.is_ordered or not queue.holds_back(stored.queue_offset):
            return None
        message = retry_of(stored, request.group, former.attempt)
        message.topic = stored.topic
        if flag == handles.OWN_TOPIC:
            message.topic = self._broker.pop_retry_topic(request.group, request.topic)
        if b"1ST_POP_TIME\x01" not in stored.properties_bytes:
            added = encode_properties({"1ST_POP_TIME": str(former.pop_time_ms)})
            message.properties += added  # type: ignore[operator]  # stored ones are bytes
        return message

    def _move(self, group: str, queue: PopQueue, stored: StoredMessage, message: Message) -> bool:
        """Put a copy into a topic of the group; the message is then done in its own queue.

        :returns: whether the put was accepted; otherwise the message is handed out in place
        """
        try:
            self._broker.make_topic_of(group, message.topic)
            put = self._broker.appender.append_moved(message)
        except (PutRefused, Refused) as error:
            _LOG.warning(
                "message %d of queue %d of %s is handed out in place, as its copy is refused: %s",
                *(stored.queue_offset, stored.queue_id, stored.topic, error),
            )
            return False
        if isinstance(put, PutResult):
            self._moved(group, queue, stored)
            return True
        queue.out[stored.queue_offset].is_moving = True
        task = asyncio.ensure_future(self._move_later(group, queue, stored, put))
        self._moves.add(task)
        task.add_done_callback(self._moves.discard)
        return True

    async def _move_later(
        self, group: str, queue: PopQueue, stored: StoredMessage, put: Awaitable[PutResult]
    ) -> None:
        try:
            _: PutResult = await settled(put)
        except Exception:  # noqa: BLE001  # any fault leaves the message where it is
            _LOG.exception("%s at %d was not moved", stored.topic, stored.queue_offset)
            out = queue.out[stored.queue_offset]
            out.is_moving = False
            queue.add(stored.queue_offset, out)
        else:
            self._moved(group, queue, stored)

    def _moved(self, group: str, queue: PopQueue, stored: StoredMessage) -> None:
        queue.remove(stored.queue_offset)
        place = group, stored.topic, stored.queue_id
        if self._queues.get(place) is queue:  # an administrator may have set another offset
            self._commit(*place, queue)

    def _popped(self, flag: int, message: StoredMessage, record: bytes, out: PopDelivery) -> Popped:
        hand_out = out.start_offset, out.pop_time_ms, out.invisible_ms
        place = self._broker.settings.name, message.queue_id, message.queue_offset
        handle = handles.ReceiptHandle(*hand_out, flag, *place)
        return Popped(message, record, handle, out.attempt)

    def acknowledge(self, group: str, topic: str, handle: handles.ReceiptHandle) -> bool:
        """Acknowledge a message; false if this hand-out is over or not known."""
        place, queue = self._find(group, topic, handle)
        if queue is None:
            return False
        queue.acknowledge(handle.offset)
        self._commit(*place, queue)
        self._broker.waits.wake(place[1], place[2])  # an ordered queue may give the next message
        return True

    def change(
        self, group: str, topic: str, handle: handles.ReceiptHandle, invisible_ms: int
    ) -> handles.ReceiptHandle | None:
        """Hand a message out again ``invisible_ms`` from now.

        :returns: the new handle; ``None`` if the hand-out is over or not known
        """
        place, queue = self._find(group, topic, handle)
        if queue is None:
            return None
        now_ms, out = self._clock_ms(), queue.out[handle.offset]
        out.pop_time_ms = max(system_ms(), out.pop_time_ms + 1)
        out.invisible_ms, out.visible_ms = invisible_ms, now_ms + invisible_ms
        queue.add(handle.offset, out)
        self._broker.waits.wake(place[1], place[2])
        return attrs.evolve(handle, pop_time_ms=out.pop_time_ms, invisible_ms=invisible_ms)

    def extend(
        self, group: str, topic: str, handle: handles.ReceiptHandle, invisible_ms: int
    ) -> bool:
        """As :meth:`change`, but the handle stays valid; false if the hand-out is over."""
        _, queue = self._find(group, topic, handle)
        if queue is None:
            return False
        out = queue.out[handle.offset]
        out.visible_ms = self._clock_ms() + invisible_ms
        queue.add(handle.offset, out)
        return True

    def dead_letter(self, group: str, topic: str, handle: handles.ReceiptHandle) -> bool:
        """Put a message into ``%DLQ%group``; false if the hand-out is over or the put is refused.

        Raises :class:`Refused` if the message was deleted.
        """
        place, queue = self._find(group, topic, handle)
        if queue is None:
            return False
        got = self._store.get_records(place[1], handle.queue_id, handle.offset, 1)
        if got.queue_offsets != [handle.offset]:
            raise Refused(f"the message of {handle} is gone")
        stored = placed(got.records[0], *place[1:], handle.offset)
        times = queue.out[handle.offset].attempt
        return self._move(group, queue, stored, _dead_letter(stored, group, times))

    def is_available(self, request: PopRequest) -> bool:
        """Whether a request would get a message now, without regard to its filter."""
        now_ms = self._clock_ms()
        for topic, flag, queue_id in self._places(request):
            queue = self._queue(request.group, topic, queue_id, flag != handles.OWN_TOPIC)
            if request.is_ordered and self._is_blocked(request, queue, now_ms):
                continue
            due_ms = queue.due_ms
            if due_ms is not None and due_ms <= now_ms:
                return True
            if queue.next_offset < self._broker.bounds(topic, queue_id)[1]:
                return True
        return False

    def _find(
        self, group: str, topic: str, handle: handles.ReceiptHandle
    ) -> tuple[tuple[str, str, int], PopQueue | None]:
        place = group, handle.topic_of(group, topic), handle.queue_id
        queue = self._queues.get(place)
        out = queue.out.get(handle.offset) if queue else None
        is_current = out is not None and out.pop_time_ms == handle.pop_time_ms and out.comes_again
        return place, queue if is_current else None

    def _queue(self, group: str, topic: str, queue_id: int, from_first: bool) -> PopQueue:
        place = group, topic, queue_id
        committed = self._broker.offsets.get(*place)
        found = self._queues.get(place)
        if found is not None and found.committed == committed:
            return found
        if committed is None:  # as RocketMQ's initMode
            low, high = self._broker.bounds(topic, queue_id)
            committed = low if from_first or low == 0 else max(low, high - 1)
            self._broker.offsets.set(*place, committed)
        found = self._queues[place] = PopQueue(committed, committed)
        return found

    def _commit(self, group: str, topic: str, queue_id: int, queue: PopQueue) -> None:
        offset = queue.first_unacknowledged
        if offset != queue.committed:
            queue.committed = offset
            self._broker.offsets.set(group, topic, queue_id, offset)

    def _due_ms(self, request: PopRequest) -> int | None:
        """Time of the next hand-out without a new message, of the clock; ``None`` without one."""
        times: list[int] = []
        for topic, _, queue_id in self._places(request):
            queue = self._queues.get((request.group, topic, queue_id))
            if queue is not None:
                if queue.has_more:
                    return self._clock_ms()
                if queue.due_ms is not None:
                    times.append(queue.due_ms)
        return min(times, default=None)


def _dead_letter(stored: StoredMessage, group: str, attempts: int) -> Message:
    """The dead letter of a message, which names its own topic, also from a light queue."""
    parent = lite_parent(stored.topic)
    own = stored if parent is None else attrs.evolve(stored, topic=parent)
    return dead_letter_of(own, group, attempts)


@attrs.define
class PopDelivery:
    """A message that is out: handed out, and not yet acknowledged.

    :ivar attempt: number of the hand-out from 1 on; earlier ones in other topics count, too
    :ivar pop_time_ms: time of the hand-out, in ms since 1970
    :ivar visible_ms: time from which it is handed out again, in ms of the steady clock
    :ivar start_offset: the first queue offset of the hand-out
    :ivar is_moving: whether it is being put into another topic
    :ivar is_done: whether it is acknowledged, but kept because an earlier message of an ordered
        queue is not
    """

    attempt: int
    pop_time_ms: int
    visible_ms: int
    invisible_ms: int
    start_offset: int
    is_moving: bool = False
    is_done: bool = False

    @property
    def comes_again(self) -> bool:
        """Whether it is handed out again at ``visible_ms``."""
        return not (self.is_moving or self.is_done)


@attrs.define(eq=False)
class PopQueue:
    """A queue of a group.

    The committed offset is the first unacknowledged one. So after a crash some messages are handed
    out again, and none is lost.

    :ivar next_offset: queue offset of the first message that was never handed out
    :ivar committed: the offset that was committed last
    :ivar out: the messages that are out, by queue offset, in ascending order
    :ivar has_more: whether the last read stopped before the end of the queue without a match
    :ivar is_ordered: whether the last request was ordered
    :ivar attempt_id: the ``attempt_id`` of the last ordered request
    """

    next_offset: int
    committed: int
    out: OrderedDict[int, PopDelivery] = attrs.field(factory=OrderedDict)
    has_more: bool = False
    is_ordered: bool = False
    attempt_id: str = ""
    _acknowledged: int = -1
    _times: list[tuple[int, int]] = attrs.field(factory=list)

    @property
    def first_unacknowledged(self) -> int:
        """The offset to commit."""
        return next(iter(self.out), self.next_offset)

    @property
    def room(self) -> int:
        """How many more messages may be out."""
        return max(0, MAX_OUT - len(self.out))

    @property
    def due_ms(self) -> int | None:
        """Time of the next repeated hand-out, of the steady clock; ``None`` without one."""
        self._drop_outdated()
        return self._times[0][0] if self._times else None

    def add(self, offset: int, delivery: PopDelivery) -> None:
        """Note a hand-out, or the new ``visible_ms`` of one."""
        self.out[offset] = delivery
        heapq.heappush(self._times, (delivery.visible_ms, offset))

    def postpone(self, offset: int, visible_ms: int) -> None:
        """Hand a message out again at ``visible_ms``, if it is still out."""
        out = self.out.get(offset)
        if out is not None:
            out.visible_ms = visible_ms
            self.add(offset, out)

    def take_due(self, now_ms: int) -> int | None:
        """Return the offset of a message whose invisible time is over, once; else ``None``."""
        self._drop_outdated()
        if self._times and self._times[0][0] <= now_ms:
            return heapq.heappop(self._times)[1]
        return None

    def _drop_outdated(self) -> None:
        times = self._times
        while times:
            visible_ms, offset = times[0]
            found = self.out.get(offset)
            if found is not None and found.comes_again and found.visible_ms == visible_ms:
                return
            heapq.heappop(times)

    def holds_back(self, offset: int) -> bool:
        """Whether a later message is acknowledged, while the one at ``offset`` is not."""
        return offset < self._acknowledged

    def acknowledge(self, offset: int) -> None:
        """Acknowledge a message.

        In an ordered queue it is kept until all earlier messages are acknowledged. If one of them
        is handed out again, the later ones follow it again, as with RocketMQ.
        """
        if self.is_ordered and offset != next(iter(self.out), offset):
            self.out[offset].is_done = True
        else:
            self.remove(offset)

    def remove(self, offset: int) -> None:
        """Remove a message that is done, and the done messages that then are the first ones."""
        if self.out.pop(offset, None) is not None:
            self._acknowledged = max(self._acknowledged, offset)
        while self.out and next(iter(self.out.values())).is_done:
            self.out.popitem(last=False)
