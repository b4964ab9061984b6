"""Transactions: half messages that are committed, rolled back, or checked.

A half message waits in queue 0 of ``RMQ_SYS_TRANS_HALF_TOPIC``. Its end is a message with the tag
``d`` in ``RMQ_SYS_TRANS_OP_HALF_TOPIC``, whose body is the half message's queue offset and a comma.
A check asks a producer for the outcome. Before a check the half message is appended again, so that
the offset of the group ``CID_RMQ_SYS_TRANS`` moves on, and the log before it can be deleted.
Source: RocketMQ 5.3.3, ``TransactionalMessageServiceImpl`` and ``EndTransactionProcessor``.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import deque
from functools import partial
from typing import Final

import attrs

from lakelog import Message, PutRefused, Store, StoredMessage, errors
from lakelog.format.layout import COMMIT, TRANSACTION_MASK
from lakelog.runtime.threads import in_thread
from lakelog_broker.appending import HALF_TOPIC, ILLEGAL_PUTS, BrokerAppender
from lakelog_broker.security import AccessRight, Use
from lakelog_broker.settings import BrokerSettings
from lakelog_broker.state import ArrivalWaits, GroupOffsetTable, MemberTable
from lakelog_queues.delays import delivering
from lakelog_queues.units.properties import property_value, with_properties

GROUP: Final = "CID_RMQ_SYS_TRANS"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
_HALVES: Final = (HALF_TOPIC, 0)
_ENDS: Final = (OP_TOPIC, 0)
_RENEW_MS: Final = 3_600_000
"""A half message without a check for this long is appended again."""
_LOG: Final = logging.getLogger("lakelog.broker")


@attrs.define
class _Open:
    """A half message without an end.

    :ivar first_offset: its queue offset when the client sent it
    :ivar due_ms: time of the next check, or of the next append, in ms of the steady clock
    :ivar times: requests for its outcome that are not among its properties, as they have no room
    """

    physical_offset: int
    first_offset: int
    due_ms: int
    times: int = 0


class Transactions(delivering.Scheduled):
    """Ends transactions, and checks those without an outcome; used from one event loop."""

    def __init__(
        self,
        store: Store,
        appender: BrokerAppender,
        waits: ArrivalWaits,
        offsets: GroupOffsetTable,
        members: MemberTable,
        settings: BrokerSettings,
    ) -> None:
        super().__init__()
        self._store, self._appender, self._waits = store, appender, waits
        self._offsets, self._members, self._settings = offsets, members, settings
        self._deliverer = delivering.Deliverer("a half message", store.look_up)
        at = offsets.get(GROUP, *_HALVES) or 0
        self._halves = delivering.SystemQueueReader(store, _HALVES, at, self._deliverer, self._add)
        self._open: dict[int, _Open] = {}  # by queue offset
        self._queue: list[tuple[int, int]] = []  # a heap of times and queue offsets
        self._current: dict[int, int] = {}  # present queue offset by the first one
        self._ended: set[int] = set()  # queue offsets of half messages
        # Queue offset of each message of the op topic, and the highest half message that it ends.
        self._ends: deque[tuple[int, int]] = deque()
        self._to_ask: list[StoredMessage] = []
        self._turn = 0
        self._read_ends()

    def __len__(self) -> int:
        return len(self._open)

    def _read_ends(self) -> None:
        """Read the ended half messages from the op topic."""
        deliverer = delivering.Deliverer("the end of transactions", self._store.look_up)
        start = self._offsets.get(GROUP, *_ENDS) or 0
        reader = delivering.SystemQueueReader(self._store, _ENDS, start, deliverer, self._note_ends)
        while reader.read():
            reader.unread.clear()  # harmless: their half messages are checked again
        if reader.has_failed:
            raise errors.StoreError("the ends of transactions cannot be read, see the log")
        self._ended = {each for each in self._ended if each >= self._halves.next_offset}

    def _note_ends(self, stored: StoredMessage) -> None:
        numbers = [int(text) for text in bytes(stored.body).split(b",") if text.strip().isdigit()]
        self._ended.update(numbers)
        self._ends.append((stored.queue_offset, max(numbers, default=-1)))

    # --- ends ---

    def end(
        self,
        physical_offset: int,
        half_offset: int,
        commit: bool | None,
        group: str | None = None,
    ) -> bool:
        """Commit a transaction or roll it back; the outcome is in the log on return.

        :param physical_offset: physical offset of the half message, as in the result of its put
        :param half_offset: its queue offset
        :param commit: ``True`` to commit, ``False`` to roll back; ``None`` means that the outcome
            is unknown, and a later check asks for it
        :param group: the producer group, which must match the half message; ``None`` matches any
        :returns: whether there is such a transaction without an end. After a restart, a transaction
            that was checked before is found only by its new offsets; its next check has them

        Raises :class:`~lakelog.PutRefused` and :class:`~lakelog.errors.StoreError`. The transaction
        then has no end, or is committed and may be checked once more.
        """
        stored = self._half_at(physical_offset, half_offset)
        if stored is None:
            return False
        if group is not None and group_of(stored) != group:
            return False
        current = self._current.get(half_offset, half_offset)
        if current in self._ended or not self._is_open(current):
            return False
        if commit is None:
            return True
        if commit:
            self._appender.put_real(
                stored,
                (b"TRAN_MSG",),
                sets_aside=True,
                sys_flag=stored.sys_flag & ~TRANSACTION_MASK | COMMIT,
                prepared_transaction_offset=physical_offset,
            )
        self._put_end(current)
        return True

    def topic_of(self, physical_offset: int, half_offset: int) -> str | None:
        """The own topic of a half message; ``None`` without a half message at these offsets."""
        half = self._half_at(physical_offset, half_offset)
        return None if half is None else half.properties.get("REAL_TOPIC")

    def _half_at(self, physical_offset: int, half_offset: int) -> StoredMessage | None:
        try:
            stored = self._store.look_up(physical_offset)
        except (errors.OffsetOutOfRange, errors.CorruptRecord):
            return None
        is_half = (stored.topic, stored.queue_offset) == (HALF_TOPIC, half_offset)
        return stored if is_half else None

    def _is_open(self, offset: int) -> bool:
        """Whether a half message waits for its end, or was not read yet."""
        halves = self._halves
        return offset >= halves.next_offset or offset in self._open or offset in halves.unread

    def _put_end(self, offset: int) -> None:
        message = Message(OP_TOPIC, b"%d," % offset, tags="d", queue_id=0, wait_store_ok=False)
        put = self._store.put(message)
        self._ended.add(offset)
        self._ends.append((put.queue_offset, offset))
        self._halves.unread.pop(offset, None)
        gone = self._open.pop(offset, None)
        if gone is not None:
            self._current.pop(gone.first_offset, None)

    # --- checks ---

    async def run(self) -> None:
        """Check transactions until the task is cancelled."""
        while True:
            due_ms = self.check_due()
            if self._to_ask:
                # The producer's answer names the new half message, which must be readable by then.
                await in_thread(self._store.flush)
                self.ask()
            wait_ms = min(due_ms - self._steady(), delivering.LONGEST_WAIT_MS)
            if wait_ms <= 0:
                await asyncio.sleep(0)  # other tasks run first
            else:
                has_grown = self._halves.has_grown
                await self._waits.until([_HALVES], wait_ms / 1000, has_grown, is_urgent=False)

    def check_due(self) -> int:
        """Read new half messages, and append due ones again; at most ``delivering.BATCH`` of each.

        :returns: time of the next check, in ms of the steady clock; in the past if work remains
        """
        now = self._steady()
        halves, known = self._halves, (self._ended, self._open)
        if not halves.has_failed and halves.read(lambda at: any(at in each for each in known)):
            return now
        if halves.waits and self._may_retry():
            halves.retry()
        for _ in range(delivering.BATCH):
            if not self._queue or self._queue[0][0] > now:
                break
            due_ms, offset = heapq.heappop(self._queue)
            waiting = self._open.get(offset)
            if waiting is not None and waiting.due_ms == due_ms:
                self._check(offset, waiting)
        first = self._queue[0][0] if self._queue else now + delivering.LONGEST_WAIT_MS
        return min(first, self._retry_at_ms) if halves.waits else first

    def _add(self, stored: StoredMessage) -> None:
        offset, properties = stored.queue_offset, stored.properties_bytes
        first_text = property_value(properties, b"TRAN_PREPARED_QUEUE_OFFSET")
        first = offset if first_text is None else int(first_text)
        if first != offset:  # it was appended again, and replaces the former one
            self._open.pop(self._current.get(first, first), None)
            self._current[first] = offset
        if property_value(properties, b"TRANSACTION_CHECK_TIMES") is None:
            left_ms = self._left_ms(stored)
        else:
            past_ms = max(0, self._clock() - stored.store_timestamp_ms)
            left_ms = self._interval_ms - past_ms
        due_ms = self._steady() + left_ms
        self._wait(offset, _Open(stored.physical_offset, first, due_ms))

    def _left_ms(self, stored: StoredMessage) -> int:
        """The time until the first check, from the birth of a half message on.

        A client's clock may be ahead, and so may this one have been: neither delays the check.
        """
        begun_ms = min(stored.born_timestamp_ms, stored.store_timestamp_ms, self._clock())
        return begun_ms + self._immunity_ms(stored.properties_bytes) - self._clock()

    def _wait(self, offset: int, waiting: _Open) -> None:
        waiting.due_ms = min(waiting.due_ms, self._steady() + _RENEW_MS)
        self._open[offset] = waiting
        heapq.heappush(self._queue, (waiting.due_ms, offset))

    @property
    def _interval_ms(self) -> int:
        return int(self._settings.transaction_check_interval_s * 1000)

    def _immunity_ms(self, properties: bytes) -> int:
        """The age of a half message at its first check, in ms."""
        given = property_value(properties, b"CHECK_IMMUNITY_TIME_IN_SECONDS") or b""
        if given.isdigit():
            return int(given) * 1000
        return int(self._settings.transaction_timeout_s * 1000)

    def _check(self, offset: int, waiting: _Open) -> None:
        check = partial(self._check_one, offset, waiting)
        if not self._deliverer.deliver(waiting.physical_offset, check):
            waiting.due_ms = self._steady() + delivering.RETRY_MS
            self._wait(offset, waiting)
        elif offset in self._open and self._open[offset] is waiting:
            del self._open[offset]  # its record is damaged, so it cannot be committed

    def _check_one(self, offset: int, waiting: _Open, stored: StoredMessage) -> None:
        properties, now = stored.properties_bytes, self._steady()
        times = int(property_value(properties, b"TRANSACTION_CHECK_TIMES") or 0) + waiting.times
        if times >= self._settings.transaction_check_limit:
            self._give_up(stored, times)
            self._put_end(offset)
            return
        left_ms = self._left_ms(stored)
        is_asked = times > 0 or left_ms <= 0
        due_ms = now + (self._interval_ms if is_asked else left_ms)
        added = {"TRAN_PREPARED_QUEUE_OFFSET": str(waiting.first_offset)}
        if is_asked:
            added["TRANSACTION_CHECK_TIMES"] = str(times + 1)
        try:
            put = self._appender.put_again(stored, **added)
        except PutRefused as error:
            if error.status not in ILLEGAL_PUTS:
                raise
            if not waiting.times:
                _LOG.warning(
                    "the half message at offset %d of the log has no room for what a check adds, "
                    "so it stays there until its transaction ends: %s",
                    *(stored.physical_offset, error),
                )
            times = waiting.times + is_asked
            self._wait(offset, attrs.evolve(waiting, due_ms=due_ms, times=times))
            self._to_ask += [stored] if is_asked else []
            return
        self._put_end(offset)  # else a restart before the next save would check it as well
        self._current[waiting.first_offset] = put.queue_offset
        self._wait(put.queue_offset, _Open(put.physical_offset, waiting.first_offset, due_ms))
        if is_asked:
            self._to_ask.append(
                attrs.evolve(
                    stored,
                    queue_offset=put.queue_offset,
                    physical_offset=put.physical_offset,
                    store_timestamp_ms=put.store_timestamp_ms,
                    properties_bytes=with_properties(properties, (), **added),
                )
            )

    def ask(self) -> None:
        """Ask a producer for the outcome of each half message that :meth:`check_due` appended."""
        halves, self._to_ask = self._to_ask, []
        for half in halves:
            members = self._members.producers.get(group_of(half), {}).values()
            # Any user may name any producer group: the half message goes to those of its topic.
            use = Use(AccessRight.PUB, topic=half.properties.get("REAL_TOPIC", half.topic))
            producers = [each for each in members if use.allowed_to(each.user)]
            if not producers:
                continue  # the next check is after the interval
            self._turn += 1
            with delivering.one_of_many(f"a request to a producer of {group_of(half)!r}"):
                producers[self._turn % len(producers)].peer.check_transaction(half)

    def _give_up(self, stored: StoredMessage, times: int) -> None:
        _LOG.warning(
            "the transaction at offset %d of the log has no outcome after %d requests to the group "
            "%r; its message is put into %s",
            *(stored.physical_offset, times, group_of(stored), GIVEN_UP_TOPIC),
        )
        self._appender.put_real(stored, topic=GIVEN_UP_TOPIC, queue_id=0)

    # --- progress ---

    def note_progress(self) -> None:
        """Set the offsets of the group ``GROUP``; the log must be durable before their save."""
        lowest = min([self._halves.next_offset, *self._halves.unread, *self._open])
        while self._ends and self._ends[0][1] < lowest:
            self._ended.discard(self._ends.popleft()[1])
        ends = self._ends[0][0] if self._ends else (self._store.queue_bounds(*_ENDS) or (0, 0))[1]
        for queue, offset in ((_HALVES, lowest), (_ENDS, ends)):
            if self._offsets.get(GROUP, *queue) != offset:
                self._offsets.set(GROUP, *queue, offset)


def group_of(half: StoredMessage) -> str:
    """The producer group of a half message."""
    return (property_value(half.properties_bytes, b"PGROUP") or b"").decode(errors="replace")
